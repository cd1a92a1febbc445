//! Captures of a project whose database eight clients write to.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use forklift::postgres::Sql;

use super::*;
use crate::copying::{Running, assert_consistent, beside, churn};
use crate::support::installation;

/// Captures while the clients write: enough that most files of a later one are known from an earlier one.
const CAPTURES: usize = 10;

/// What was there when a capture began and when it had ended: all but the checkpoint itself.
struct Taken {
    report: CaptureReport,
    rows_before: i64,
    rows_after: i64,
    /// The last value that the clients were given by then.
    handed_out: i64,
}

#[test]
fn captures_under_eight_writers_drop_no_client_and_each_restores_whole() {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    fill(&branch);

    let mut clients = Running(pgbench(&world, &branch));
    let taken = beside(churn(|| superuser(&branch), &world.path("passing")), || {
        let mut sql = superuser(&branch);
        let mut number = |statement: &str| sql.value(statement).unwrap().parse::<i64>().unwrap();
        let rows = "SELECT count(*) FROM pgbench_history";
        crate::support::wait_for("the clients to write", || number(rows) > 50 && number("SELECT count(*) FROM filling") > 0);
        let mut taken = Vec::new();
        for round in 0..CAPTURES {
            write(&project.root().join("app.py"), &format!("version = {round}\n"));
            let rows_before = number(rows);
            let report = capture(&project, &format!("busy-{round}"));
            let rows_after = number(rows);
            taken.push(Taken { report, rows_before, rows_after, handed_out: number("SELECT last_value FROM filling_id_seq") });
            assert!(clients.0.try_wait().unwrap().is_none(), "the clients ended during capture {round}");
        }
        // Ends them as their own timer does.
        signal(clients.0.id(), libc::SIGALRM);
        assert!(clients.0.wait().unwrap().success(), "a client was dropped");
        taken
    });

    for one in &taken {
        assert_eq!((one.report.mode.as_str(), one.report.downtime_ms), ("online", 0));
        assert!(one.report.warnings.iter().any(|warning| warning.contains("app.public.scratch")), "{:?}", one.report.warnings);
    }
    let first = &taken[0].report;
    assert!(first.bytes_read > 39 << 20, "{first:?}");
    // Files that are known are not read, and chunks that are known are not stored, again.
    let later: Vec<_> = taken[1..].iter().map(|one| (one.report.bytes_read, one.report.bytes_new)).collect();
    assert!(later.iter().all(|(read, new)| *read < first.bytes_read && *new < first.bytes_new), "{first:?}, {later:?}");

    let mut rows = BTreeSet::new();
    for (round, one) in taken.iter().enumerate() {
        restore(&project, &one.report.name);
        assert_eq!(read(&project.root().join("app.py")), format!("version = {round}\n"));
        rows.insert(check(&branch, one));
    }
    assert!(rows.len() > CAPTURES / 2, "the clients wrote between the captures: {rows:?}");
}

/// Looks at what a restore put there, and gives how many rows the clients had written.
fn check(branch: &Branch, taken: &Taken) -> i64 {
    let mut sql = superuser(branch);
    assert_consistent(&mut sql);
    let rows = sql.value("SELECT count(*) FROM pgbench_history").unwrap().parse::<i64>().unwrap();
    assert!((taken.rows_before..=taken.rows_after).contains(&rows), "{} to {}: {rows}", taken.rows_before, taken.rows_after);
    // The next value is behind no committed row, and not past what the clients were given.
    let last = sql.value("SELECT max(id) FROM filling").unwrap().parse::<i64>().unwrap();
    let next = sql.value("INSERT INTO filling (v) VALUES ('next') RETURNING id").unwrap().parse::<i64>().unwrap();
    assert!(last < next && next <= taken.handed_out + 1, "{last}, {next}, {}", taken.handed_out);
    assert_eq!(sql.value("SELECT concat(last_value, is_called) FROM still").unwrap(), "5t", "nobody moved it");
    assert_eq!(sql.value("SELECT count(*) FROM scratch").unwrap(), "0");
    rows
}

/// pgbench's tables and more, on a server that keeps so little WAL that a checkpoint removes what a capture still needs.
fn fill(branch: &Branch) {
    let mut sql = superuser(branch);
    for setting in ["max_wal_size = '64MB'", "min_wal_size = '32MB'"] {
        sql.run(&format!("ALTER SYSTEM SET {setting}")).unwrap();
    }
    sql.run("SELECT pg_reload_conf()").unwrap();
    let status = program(branch, "pgbench").args(["-i", "-q", "-s", "1"]).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    sql.run("CREATE EXTENSION amcheck").unwrap();
    run(
        branch,
        "CREATE TABLE filling (id bigserial PRIMARY KEY, v text); CREATE SEQUENCE still; SELECT nextval('still') FROM generate_series(1, 5); \
         CREATE UNLOGGED TABLE scratch (id int); INSERT INTO scratch SELECT generate_series(1, 100)",
    );
}

/// Eight clients that write until they are told to end.
fn pgbench(world: &World, branch: &Branch) -> Child {
    let script = world.path("fill.sql");
    write(&script, "INSERT INTO filling (v) VALUES (repeat('x', 200));\n");
    let mut pgbench = program(branch, "pgbench");
    pgbench.args(["-n", "-c", "8", "-j", "2", "-T", "600", "-R", "200", "-b", "tpcb-like@1", "-f"]).arg(script);
    pgbench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn superuser(branch: &Branch) -> Sql {
    let mut sql = branch.server().unwrap().unwrap().connect("app").unwrap();
    sql.run("SET search_path = public").unwrap();
    sql
}

/// A client program of the installation, as the project's user.
fn program(branch: &Branch, name: &str) -> Command {
    let credentials = branch.credentials().unwrap();
    let mut command = Command::new(installation().program(name).unwrap());
    command
        .env("PGHOST", &branch.record().address.public)
        .env("PGUSER", credentials.url.name)
        .env("PGPASSWORD", credentials.url.password)
        .env("PGDATABASE", credentials.database)
        .stdin(Stdio::null());
    command
}
