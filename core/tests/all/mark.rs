//! The mark: one test per way in which rows do and do not change.

use crate::copying::Source;
use forklift::postgres::{Mark, StopMode, mark_running, mark_stopped};

fn mark(cluster: &Source) -> Mark {
    mark_running(cluster.server(), None).unwrap()
}

/// Whether the mark taken before `body` is the same as the one taken after, as the next capture would take it.
fn unchanged_by(cluster: &Source, body: impl FnOnce()) -> bool {
    let before = mark(cluster);
    body();
    let cheap = mark_running(cluster.server(), Some(&before)).unwrap();
    let full = mark(cluster);
    let same = before.same(&cheap);
    assert!(!same || before.same(&full), "the cheap way missed what the full one sees");
    assert!(same || !before.same(&full), "the cheap way sees more than the full one");
    same
}

fn prepared() -> Source {
    let cluster = Source::start(&[("max_prepared_transactions", "10"), ("autovacuum", "off")]);
    cluster
        .sql()
        .run("CREATE TABLE t (id bigserial PRIMARY KEY, v text); INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 100); CREATE SEQUENCE s; SELECT nextval('s')")
        .unwrap();
    // Otherwise a first reader sets hint bits.
    cluster.sql().run("VACUUM (FREEZE)").unwrap();
    cluster
}

#[test]
fn every_kind_of_write_changes_the_mark() {
    let cluster = prepared();
    let mut sql = cluster.sql();
    for statement in [
        "INSERT INTO t (v) VALUES ('y')",
        "UPDATE t SET v = 'z' WHERE id = 1",
        "CREATE TABLE other ()",
        "SELECT setval('s', 500)",
        "ALTER SYSTEM SET work_mem = '5MB'",
        "ALTER ROLE app SET work_mem = '6MB'",
        "SELECT pg_create_physical_replication_slot('kept')",
        "SELECT pg_drop_replication_slot('kept')",
        "COMMENT ON TABLE t IS 'x'",
        "CREATE DATABASE other",
        "CREATE UNLOGGED TABLE u (id int)",
        "INSERT INTO u VALUES (1)",
        "SELECT lo_from_bytea(0, 'x')",
    ] {
        let changed = !unchanged_by(&cluster, || sql.run(statement).unwrap());
        assert!(changed, "{statement}");
    }
}

#[test]
fn prepared_transactions_and_older_ones_change_the_mark() {
    let cluster = prepared();
    let mut sql = cluster.sql();
    sql.run("BEGIN; INSERT INTO t (v) VALUES ('p'); PREPARE TRANSACTION 'one'").unwrap();
    assert!(!unchanged_by(&cluster, || sql.run("COMMIT PREPARED 'one'").unwrap()));
    sql.run("BEGIN; INSERT INTO t (v) VALUES ('p'); PREPARE TRANSACTION 'two'").unwrap();
    assert!(!unchanged_by(&cluster, || sql.run("ROLLBACK PREPARED 'two'").unwrap()));
    assert!(!unchanged_by(&cluster, || sql.run("BEGIN; INSERT INTO t (v) VALUES ('q'); PREPARE TRANSACTION 'three'").unwrap()));
    sql.run("ROLLBACK PREPARED 'three'").unwrap();

    sql.run("BEGIN; INSERT INTO t (v) VALUES ('older')").unwrap();
    assert!(unchanged_by(&cluster, || ()), "an open transaction is no change");
    // One that began later ends before the mark: the next transaction id stands still from here on.
    cluster.sql().run("INSERT INTO t (v) VALUES ('later')").unwrap();
    assert!(!unchanged_by(&cluster, || sql.run("COMMIT").unwrap()));
}

#[test]
fn every_nextval_changes_the_mark_with_wal_or_without() {
    let cluster = prepared();
    let mut sql = cluster.sql();
    let mut silent = 0;
    for _ in 0..70 {
        let position = |sql: &mut forklift::postgres::Sql| sql.value("SELECT pg_current_wal_insert_lsn()").unwrap();
        let before = position(&mut sql);
        assert!(!unchanged_by(&cluster, || sql.run("SELECT nextval('s')").unwrap()));
        silent += u32::from(before == position(&mut sql));
    }
    assert!(silent > 60, "only {silent} wrote no WAL");
    if sql.server_version().unwrap() >= 150_000 {
        sql.run("CREATE UNLOGGED SEQUENCE u").unwrap();
        assert!(!unchanged_by(&cluster, || sql.run("SELECT nextval('u')").unwrap()));
        assert!(!unchanged_by(&cluster, || sql.run("SELECT setval('u', 1)").unwrap()));
    }
    // A value taken by a transaction that is still open, with WAL.
    sql.run("CREATE SEQUENCE open").unwrap();
    assert!(!unchanged_by(&cluster, || sql.run("BEGIN; SELECT nextval('open')").unwrap()));
}

#[test]
fn what_writes_no_rows_leaves_the_mark() {
    let cluster = prepared();
    let mut sql = cluster.sql();
    for statement in [
        "SELECT count(*) FROM t",
        "LISTEN news",
        "SELECT pg_advisory_lock(1)",
        "SELECT last_value FROM s",
        "BEGIN; SELECT * FROM t; ROLLBACK",
        "CHECKPOINT",
        "SELECT pg_switch_wal()",
        "SET work_mem = '7MB'",
        "SELECT pg_create_physical_replication_slot('passing', true, true)",
    ] {
        assert!(unchanged_by(&cluster, || sql.run(statement).unwrap()), "{statement}");
    }
    assert!(unchanged_by(&cluster, || drop(cluster.copy())), "an online copy");
}

#[test]
fn doubt_is_difference() {
    let mut cluster = prepared();
    let before = mark(&cluster);
    assert!(before.same(&before));
    let text = serde_json::to_string(&before).unwrap();
    assert!(serde_json::from_str::<Mark>(&text).unwrap().same(&before));
    assert!(!before.same(&Mark { control: None, running: None }));
    assert!(!Mark { control: None, running: None }.same(&Mark { control: None, running: None }));
    assert!(!before.same(&Mark { control: None, running: Some(serde_json::json!({"snapshot": "1:1:"})) }));

    // A mark whose sequences could not be read is the same as none, itself included.
    let mut locker = cluster.sql();
    locker.run("BEGIN; DROP SEQUENCE s").unwrap();
    let locked = mark(&cluster);
    assert!(!locked.same(&locked) && !before.same(&locked));
    locker.run("ROLLBACK").unwrap();
    drop(locker);

    // Another start of the server, after which transaction ids could be spent anew.
    let before = mark(&cluster);
    cluster.stop_server(StopMode::Fast);
    let stopped = mark_stopped(cluster.data()).unwrap();
    assert!(stopped.same(&mark_stopped(cluster.data()).unwrap()));
    assert!(!stopped.same(&before));
    cluster.start_server(|_| Ok(()));
    assert!(!before.same(&mark(&cluster)));
    cluster.stop_server(StopMode::Immediate);
    let crashed = mark_stopped(cluster.data()).unwrap();
    assert!(!crashed.same(&crashed));
}
