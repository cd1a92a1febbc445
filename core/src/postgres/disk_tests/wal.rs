use std::path::Path;

use super::testing::{Cluster, Server};
use crate::ErrorKind;
use crate::postgres::needed_segments;
use crate::sys::fs;

const SEGMENT: u64 = 1 << 20;
const QUIET: &[&str] = &["autovacuum=off", "checkpoint_timeout=1h", "bgwriter_delay=10s", "max_wal_size=64MB"];

fn settings<'a>(more: &[&'a str]) -> Vec<&'a str> {
    QUIET.iter().copied().chain(more.iter().copied()).collect()
}

/// Fills WAL until `left` bytes of a segment are left for the next record, which is the shutdown checkpoint's.
fn fill_to(server: &mut Server, left: u64) {
    let lsn = |server: &mut Server| server.value("select pg_current_wal_insert_lsn() - '0/0'").parse::<u64>().unwrap();
    let emit = |server: &mut Server, bytes: u64| server.run(&format!("select pg_logical_emit_message(false, 'x', repeat('y', {bytes}))"));
    let page = 8192;
    let start = lsn(server);
    let end = (start / SEGMENT + 2) * SEGMENT;
    while lsn(server) < end - page + 24 {
        emit(server, 1000);
    }
    let before = lsn(server);
    emit(server, 300);
    let cost = lsn(server) - before;
    let missing = end - left - lsn(server);
    emit(server, 300 + missing - cost);
}

#[test]
fn a_checkpoint_record_at_and_across_the_end_of_a_segment_is_kept_to_its_last_byte() {
    let Some(cluster) =
        Cluster::new("a_checkpoint_record_at_and_across_the_end_of_a_segment_is_kept_to_its_last_byte", &["--wal-segsize=1"])
    else {
        return;
    };
    let settings = settings(&["wal_level=minimal", "max_wal_senders=0"]);
    let mut rows = 0;
    for (left, segments) in [(0, 1), (8, 2), (48, 2), (112, 2), (120, 1)] {
        let mut hit = false;
        for _ in 0..5 {
            let mut server = cluster.start(&settings);
            server.run("create table if not exists t (a int); insert into t select generate_series(1, 100)");
            rows += 100;
            fill_to(&mut server, left);
            server.stop();
            let at = cluster.control().checkpoint % SEGMENT;
            hit = if left == 0 { at == 40 } else { at == SEGMENT - left };
            if hit {
                break;
            }
        }
        assert!(hit, "{left} bytes left were not reached");
        let needed = needed_segments(&cluster.data, &cluster.control()).unwrap();
        assert_eq!(needed.len(), segments, "{left} bytes left: {needed:?}");

        let copy = cluster.copy(&format!("copy{left}"), false);
        let kept: Vec<_> = fs::names(&copy.join("pg_wal")).unwrap().into_iter().filter(|name| name.len() == 24).collect();
        assert_eq!(kept.len(), segments);
        if left == 48 {
            let trimmed = cluster.copy("trimmed", false);
            fs::remove_file(&trimmed.join("pg_wal").join(&needed[1])).unwrap();
            let log = Server::start(&cluster.installation, &trimmed, &settings).err().unwrap();
            assert!(log.contains("could not locate a valid checkpoint record"), "{log}");
        }
        let mut server = Server::start(&cluster.installation, &copy, &settings).unwrap();
        assert_eq!(server.value("select count(*) from t"), rows.to_string());
        server.run("insert into t values (0)");
        server.stop();
    }
}

