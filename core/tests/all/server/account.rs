//! As whom servers run.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use forklift::postgres::RunAs;
use forklift::{Environment, ErrorKind};

use crate::support::{Cluster, installation, stop};

/// Row 14, where namespaces are refused: `None` for an ordinary user, who needs none of this.
fn account() -> Option<RunAs> {
    let run_as = RunAs::detect(&Environment::of([("FORKLIFT_NO_USER_NAMESPACE", "1")])).unwrap();
    matches!(run_as, RunAs::Account { .. }).then_some(run_as)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Row 14.
#[test]
fn root_runs_servers_in_a_namespace_and_keeps_its_files() {
    let cluster = Cluster::new();
    assert_eq!(matches!(cluster.spec.run_as, RunAs::Caller), !is_root());
    let server = cluster.start().unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(std::fs::metadata(cluster.spec.data.join("postmaster.pid")).unwrap().uid(), own);
    if let RunAs::UserNamespace { uid, .. } = cluster.spec.run_as {
        assert_ne!(uid, 0);
        let map = std::fs::read_to_string(format!("/proc/{}/uid_map", server.pid())).unwrap();
        assert_eq!(map.split_ascii_whitespace().collect::<Vec<_>>(), [uid.to_string(), "0".to_owned(), "1".to_owned()]);
    }
    stop(server);
}

/// Row 14.
#[test]
fn an_account_owns_its_cluster_where_namespaces_are_refused() {
    let Some(run_as) = account() else {
        eprintln!("skipped: not root");
        return;
    };
    let RunAs::Account { uid, .. } = run_as else { panic!() };
    let mut cluster = Cluster::with(run_as);
    let port = forklift::postgres::Address::new(Path::new("/x"), &cluster.root().display().to_string(), true).unwrap().port;
    cluster.spec.address.port = port;
    let server = cluster.start().unwrap();
    assert_eq!(std::fs::metadata(format!("/proc/{}", server.pid())).unwrap().uid(), uid);
    assert_eq!(std::fs::metadata(cluster.spec.data.join("postmaster.pid")).unwrap().uid(), uid);
    cluster.client().unwrap().batch_execute("CREATE TABLE t AS SELECT 1").unwrap();
    let url = cluster.spec.address.url(forklift::postgres::UrlForm::Tcp, &cluster.spec.credentials.url, "app").unwrap();
    postgres::Client::connect(&url, postgres::NoTls).unwrap();
    stop(server);
    // A killed keeper as well: the signal of its death is set after the change of account.
    let server = cluster.start().unwrap();
    let forklift::postgres::ServerStatus::Running { keeper, .. } = cluster.status() else { panic!() };
    crate::support::signal(keeper, libc::SIGKILL);
    cluster.wait_until_stopped();
    drop(server);
}

#[test]
fn an_account_that_is_not_there_or_is_root_is_refused_by_name() {
    if !is_root() {
        eprintln!("skipped: not root");
        return;
    }
    for (name, kind) in [("no-such-account", ErrorKind::NotFound), ("root", ErrorKind::InvalidArgument)] {
        let environment = Environment::of([("FORKLIFT_NO_USER_NAMESPACE", "1"), ("FORKLIFT_ACCOUNT", name)]);
        let error = RunAs::detect(&environment).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(name), "{error}");
        assert!(error.hint_text().unwrap().contains("FORKLIFT_ACCOUNT"));
    }
}

/// Row 15.
#[test]
fn programs_and_folders_that_it_cannot_reach_are_named() {
    let Some(run_as) = account() else {
        eprintln!("skipped: not root");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    std::fs::create_dir_all(closed.join("bin")).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut hidden = installation();
    std::os::unix::fs::symlink(hidden.bin.join("postgres"), closed.join("bin/postgres")).unwrap();
    hidden.bin = closed.join("bin");
    let error = run_as.check(&hidden, folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission);
    assert!(error.message().contains(&format!("may not pass {}", closed.display())), "{error}");
    let error = run_as.check(&installation(), &closed.join("data")).unwrap_err();
    assert!(error.message().contains(&format!("may not pass {}", closed.display())), "{error}");
    // Without root's privileges even root cannot, in its namespace.
    let namespace = RunAs::detect(&Environment::of::<&str, &str>([])).unwrap();
    if matches!(namespace, RunAs::UserNamespace { .. }) {
        std::os::unix::fs::chown(&closed, Some(12345), Some(12345)).unwrap();
        let error = namespace.check(&hidden, folder.path()).unwrap_err();
        assert!(error.message().contains(&format!("may not pass {}", closed.display())), "{error}");
    }
    let error = run_as.check(&forklift::postgres::Installation { bin: "/nowhere".into(), ..installation() }, folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresNotFound);
}

#[test]
fn folders_of_an_account_are_its_own_and_the_store_above_is_passable() {
    let Some(run_as) = account() else {
        eprintln!("skipped: not root");
        return;
    };
    let RunAs::Account { uid, .. } = run_as else { panic!() };
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    let store = folder.path().join("store");
    std::fs::create_dir_all(store.join("branches")).unwrap();
    for closed in [folder.path(), &store, &store.join("branches")] {
        std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(store.join("FORMAT"), "").unwrap();
    let branch = store.join("branches/a/b");
    run_as.make_folder(&branch).unwrap();
    assert_eq!(std::fs::metadata(&branch).unwrap().uid(), uid);
    assert_eq!(mode(&branch), 0o700);
    for passable in [&store, &store.join("branches"), &store.join("branches/a")] {
        assert_eq!(mode(passable), 0o711, "{}", passable.display());
    }
    assert_eq!(mode(folder.path()), 0o700, "not ours to open");
}

/// Row 19.
#[test]
fn programs_get_a_clean_environment_with_a_valid_locale() {
    let run_as = RunAs::detect(&Environment::of::<&str, &str>([])).unwrap();
    let command = run_as.command(&installation(), "postgres").unwrap();
    let mut names: Vec<_> = command.get_envs().map(|(name, value)| (name.to_str().unwrap(), value.unwrap().to_str().unwrap())).collect();
    names.retain(|(name, _)| *name != "LD_LIBRARY_PATH" || installation().library_path.is_none());
    names.sort_unstable();
    assert!(matches!(names.as_slice(), [("LANG", "C.UTF-8" | "C"), ("LC_MESSAGES", "C"), ("PATH", _)]), "{names:?}");
    assert!(run_as.command(&installation(), "no-such-program").is_err());
}
