//! Copies of a server that eight clients write to.

use std::process::Stdio;

use forklift::postgres::{CopyReport, InitOptions};

use crate::copying::{Running, Source, assert_consistent, assert_nothing_left, beside, churn};
use crate::support::signal;

/// Copies made while the clients write.
const ROUNDS: usize = 2;

#[test]
fn copies_of_a_busy_server_are_consistent_and_no_client_notices() {
    // So little WAL is kept that a checkpoint removes what the copy still needs, unless the copy holds it.
    let settings = [("max_wal_size", "64MB"), ("min_wal_size", "32MB"), ("max_prepared_transactions", "10"), ("shared_buffers", "32MB")];
    // With page checksums.
    let source = Source::start_with(&settings, &InitOptions::default());
    let status = source.program("pgbench").args(["-i", "-q", "-s", "1"]).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    source
        .sql()
        .run(
            "CREATE TABLE filling (id bigserial PRIMARY KEY, v text); CREATE SEQUENCE still; SELECT nextval('still') FROM generate_series(1, 5); \
             CREATE UNLOGGED TABLE scratch (id bigserial PRIMARY KEY); INSERT INTO scratch SELECT FROM generate_series(1, 100); \
             CREATE EXTENSION amcheck; CREATE TABLE kept (id int)",
        )
        .unwrap();
    source.sql().run("BEGIN; INSERT INTO kept VALUES (1); PREPARE TRANSACTION 'held'").unwrap();
    source.sql().run("CREATE DATABASE \"we \"\"ird\"").unwrap();
    source.sql_in("we \"ird").run("CREATE UNLOGGED TABLE \"Odd\" (); CREATE SEQUENCE s; SELECT nextval('s')").unwrap();
    source.sql().run("CREATE DATABASE closed ALLOW_CONNECTIONS false").unwrap();

    let script = source.cluster.root().join("fill.sql");
    std::fs::write(&script, "INSERT INTO filling (v) VALUES (repeat('x', 200));\n").unwrap();
    let mut pgbench = source.program("pgbench");
    pgbench
        .args(["-n", "-c", "8", "-j", "2", "-T", "600", "-R", "400", "-b", "tpcb-like@1"])
        .arg("-f")
        .arg(script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut clients = Running(pgbench.spawn().unwrap());

    let copies = beside(churn(|| source.sql(), &source.cluster.root().join("passing")), || {
        let mut copies = Vec::new();
        while copies.len() < ROUNDS {
            if clients.0.try_wait().unwrap().is_some() {
                let mut text = String::new();
                std::io::Read::read_to_string(&mut clients.0.stderr.take().unwrap(), &mut text).unwrap();
                panic!("after {} copies the clients ended: {text}", copies.len());
            }
            let (copy, report) = source.copy();
            let handed_out = source.value("SELECT last_value FROM filling_id_seq").parse().unwrap();
            copies.push((copy, report, handed_out));
        }
        // Ends it as its own timer does.
        signal(clients.0.id(), libc::SIGALRM);
        assert!(clients.0.wait().unwrap().success());
        copies
    });
    assert_nothing_left(&source);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut clients.0.stdout.take().unwrap(), &mut text).unwrap();
    // Before 15 it does not count them: its exit code tells of clients that ended.
    assert!(!text.contains("number of failed transactions") || text.contains("number of failed transactions: 0 "), "{text}");

    for (mut copy, report, handed_out) in copies {
        copy.start_copy(&report);
        check(&copy, &report, handed_out);
    }
}

fn check(copy: &Source, report: &CopyReport, handed_out: i64) {
    assert_consistent(&mut copy.sql());
    assert_ne!(copy.value("SELECT count(*) FROM pgbench_history"), "0");

    // The next value is behind no committed row, and not past what the source handed out.
    let next: i64 = copy.value("INSERT INTO filling (v) VALUES ('next') RETURNING id").parse().unwrap();
    assert!(next <= handed_out + 1, "{next} after {handed_out}");
    copy.sql().run("INSERT INTO scratch DEFAULT VALUES").unwrap();
    assert_eq!(copy.value("SELECT concat(last_value, is_called) FROM still"), "5t");
    assert_eq!(copy.value("SELECT count(*) FROM scratch"), "1");
    for name in ["app.public.scratch", "we \"ird.public.Odd"] {
        assert!(report.unlogged.iter().any(|unlogged| unlogged == name), "{:?}", report.unlogged);
    }
    assert_eq!(report.prepared, ["app.held"]);
    copy.sql().run("COMMIT PREPARED 'held'").unwrap();
    assert_eq!(copy.value("SELECT count(*) FROM kept"), "1");
}

#[test]
fn ten_copies_in_a_row_hold_what_was_there_at_their_time() {
    // One slot: each copy has to give it back.
    let source = Source::start(&[("max_replication_slots", "1")]);
    source.sql().run("CREATE TABLE t (id serial PRIMARY KEY, v text)").unwrap();
    let copies: Vec<_> = (1..=10)
        .map(|round| {
            source.sql().run("INSERT INTO t (v) VALUES ('x'); UPDATE t SET v = v || 'x'").unwrap();
            (round, source.copy())
        })
        .collect();
    for (round, (mut copy, report)) in copies {
        copy.start_copy(&report);
        assert_eq!(copy.value("SELECT concat(count(*), ' ', max(length(v))) FROM t"), format!("{round} {}", round + 1));
        copy.sql().run("INSERT INTO t (v) VALUES ('next')").unwrap();
        assert_eq!(copy.value("SELECT max(id) FROM t"), (round + 1).to_string());
    }
}
