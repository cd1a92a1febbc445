use std::path::Path;

use super::testing::{Cluster, installation};
use crate::ErrorKind;
use crate::cancel::CancelToken;
use crate::environment::Environment;
use crate::postgres::{ClusterFacts, ClusterState, DatabaseLocale, InitOptions, Installation, Origin, RunAs, choose, find, initdb};
use crate::progress::Control;
use crate::sys::fs;

fn put(path: &Path, text: &str) {
    fs::replace(path, text.as_bytes(), 0o600, &fs::Syncs::new()).unwrap();
}

#[test]
fn initdb_makes_a_cluster_that_starts_and_refuses_a_folder_with_something_in_it() {
    let Some(installation) = installation("initdb_makes_a_cluster_that_starts_and_refuses_a_folder_with_something_in_it") else { return };
    let run_as = RunAs::detect(&Environment::read()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = InitOptions { wal_segment_mib: Some(1), ..InitOptions::default() };
    initdb(&installation, &run_as, &data, &options, &Control::silent()).unwrap();
    let facts = ClusterFacts::of_files(&data, &installation).unwrap();
    assert_eq!((facts.control.wal_segment_size, facts.control.checksum_version), (1 << 20, 1));
    assert!(facts.check(&installation).unwrap().is_empty());
    let mut server = super::testing::Server::start(&installation, &data, &[]).unwrap();
    assert_eq!(server.value("select pg_encoding_to_char(encoding) from pg_database where datname = 'template0'"), "UTF8");
    server.stop();

    let before = fs::names(&data).unwrap();
    let error = initdb(&installation, &run_as, &data, &options, &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::names(&data).unwrap(), before);
}

/// As root where user namespaces are refused: the cluster belongs to an unprivileged account.
#[test]
fn row_14_initdb_under_an_account_makes_a_cluster_that_belongs_to_it() {
    let test = "row_14_initdb_under_an_account_makes_a_cluster_that_belongs_to_it";
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED {test}: not root");
        return;
    }
    let Some(installation) = installation(test) else { return };
    let run_as = RunAs::detect(&Environment::of([("FORKLIFT_NO_USER_NAMESPACE", "1")])).unwrap();
    let RunAs::Account { uid, .. } = &run_as else { panic!("{run_as:?}") };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let data = folder.path().join("data");
    initdb(&installation, &run_as, &data, &InitOptions::default(), &Control::silent()).unwrap();
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
    assert_eq!((owner(&data), owner(&data.join("global/pg_control"))), (*uid, *uid));
    let facts = ClusterFacts::of_files(&data, &installation).unwrap();
    assert_eq!(facts.control.state, ClusterState::ShutDown);
}

