//! Forks of running and stopped branches, and what stays off in them.

use std::process::Stdio;

use forklift::branch::{CreateOptions, ForkFrom, ForkOptions, Origin};
use forklift::{Control, ErrorKind};

use super::super::support::wait_for;
use super::{Place, client, program, rows, run, silent, start, stop, value};

fn of(name: &str) -> ForkFrom {
    ForkFrom::Branch(name.to_owned())
}

#[test]
fn a_fork_of_a_busy_server_is_consistent_and_cuts_nobody() {
    let place = Place::new();
    let source = place.running("main", "create table seen (n bigserial primary key, at timestamptz default now())");
    let made = program(&source, "pgbench").args(["-i", "-q", "-s", "1"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let held = client(&source);
    let load =
        program(&source, "pgbench").args(["-c", "4", "-T", "4", "-n"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the load", || value(&source, "select count(*) > 20 from pgbench_history") == "t");
    let (fork, report) = place.branches.fork("fork", &of("main"), &ForkOptions::default(), &silent()).unwrap();
    assert_eq!(report.mode, "online");
    assert!(report.parts_ms.iter().any(|(name, _)| name == "start"), "{report:?}");
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!held.is_closed());
    start(&fork);
    let sums = rows(
        &fork,
        "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), \
         (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history), \
         (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history), \
         (select count(*) > 20 from pgbench_history)",
    );
    assert_eq!(sums, ["t|t|t|t"]);
    run(&fork, "insert into seen default values; drop table pgbench_history");
    assert_eq!(value(&source, "select to_regclass('pgbench_history') is not null"), "t");
    assert_eq!(value(&source, "select count(*) from pg_replication_slots"), "0");
    assert_ne!(fork.credentials().unwrap().url.password, source.credentials().unwrap().url.password);
}

#[test]
fn a_fork_of_a_stopped_branch_and_a_fork_of_that_keep_rows_roles_and_extensions() {
    let place = Place::new();
    let main = place.running(
        "main",
        "create role reader login; create extension pg_trgm; create unlogged table quick as select 1 as x; \
         create table t (id serial primary key); insert into t default values; insert into t default values",
    );
    stop(&main);
    let (first, report) =
        place.branches.fork("first", &of("main"), &ForkOptions { tcp: true, ..ForkOptions::default() }, &silent()).unwrap();
    assert_eq!((report.mode.as_str(), report.unlogged.len()), ("stopped", 0));
    start(&first);
    run(&first, "insert into t default values");
    let (second, report) = place.branches.fork("second", &of("first"), &ForkOptions::default(), &silent()).unwrap();
    assert_eq!(report.mode, "online");
    assert_eq!(report.unlogged, ["app.public.quick"]);
    start(&second);
    assert_eq!(rows(&second, "select max(id), count(*), 'word' % 'word', to_regrole('reader') from t"), ["3|3|t|reader"]);
    assert_eq!(value(&first, "select count(*) from quick"), "1");
    assert_eq!(value(&second, "select count(*) from quick"), "0");
    assert_eq!(value(&second, "insert into t default values returning id"), "4");
    assert_eq!(second.info().unwrap().parent.as_deref(), Some("first"));
    start(&main);
    assert_eq!(value(&main, "select count(*) from t"), "2");
}

#[test]
fn archiving_slots_subscriptions_and_prepared_transactions_of_the_source() {
    let place = Place::new();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&archive, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let settings =
        [("wal_level", "logical".to_owned()), ("max_prepared_transactions", "5".to_owned()), ("max_connections", "120".to_owned())];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let options = CreateOptions { settings, ..CreateOptions::default() };
    let main = place.branches.create("main", &Origin::Empty, &options, &silent()).unwrap();
    start(&main);
    // In its files, which the fork has too.
    run(&main, "alter system set archive_mode = on");
    run(&main, &format!("alter system set archive_command = 'cp %p {}/%f-$PPID'", archive.display()));
    stop(&main);
    start(&main);
    run(&main, "create table t (x int); select pg_create_physical_replication_slot('standby', true)");
    run(&main, "select pg_create_logical_replication_slot('decoder', 'pgoutput')");
    run(&main, "create subscription sub connection 'host=/nonexistent dbname=x' publication p with (connect = false, slot_name = none)");
    run(&main, "alter subscription sub set (slot_name = 'sub'); alter subscription sub enable");
    run(&main, "begin; insert into t values (1); prepare transaction 'held'");

    let (fork, report) = place.branches.fork("fork", &of("main"), &ForkOptions::default(), &silent()).unwrap();
    for off in ["archive_mode", "archive_command", "replication slot standby", "replication slot decoder", "subscription sub"] {
        assert!(report.switched_off.iter().any(|name| name == off), "{off}: {:?}", report.switched_off);
    }
    assert_eq!(report.prepared.len(), 1, "{report:?}");
    start(&fork);
    let shown = "select current_setting('archive_mode'), current_setting('archive_command'), current_setting('max_logical_replication_workers'), \
                 current_setting('max_connections'), (select count(*) from pg_replication_slots), (select count(*) from pg_stat_activity where backend_type like 'logical%')";
    assert_eq!(rows(&fork, shown), ["off|(disabled)|0|120|0|0"]);
    let files = || std::fs::read_dir(&archive).unwrap().count();
    run(&fork, "insert into t values (2); select pg_switch_wal()");
    let of_fork = value(&fork, "select pg_walfile_name(pg_current_wal_lsn())");
    assert_eq!(value(&fork, "select gid from pg_prepared_xacts"), "held");
    run(&fork, "rollback prepared 'held'");
    run(&fork, "drop table t");
    stop(&fork);
    let in_fork = fork.info().unwrap().data.join("pg_wal/archive_status");
    assert_eq!(std::fs::read_dir(in_fork).unwrap().count(), 0, "nothing waits for the archive in the fork, which is at {of_fork}");
    // The source goes on archiving, and still has all of it.
    let before = files();
    run(&main, "insert into t values (3)");
    run(&main, "select pg_switch_wal()");
    wait_for("the source's archive", || files() > before);
    assert_eq!(rows(&main, "select (select count(*) from pg_replication_slots), (select count(*) from pg_prepared_xacts)"), ["2|1"]);

    let error = place.branches.fork("bad", &of("main"), &set("archive_command", "false"), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("archive_command"), "{error}");
    let error = place.branches.fork("bad", &of("main"), &set("max_connections", "20"), &silent()).unwrap_err();
    assert!(error.message().contains("max_connections=20") && error.message().contains("120"), "{error}");
    assert_eq!(place.names(), ["fork", "main"]);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

fn set(name: &str, value: &str) -> ForkOptions {
    ForkOptions { settings: vec![(name.to_owned(), value.to_owned())], ..ForkOptions::default() }
}

#[test]
fn a_fork_of_what_is_not_there_or_cancelled_leaves_nothing() {
    let place = Place::new();
    place.empty("main");
    let error = place.branches.fork("fork", &of("nope"), &ForkOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("main"), "lists what there is: {error}");
    let error = place.branches.fork("fork", &ForkFrom::Checkpoint("nope".to_owned()), &ForkOptions::default(), &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let control = Control::silent();
    control.cancel().cancel();
    let error = place.branches.fork("fork", &of("main"), &ForkOptions::default(), &control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!((place.names(), place.leftovers()), (vec!["main".to_owned()], Vec::new()));
}
