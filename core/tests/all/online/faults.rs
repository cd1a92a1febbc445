//! Servers that cannot be copied the usual way.

use std::path::PathBuf;

use forklift::postgres::{StopMode, copy_online};
use forklift::{Control, ErrorKind};

use super::hooked::Hooked;
use crate::copying::{Source, assert_nothing_left};
use crate::support::wait_for;

/// Writes so much, with checkpoints, that the server removes the segment it was in, at the pace at which the copy keeps WAL aside.
fn churn(source: &Source) {
    let first = source.data().join("pg_wal").join(source.value("SELECT pg_walfile_name(pg_current_wal_lsn())"));
    let mut sql = source.sql();
    wait_for("the server to remove WAL", || {
        let segment = sql.value("SELECT pg_walfile_name(pg_current_wal_insert_lsn())").unwrap();
        sql.run("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 1000)").unwrap();
        sql.run("SELECT pg_switch_wal()").unwrap();
        sql.run("CHECKPOINT").unwrap();
        let is_whole = |spool: PathBuf| std::fs::metadata(spool.join(&segment)).is_ok_and(|metadata| metadata.len() == 16 << 20);
        wait_for("the segment to be kept", || spools(source).into_iter().all(is_whole));
        !first.exists()
    });
}

/// Folders in which copies keep WAL aside.
fn spools(source: &Source) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(source.cluster.root()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".forklift-wal-")).collect()
}

#[test]
fn without_a_slot_wal_is_copied_as_it_is_written() {
    for setting in [("max_replication_slots", "1"), ("max_slot_wal_keep_size", "1MB")] {
        let source = Source::start(&[setting, ("max_wal_size", "32MB"), ("min_wal_size", "32MB")]);
        source.sql().run("CREATE TABLE t (id bigserial, v text); SELECT pg_create_physical_replication_slot('other')").unwrap();
        // What a killed process has left is removed.
        let stale = source.cluster.root().join(".forklift-wal-stale");
        std::fs::create_dir(&stale).unwrap();
        std::fs::File::create(stale.join("lock")).unwrap();
        let (mut copy, report) = source.copy_through(|sink| {
            let mut hook = || {
                assert_eq!(spools(&source).len(), 1);
                churn(&source);
            };
            copy_online(source.server(), &mut Hooked { inner: sink, hook: &mut hook }, &Control::silent())
        });
        let report = report.unwrap();
        source.sql().run("SELECT pg_drop_replication_slot('other')").unwrap();
        assert_nothing_left(&source);
        copy.start_copy(&report);
        assert_eq!(copy.value("SELECT count(*) FROM t"), source.value("SELECT count(*) FROM t"));
        copy.sql().run("INSERT INTO t (v) VALUES ('next')").unwrap();
    }
}

#[test]
fn with_a_slot_the_server_keeps_wal_for_the_copy() {
    let source = Source::start(&[("max_wal_size", "32MB"), ("min_wal_size", "32MB")]);
    source.sql().run("CREATE TABLE t (id bigserial, v text)").unwrap();
    let (mut copy, report) = source.copy_through(|sink| {
        let mut hook = || {
            assert_eq!(spools(&source).len(), 0);
            let first = source.data().join("pg_wal").join(source.value("SELECT pg_walfile_name(pg_current_wal_lsn())"));
            for _ in 0..6 {
                source.sql().run("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 1000)").unwrap();
                source.sql().run("SELECT pg_switch_wal()").unwrap();
                source.sql().run("CHECKPOINT").unwrap();
            }
            assert!(first.exists());
        };
        copy_online(source.server(), &mut Hooked { inner: sink, hook: &mut hook }, &Control::silent())
    });
    copy.start_copy(&report.unwrap());
    assert_eq!(copy.value("SELECT count(*) FROM t"), "6000");
}

#[test]
fn somebody_who_ends_our_sessions_fails_the_copy_by_name() {
    let source = Source::start(&[]);
    let (copy, failed) = source.copy_through(|sink| {
        let mut hook = || {
            let others =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forklift' AND pid <> pg_backend_pid()";
            source.sql().run(others).unwrap();
        };
        copy_online(source.server(), &mut Hooked { inner: sink, hook: &mut hook }, &Control::silent())
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Capture);
    assert!(!copy.data().join("global/pg_control").exists());
    assert_nothing_left(&source);
    source.copy();
}

#[test]
fn a_server_without_wal_for_it_is_refused_by_name() {
    let source = Source::start(&[("wal_level", "minimal"), ("max_wal_senders", "0")]);
    let refused = source.copy_through(|sink| copy_online(source.server(), sink, &Control::silent())).1.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("wal_level = minimal"), "{refused}");
    assert!(refused.hint_text().unwrap().contains("--mode stopped"), "{refused:?}");
    assert_nothing_left(&source);
}

#[test]
fn a_failing_archiver_holds_nothing_up() {
    let source = Source::start(&[("archive_mode", "on"), ("archive_command", "/bin/false")]);
    assert_eq!(source.value("SHOW archive_mode"), "on");
    let (mut copy, report) = source.copy();
    copy.start_copy(&report);
}

#[test]
fn timeouts_of_the_configuration_do_not_end_the_copy() {
    let source = Source::start(&[("idle_in_transaction_session_timeout", "300"), ("statement_timeout", "300")]);
    let major = source.sql().server_version().unwrap() / 10_000;
    if major >= 14 {
        source.sql().run("ALTER SYSTEM SET idle_session_timeout = 300").unwrap();
        source.sql().run("SELECT pg_reload_conf()").unwrap();
    }
    let (mut copy, report) = source.copy_through(|sink| {
        let mut hook = || {
            let ages = "SELECT min(extract(epoch FROM clock_timestamp() - state_change)) > 0.5 FROM pg_stat_activity \
                        WHERE application_name = 'forklift' AND state LIKE 'idle%' AND pid <> pg_backend_pid()";
            wait_for("the sessions of the copy to have been idle", || source.value(ages) == "t");
        };
        copy_online(source.server(), &mut Hooked { inner: sink, hook: &mut hook }, &Control::silent())
    });
    copy.start_copy(&report.unwrap());
}

#[test]
fn a_server_without_the_database_postgres_and_on_another_timeline_is_copied() {
    let mut source = Source::start(&[("restore_command", "/bin/false")]);
    source.stop_server(StopMode::Fast);
    std::fs::File::create(source.data().join("recovery.signal")).unwrap();
    source.cluster.spec.run_as.give(source.data()).unwrap();
    source.start_server(|_| Ok(()));
    wait_for("recovery to end", || source.value("SELECT pg_is_in_recovery()") == "f");
    source.sql().run("CREATE TABLE t (); SELECT pg_switch_wal()").unwrap();
    source.sql_in("app").run("DROP DATABASE postgres").unwrap();
    let (mut copy, report) = source.copy();
    assert!(copy.data().join("pg_wal/00000002.history").exists());
    copy.start_copy(&report);
    assert_eq!(copy.value("SELECT timeline_id > 1 FROM pg_control_checkpoint()"), "t");
}
