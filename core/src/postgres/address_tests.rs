use super::*;

fn role() -> Role {
    Role { name: "a@b:c".to_owned(), password: "p/w %?#\u{e9}".to_owned() }
}

#[test]
fn urls_are_encoded_and_keep_the_slashes_of_the_folder() {
    let address = Address { public: "/tmp/a b/c".into(), private: "/tmp/x".into(), port: Some(20_001) };
    let login = "a%40b%3Ac:p%2Fw%20%25%3F%23%C3%A9";
    let url = |form| address.url(form, &role(), "my/db").unwrap();
    assert_eq!(url(UrlForm::Socket), format!("postgresql://{login}@/my%2Fdb?host=/tmp/a%20b/c"));
    assert_eq!(url(UrlForm::Localhost), format!("postgresql://{login}@localhost/my%2Fdb?host=/tmp/a%20b/c"));
    assert_eq!(url(UrlForm::Tcp), format!("postgresql://{login}@127.0.0.1:20001/my%2Fdb"));
    // Drivers read them back as they were meant.
    let config: tokio_postgres::Config = url(UrlForm::Socket).parse().unwrap();
    assert_eq!((config.get_user(), config.get_dbname()), (Some("a@b:c"), Some("my/db")));
    assert_eq!(config.get_password(), Some(role().password.as_bytes()));
    let error = Address { port: None, ..address }.url(UrlForm::Tcp, &role(), "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn an_address_is_the_same_for_the_same_name_and_fits_a_socket() {
    let short = Address::new(Path::new("/run/store/s"), "branch a", false).unwrap();
    assert_eq!(short, Address::new(Path::new("/run/store/s"), "branch a", false).unwrap());
    assert!(short.public.starts_with("/run/store/s") && short.private.starts_with("/run/store/s"));
    assert_ne!(short.public, short.private);
    assert!(!short.private.starts_with(&short.public), "an account that serves cannot pass the clients' folder");
    assert_ne!(short.public, Address::new(Path::new("/run/store/s"), "branch b", false).unwrap().public);
    for length in 60..110 {
        let address = Address::new(&Path::new("/").join("x".repeat(length)), "a", false).unwrap();
        for folder in [&address.public, &address.private] {
            assert!(folder.join(SOCKET).as_os_str().len() <= SOCKET_PATH, "{}", folder.display());
        }
    }
    assert!(Address::new(Path::new("relative"), "a", false).unwrap().public.is_absolute());
}

#[test]
fn a_port_is_free_and_outside_the_ephemeral_range() {
    let first = Address::new(Path::new("/s"), "port", true).unwrap().port.unwrap();
    assert!(!ephemeral_range().contains(&first) && first >= 10_000);
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first));
    if taken.is_ok() {
        assert_ne!(Address::new(Path::new("/s"), "port", true).unwrap().port, Some(first));
    }
}

#[test]
fn folders_that_others_made_or_can_reach_are_refused_by_name() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("s");
    let address = Address::new(&base, "a", false).unwrap();
    address.ensure().unwrap();
    address.ensure().unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for (path, open, closed) in [(&address.public, 0o750, 0o700), (&address.private, 0o777, 0o700), (&base, 0o777, 0o711)] {
        set(path, open);
        let error = address.ensure().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
        assert!(error.message().contains(&format!("{} is open to others", path.display())), "{error}");
        set(path, closed);
    }
    address.ensure().unwrap();
    std::fs::remove_dir(&address.public).unwrap();
    symlink(folder.path(), &address.public).unwrap();
    assert!(address.ensure().unwrap_err().message().contains("is a symbolic link"));
    std::fs::remove_file(&address.public).unwrap();
    std::fs::File::create(&address.public).unwrap();
    assert!(address.ensure().unwrap_err().message().contains("is not a folder"));
    if rustix::process::geteuid().is_root() {
        std::fs::remove_file(&address.public).unwrap();
        std::os::unix::fs::chown(&base, Some(12345), None).unwrap();
        assert!(address.ensure().unwrap_err().message().contains("belongs to uid 12345"));
    }
}