#[test]
fn wal_that_slots_hold_is_kept_and_they_can_still_be_read() {
    let Some(cluster) = Cluster::new("wal_that_slots_hold_is_kept_and_they_can_still_be_read", &["--wal-segsize=1"]) else { return };
    let settings = settings(&["wal_level=logical", "max_replication_slots=5"]);
    let mut server = cluster.start(&settings);
    server.run("create table t (a int)");
    server.run("select pg_create_logical_replication_slot('logical', 'test_decoding')");
    server.run("select pg_create_physical_replication_slot('physical', true)");
    server.run("select pg_create_physical_replication_slot('holds_nothing', false)");
    for turn in 0..4 {
        server.run(&format!("insert into t values ({turn})"));
        server.run("select pg_switch_wal()");
    }
    server.run("checkpoint");
    server.stop();

    let control = cluster.control();
    let needed = needed_segments(&cluster.data, &control).unwrap();
    assert!(needed.len() >= 5, "{needed:?}");
    let copy = cluster.copy("copy", true);
    let mut server = Server::start(&cluster.installation, &copy, &settings).unwrap();
    assert_eq!(server.value("select count(*) from pg_logical_slot_get_changes('logical', null, null) where data like '%INSERT%'"), "4");
    assert_eq!(server.value("select wal_status from pg_replication_slots where slot_name = 'physical'"), "reserved");
    let oldest = server.value("select pg_walfile_name(restart_lsn) from pg_replication_slots where slot_name = 'physical'");
    assert!(needed.contains(&oldest), "{oldest} in {needed:?}");
    server.stop();

    let without = cluster.copy("without", false);
    let mut server = Server::start(&cluster.installation, &without, &settings).unwrap();
    assert_eq!(server.value("select count(*) from pg_replication_slots"), "0");
    server.stop();

    damage(&cluster.data.join("pg_replslot/logical/state"));
    let error = needed_segments(&cluster.data, &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("pg_replslot/logical/state"), "{error}");
}

#[test]
fn an_invalidated_slot_holds_no_wal() {
    let Some(cluster) = Cluster::new("an_invalidated_slot_holds_no_wal", &["--wal-segsize=1"]) else { return };
    let settings = settings(&["wal_level=replica", "max_slot_wal_keep_size=1MB", "min_wal_size=2MB"]);
    let mut server = cluster.start(&settings);
    server.run("select pg_create_physical_replication_slot('lost', true)");
    server.run("create table t (a int)");
    for _ in 0..6 {
        server.run("insert into t values (1)");
        server.run("select pg_switch_wal()");
    }
    server.run("checkpoint");
    assert_eq!(server.value("select wal_status from pg_replication_slots"), "lost");
    server.stop();
    let needed = needed_segments(&cluster.data, &cluster.control()).unwrap();
    assert!(needed.len() <= 2, "{needed:?}");
}

#[test]
fn segments_that_wait_for_the_archive_are_kept_with_their_flags() {
    let Some(cluster) = Cluster::new("segments_that_wait_for_the_archive_are_kept_with_their_flags", &["--wal-segsize=1"]) else { return };
    let settings = settings(&["archive_mode=on", "archive_command=false"]);
    let mut server = cluster.start(&settings);
    server.run("create table t (a int)");
    for _ in 0..3 {
        server.run("insert into t values (1)");
        server.run("select pg_switch_wal()");
    }
    server.stop();
    let ready = |data: &Path| -> Vec<String> {
        let names = fs::names(&data.join("pg_wal/archive_status")).unwrap().into_iter().map(|name| name.into_string().unwrap());
        names.filter(|name| name.ends_with(".ready")).collect()
    };
    let waiting = ready(&cluster.data);
    assert!(waiting.len() >= 3, "{waiting:?}");
    let copy = cluster.copy("copy", false);
    assert_eq!(ready(&copy), waiting);
    for flag in waiting {
        assert!(copy.join("pg_wal").join(flag.trim_end_matches(".ready")).is_file(), "{flag}");
    }
}

#[test]
fn a_missing_segment_and_a_damaged_record_are_named() {
    let Some(cluster) = Cluster::new("a_missing_segment_and_a_damaged_record_are_named", &["--wal-segsize=1"]) else { return };
    let control = cluster.control();
    let needed = needed_segments(&cluster.data, &control).unwrap();
    let path = cluster.data.join("pg_wal").join(&needed[0]);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[usize::try_from(control.checkpoint % SEGMENT).unwrap() + 30] ^= 1;
    fs::replace(&path, &damaged, 0o600, &fs::Syncs::new()).unwrap();
    let error = needed_segments(&cluster.data, &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("checkpoint record"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = needed_segments(&cluster.data, &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&needed[0]), "{error}");
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[100] ^= 1;
    fs::replace(path, &bytes, 0o600, &fs::Syncs::new()).unwrap();
}
