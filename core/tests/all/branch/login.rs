//! What users do to forklift's own role, its sessions and its caches.

use std::os::unix::fs::PermissionsExt;

use forklift::branch::{Branches, CaptureMode};
use forklift::postgres::RunAs;
use forklift::store::Store;
use forklift::{Environment, ErrorKind};

use super::{Place, client, commit, run, silent, start, stop, value};

#[test]
fn settings_of_role_and_database_do_not_reach_our_sessions() {
    let place = Place::new();
    let branch = place.running("main", "create table t as select 1 as x");
    let ours = branch.credentials().unwrap().ours.name;
    for setting in [
        "role = pg_monitor",
        "session_preload_libraries = 'no-such-library'",
        "local_preload_libraries = 'no-such-library'",
        "search_path = nowhere",
        "statement_timeout = 1",
        "lock_timeout = 1",
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "exit_on_error = on",
        "datestyle = 'SQL, DMY'",
    ] {
        run(&branch, &format!("alter role {ours} set {setting}; alter role {ours} in database postgres set {setting}"));
    }
    let held = client(&branch);
    let session = place.store.session(&silent()).unwrap();
    for mode in [CaptureMode::Online, CaptureMode::Stopped] {
        branch.capture(&session, mode, None, &silent()).unwrap();
    }
    drop((held, session));
    stop(&branch);
    start(&branch);
    stop(&branch);
}

#[test]
fn a_changed_login_of_forklift_is_told_with_its_remedy_and_set_again_by_a_start() {
    let place = Place::new();
    let branch = place.running("main", "create table t as select 1 as x; create role spare login superuser password 'spare'");
    let credentials = branch.credentials().unwrap();
    let ours = credentials.ours.name;
    let session = place.store.session(&silent()).unwrap();
    for change in ["password 'another'", "nologin", "valid until '2000-01-01'"] {
        run(&branch, &format!("alter role {ours} {change}"));
        let error = branch.capture(&session, CaptureMode::Online, None, &silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sql);
        assert!(error.hint_text().unwrap().contains("forklift branch stop main"), "{error}");
        stop(&branch);
        start(&branch);
        branch.capture(&session, CaptureMode::Online, None, &silent()).unwrap();
    }
    drop(session);
    // Nobody comes in without a password afterwards.
    let open = postgres::Config::new().host_path(&branch.record().address.public).user(&ours).dbname("postgres").connect(postgres::NoTls);
    assert!(open.is_err());
    assert_eq!(value(&branch, "select x from t"), "1");
    stop(&branch);
}

#[test]
fn a_cache_that_can_be_neither_read_nor_written_fails_no_capture() {
    let place = Place::new();
    let branch = place.running("main", "create table t as select 1 as x");
    let cache = branch.info().unwrap().data.with_file_name("cache");
    std::fs::create_dir_all(cache.join("in the way")).unwrap();
    let session = place.store.session(&silent()).unwrap();
    for mode in [CaptureMode::Online, CaptureMode::Stopped] {
        branch.capture(&session, mode, None, &silent()).unwrap();
    }
    drop(session);
    let names = std::fs::read_dir(cache.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.ends_with(".tmp")));
    stop(&branch);
}

/// Row 14, in the data folder where nothing else was named.
#[test]
fn an_account_reaches_the_default_store_and_only_its_own_folders_there() {
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (closed, with_stranger) in [(false, false), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let data = folder.path().join("fresh");
        let keeper = env!("CARGO_BIN_EXE_forklift-keeper");
        let environment = Environment::of([
            ("PATH", "/usr/bin:/bin"),
            ("FORKLIFT_KEEPER", keeper),
            ("FORKLIFT_NO_USER_NAMESPACE", "1"),
            ("FORKLIFT_DATA", data.to_str().unwrap()),
        ]);
        if !matches!(RunAs::detect(&environment).unwrap(), RunAs::Account { .. }) {
            eprintln!("skipped: not root");
            return;
        }
        let store = Store::open_or_create(&environment.store_path().unwrap()).unwrap();
        if closed {
            std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        if with_stranger {
            std::fs::write(data.join("diary"), "private").unwrap();
        }
        let place = Place { branches: Branches::open(&store, &environment).unwrap(), store, folder };
        if with_stranger {
            let made = place.branches.create("main", &super::Origin::Empty, &super::CreateOptions::default(), &silent());
            assert!(made.is_err());
            assert_eq!(mode(&data), 0o700);
            continue;
        }
        let branch = place.running("main", "create table t as select 1 as x");
        assert_eq!((mode(&data), mode(place.store.path())), (0o711, 0o711));
        for inner in ["packs", "refs", "index"] {
            assert_eq!(mode(&place.store.path().join(inner)), 0o700, "{inner}");
        }
        let session = place.store.session(&silent()).unwrap();
        let capture = branch.capture(&session, CaptureMode::Stopped, None, &silent()).unwrap();
        let checkpoint = commit(session, &branch, capture.half);
        run(&branch, "update t set x = 2");
        let reader = place.store.reader(&silent()).unwrap();
        let prepared = branch.materialise(&reader, &checkpoint.id, checkpoint.cluster.as_ref().unwrap(), &silent()).unwrap();
        stop(&branch);
        branch.select(&prepared.id).unwrap();
        start(&branch);
        assert_eq!(value(&branch, "select x from t"), "1");
        stop(&branch);
    }
}