#[test]
fn a_failed_initdb_leaves_the_folder_as_it_was() {
    let Some(installation) = installation("a_failed_initdb_leaves_the_folder_as_it_was") else { return };
    let run_as = RunAs::detect(&Environment::read()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for options in [
        InitOptions { wal_segment_mib: Some(3), ..InitOptions::default() },
        InitOptions { superuser: "pg_x".to_owned(), ..InitOptions::default() },
        InitOptions { superuser: "a\nb".to_owned(), ..InitOptions::default() },
    ] {
        assert_eq!(initdb(&installation, &run_as, &data, &options, &Control::silent()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(!data.exists());
    }
    let token = CancelToken::new();
    let canceller = {
        let (token, data) = (token.clone(), data.clone());
        std::thread::spawn(move || {
            while !data.join("base").exists() {
                std::thread::yield_now();
            }
            token.cancel();
        })
    };
    let error = initdb(&installation, &run_as, &data, &InitOptions::default(), &Control::new(token, None)).unwrap_err();
    canceller.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!data.exists());

    // A share folder that is damaged: initdb itself fails.
    let broken = Installation { bin: folder.path().join("bin"), ..installation };
    fs::make_folder(&broken.bin, 0o755).unwrap();
    fs::create_new(&broken.bin.join("initdb"), 0o755).unwrap();
    put(&broken.bin.join("initdb"), "#!/bin/sh\nmkdir -p \"$2/base\"; echo 'initdb: error: out of luck' >&2; exit 1\n");
    std::fs::set_permissions(broken.bin.join("initdb"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::make_folder(&data, 0o700).unwrap();
    let error = initdb(&broken, &run_as, &data, &InitOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert!(error.message().contains("out of luck"), "{error}");
    assert!(fs::names(&data).unwrap().is_empty());
}

#[test]
fn row_28_a_cluster_of_another_major_is_refused_with_both_versions() {
    let Some(cluster) = Cluster::new("row_28_a_cluster_of_another_major_is_refused_with_both_versions", &[]) else { return };
    let facts = ClusterFacts::of_files(&cluster.data, &cluster.installation).unwrap();
    put(&cluster.data.join("PG_VERSION"), "12\n");
    let error = ClusterFacts::of_files(&cluster.data, &cluster.installation).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert!(error.message().contains("12") && error.message().contains(&cluster.installation.version.to_string()), "{error}");
    put(&cluster.data.join("PG_VERSION"), "fifteen\n");
    assert_eq!(ClusterFacts::of_files(&cluster.data, &cluster.installation).unwrap_err().kind(), ErrorKind::PostgresMismatch);
    fs::remove_file(&cluster.data.join("PG_VERSION")).unwrap();
    assert_eq!(ClusterFacts::of_files(&cluster.data, &cluster.installation).unwrap_err().kind(), ErrorKind::NotFound);

    let change = |change: fn(&mut ClusterFacts)| {
        let mut other = facts.clone();
        change(&mut other);
        other.check(&cluster.installation).unwrap_err().message().to_owned()
    };
    assert!(change(|facts| facts.control.catalog_version += 1).contains("catalog version"));
    assert!(change(|facts| facts.control.block_size = 16384).contains("block size 16384"));
    assert!(change(|facts| facts.control.segment_blocks = 7).contains("segment 7"));
    assert!(change(|facts| facts.version.major -= 1).contains("of Postgres"));
}

#[test]
fn rows_29_and_31_missing_locales_extensions_and_libraries_are_named() {
    let Some(cluster) = Cluster::new("rows_29_and_31_missing_locales_extensions_and_libraries_are_named", &[]) else { return };
    put(&cluster.data.join("postgresql.auto.conf"), "shared_preload_libraries = 'plpgsql, \"no_such_library\"' # x\n");
    let mut facts = ClusterFacts::of_files(&cluster.data, &cluster.installation).unwrap();
    assert_eq!(facts.preload, ["plpgsql", "no_such_library"]);
    let error = facts.check(&cluster.installation).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert!(error.message().contains("names no_such_library,"), "{error}");
    facts.preload.clear();

    facts.extensions.push(("app".to_owned(), "plpgsql".to_owned(), "1.0".to_owned()));
    facts.check(&cluster.installation).unwrap();
    facts.extensions.push(("app".to_owned(), "no_such_extension".to_owned(), "2.1".to_owned()));
    let error = facts.check(&cluster.installation).unwrap_err();
    assert!(error.message().contains("no_such_extension 2.1 (database app)"), "{error}");
    facts.extensions.pop();

    let locale = |name: &str| DatabaseLocale {
        database: "app".to_owned(),
        provider: "c".to_owned(),
        locale: name.to_owned(),
        ctype: "C".to_owned(),
        version: None,
    };
    facts.locales.push(locale("C"));
    facts.check(&cluster.installation).unwrap();
    facts.locales.push(locale("xx_YY.UTF-8"));
    let error = facts.check(&cluster.installation).unwrap_err();
    assert!(error.message().contains("xx_YY.UTF-8") && error.message().contains("app"), "{error}");
    facts.locales.pop();
    facts.locales.push(DatabaseLocale { version: Some("1.0".to_owned()), ..locale("C") });
    if crate::sys::locale::library_version().is_some() {
        assert!(facts.check(&cluster.installation).unwrap()[0].contains("1.0"));
    }
}

#[test]
fn an_explicit_installation_is_found_by_its_bin_folder_its_root_and_a_program() {
    let Some(real) = installation("an_explicit_installation_is_found_by_its_bin_folder_its_root_and_a_program") else { return };
    for path in [real.bin.clone(), real.bin.parent().unwrap().to_owned(), real.bin.join("postgres")] {
        let found = choose(&Environment::of([("FORKLIFT_POSTGRES", path.as_os_str())]), None).unwrap();
        assert_eq!((&found.bin, found.origin), (&real.bin, Origin::Explicit));
    }
    let error = choose(&Environment::of([("FORKLIFT_POSTGRES", "/nowhere/at/all")]), None).unwrap_err();
    assert!(error.message().contains("/nowhere/at/all"), "{error}");
    assert!(real.extensions().unwrap().iter().any(|extension| extension.name == "plpgsql" && extension.version.as_deref() == Some("1.0")));
    let error = real.program("no_such_program").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresNotFound);
    assert!(error.hint_text().unwrap().contains("install"), "{error}");
}

#[test]
fn what_does_not_work_is_listed_with_the_reason_and_a_stray_initdb_confuses_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let program = |folder: &Path, name: &str, text: &str, mode: u32| {
        fs::make_folder(folder, 0o755).unwrap();
        put(&folder.join(name), text);
        std::fs::set_permissions(folder.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let stray = folder.path().join("stray");
    program(&stray, "initdb", "#!/bin/sh\n", 0o755);
    let foreign = folder.path().join("foreign");
    program(&foreign, "initdb", "#!/bin/sh\n", 0o755);
    program(&foreign, "postgres", "\x7fELF nonsense", 0o755);
    let lacking = folder.path().join("lacking");
    program(&lacking, "initdb", "#!/bin/sh\n", 0o755);
    program(&lacking, "postgres", "#!/bin/sh\necho 'libmissing.so.1: cannot open shared object file' >&2; exit 127\n", 0o755);
    let old = folder.path().join("old");
    program(&old, "initdb", "#!/bin/sh\n", 0o755);
    program(&old, "postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.24'\n", 0o755);
    let path = std::env::join_paths([&stray, &foreign, &lacking, &old]).unwrap();
    let environment = Environment::of([("PATH", path)]);
    let (found, broken) = find(&environment);
    assert!(found.iter().all(|one| !one.bin.starts_with(folder.path())));
    let reason = |bin: &Path| {
        broken
            .iter()
            .find(|(path, _)| *path == std::fs::canonicalize(bin).unwrap())
            .map(|(_, error)| (error.kind(), error.message().to_owned()))
    };
    assert_eq!(reason(&stray), None);
    assert_eq!(reason(&foreign).unwrap().0, ErrorKind::PostgresNotFound);
    assert!(reason(&lacking).unwrap().1.contains("libmissing.so.1"), "{:?}", reason(&lacking));
    assert_eq!(reason(&old).unwrap().0, ErrorKind::PostgresMismatch);
    let error = choose(&environment, Some(13)).err().filter(|_| !found.iter().any(|one| one.version.major == 13));
    if let Some(error) = error {
        assert!(error.hint_text().unwrap().contains("forklift postgres install 13"), "{error}");
    }
}
