use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::testing::{Cluster, Server};
use crate::ErrorKind;
use crate::cancel::CancelToken;
use crate::postgres::{CopyReport, TreeSink, copy_settings, copy_stopped, prepare_copy};
use crate::progress::Control;
use crate::sys::fs;

fn copy(cluster: &Cluster, name: &str) -> crate::Result<(PathBuf, CopyReport)> {
    let target = cluster.folder.path().join(name);
    let mut sink = TreeSink::new(&cluster.data, &target)?;
    let report = copy_stopped(&cluster.data, &mut sink, &Control::silent())?;
    Ok((target, report))
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_running_and_a_crashed_cluster_are_refused_and_untouched() {
    let Some(cluster) = Cluster::new("a_running_and_a_crashed_cluster_are_refused_and_untouched", &[]) else { return };
    let server = cluster.start(&[]);
    let error = copy(&cluster, "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capture);
    assert!(error.message().contains("in production"), "{error}");
    server.crash();
    let error = copy(&cluster, "b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capture);
    let server = cluster.start(&[]);
    server.stop();
    copy(&cluster, "c").unwrap();
}

#[test]
fn a_server_that_works_in_the_folder_is_found_although_pg_control_says_shut_down() {
    let Some(cluster) = Cluster::new("a_server_that_works_in_the_folder_is_found_although_pg_control_says_shut_down", &[]) else { return };
    let stopped = fs::read(&cluster.data.join("global/pg_control")).unwrap();
    let mut server = cluster.start(&[]);
    let pid = server.value("select pg_backend_pid()");
    fs::replace(&cluster.data.join("global/pg_control"), &stopped, 0o600, &fs::Syncs::new()).unwrap();
    let error = copy(&cluster, "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capture);
    assert!(error.message().contains(&pid), "{error}");
    assert_eq!(prepare_copy(&cluster.data, true).unwrap_err().kind(), ErrorKind::Busy);
    assert!(cluster.data.join("postmaster.pid").exists());
}

#[test]
fn row_18_the_copy_has_the_modes_of_a_source_with_group_access() {
    let Some(cluster) = Cluster::new("row_18_the_copy_has_the_modes_of_a_source_with_group_access", &["--allow-group-access"]) else {
        return;
    };
    let (target, _) = copy(&cluster, "copy").unwrap();
    for path in ["", "base", "base/1", "pg_wal", "global/pg_control", "PG_VERSION", "pg_replslot", "pg_wal/archive_status"] {
        assert_eq!(mode(&target.join(path)), mode(&cluster.data.join(path)), "{path:?}");
    }
    assert_eq!((mode(&target), mode(&target.join("PG_VERSION"))), (0o750, 0o640));
    prepare_copy(&target, false).unwrap();
    Server::start(&cluster.installation, &target, &[]).unwrap().stop();
}

#[test]
fn row_23_a_tablespace_becomes_a_real_folder_and_two_copies_share_nothing() {
    let Some(cluster) = Cluster::new("row_23_a_tablespace_becomes_a_real_folder_and_two_copies_share_nothing", &[]) else { return };
    let outside = cluster.folder.path().join("outside");
    fs::make_folder(&outside, 0o700).unwrap();
    let mut server = cluster.start(&[]);
    server.run(&format!("create tablespace far location '{}'", outside.display()));
    server.run("create table t tablespace far as select generate_series(1, 1000) a");
    server.stop();

    let (one, _) = copy(&cluster, "one").unwrap();
    let (other, _) = copy(&cluster, "other").unwrap();
    for target in [&one, &other] {
        prepare_copy(target, false).unwrap();
        let spaces = fs::names(&target.join("pg_tblspc")).unwrap();
        assert_eq!(spaces.len(), 1);
        assert!(std::fs::symlink_metadata(target.join("pg_tblspc").join(&spaces[0])).unwrap().is_dir());
    }
    let settings = copy_settings(&one, cluster.installation.version).unwrap();
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut server = Server::start(&cluster.installation, &one, &settings).unwrap();
    assert_eq!(server.value("select count(*) from t"), "1000");
    server.run("delete from t");
    server.run("vacuum t");
    server.run("create table u tablespace far as select 1 a");
    server.crash();
    let mut server = Server::start(&cluster.installation, &one, &settings).unwrap();
    assert_eq!(server.value("select count(*) from u"), "1", "crash recovery with a real folder as tablespace");
    server.stop();
    for data in [&other, &cluster.data] {
        let mut server = Server::start(&cluster.installation, data, &settings).unwrap();
        assert_eq!(server.value("select count(*) from t"), "1000");
        server.stop();
    }
}

#[test]
fn row_25_pg_wal_as_a_link_becomes_a_real_folder() {
    let folder = tempfile::tempdir().unwrap();
    let wal = folder.path().join("wal");
    let argument = format!("--waldir={}", wal.display());
    let Some(cluster) = Cluster::new("row_25_pg_wal_as_a_link_becomes_a_real_folder", &[&argument]) else { return };
    assert!(std::fs::symlink_metadata(cluster.data.join("pg_wal")).unwrap().is_symlink());
    let (target, _) = copy(&cluster, "copy").unwrap();
    assert!(std::fs::symlink_metadata(target.join("pg_wal")).unwrap().is_dir());
    prepare_copy(&target, false).unwrap();
    let mut server = Server::start(&cluster.installation, &target, &[]).unwrap();
    server.run("create table t (a int)");
    server.stop();
    Server::start(&cluster.installation, &cluster.data, &[]).unwrap().stop();
}

#[test]
fn row_27_and_44_unlogged_rows_and_prepared_transactions_are_kept_and_scratch_is_not() {
    let Some(cluster) = Cluster::new("row_27_and_44_unlogged_rows_and_prepared_transactions_are_kept_and_scratch_is_not", &[]) else {
        return;
    };
    let settings = ["max_prepared_transactions=5"];
    let mut server = cluster.start(&settings);
    server.run("create unlogged table u as select generate_series(1, 10) a");
    server.run("create table t (a int)");
    server.run("begin; insert into t values (1); prepare transaction 'two phases'");
    server.stop();
    let scratch = [
        "base/1/t3_99999",
        "base/pgsql_tmp/pgsql_tmp1.0",
        "pg_stat_tmp/global.tmp",
        "pg_notify/0001",
        "core.1",
        "current_logfiles",
        "base/1/pg_internal.init",
    ];
    for path in scratch {
        fs::make_folder(cluster.data.join(path).parent().unwrap(), 0o700).unwrap();
        fs::create_new(&cluster.data.join(path), 0o600)
            .map(drop)
            .or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
            .unwrap();
    }
    let (target, report) = copy(&cluster, "copy").unwrap();
    assert_eq!((report.mode.as_str(), report.prepared), ("stopped", vec!["two phases".to_owned()]));
    for path in scratch.into_iter().chain(["postmaster.pid", "postmaster.opts"]) {
        assert!(!target.join(path).exists(), "{path}");
    }
    for folder in ["pg_stat_tmp", "pg_notify", "pg_dynshmem", "pg_serial", "pg_snapshots", "pg_subtrans", "pg_replslot", "pg_tblspc"] {
        assert!(fs::names(&target.join(folder)).unwrap().is_empty(), "{folder}");
    }
    let mut server = Server::start(&cluster.installation, &target, &settings).unwrap();
    assert_eq!(server.value("select count(*) from u"), "10");
    assert_eq!(server.value("select gid from pg_prepared_xacts"), "two phases");
    server.run("commit prepared 'two phases'");
    assert_eq!(server.value("select count(*) from t"), "1");
    server.stop();
}

#[test]
fn row_21_an_interrupted_backup_is_refused_by_name() {
    let Some(cluster) = Cluster::new("row_21_an_interrupted_backup_is_refused_by_name", &[]) else { return };
    fs::create_new(&cluster.data.join("backup_label"), 0o600).unwrap();
    let error = copy(&cluster, "copy").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capture);
    assert!(error.message().contains("backup_label"), "{error}");
}

#[test]
fn row_22_a_copy_that_ends_early_has_no_pg_control_and_cannot_start() {
    struct Stops<'a>(TreeSink, &'a CancelToken);
    impl crate::postgres::Sink for Stops<'_> {
        fn folder(&mut self, path: &Path, mode: u32) -> crate::Result<()> {
            self.0.folder(path, mode)
        }
        fn files(&mut self, files: &[crate::postgres::SourceFile], control: &Control) -> crate::Result<()> {
            self.0.files(files, control)?;
            self.1.cancel();
            Ok(())
        }
        fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> crate::Result<()> {
            self.0.bytes(path, mode, bytes)
        }
        fn copied(&self) -> u64 {
            self.0.copied()
        }
    }
    let Some(cluster) = Cluster::new("row_22_a_copy_that_ends_early_has_no_pg_control_and_cannot_start", &[]) else { return };
    let target = cluster.folder.path().join("copy");
    let token = CancelToken::new();
    let mut sink = Stops(TreeSink::new(&cluster.data, &target).unwrap(), &token);
    let error = copy_stopped(&cluster.data, &mut sink, &Control::new(token.clone(), None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!target.join("global/pg_control").exists());
    assert!(Server::start(&cluster.installation, &target, &[]).is_err());
}
