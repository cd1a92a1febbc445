//! What is done to a fork before anybody can connect, and how branches are changed afterwards.

use std::path::PathBuf;

use forklift::ErrorKind;
use forklift::branch::{Branch, CreateOptions, ForkFrom, ForkOptions, Origin, ServerState, StartOptions};
use forklift::postgres::Limits;

use super::super::support::wait_for;
use super::{Place, client, rows, run, silent, start, stop, value};

fn of(name: &str) -> ForkFrom {
    ForkFrom::Branch(name.to_owned())
}

fn script(place: &Place, text: &str) -> ForkOptions {
    let path = place.path().join("after.sql");
    std::fs::write(&path, text).unwrap();
    ForkOptions { run: Some(path), ..ForkOptions::default() }
}

#[test]
fn an_sql_file_runs_before_anybody_can_connect_and_its_failure_leaves_no_branch() {
    let place = Place::new();
    let main =
        place.running("main", "create table person (id serial primary key, mail text); insert into person (mail) values ('a@example.org')");
    let sql = "update person set mail = 'masked-' || id;\ncreate database second;\n\\c second\ncreate table there (x int);\n";
    let (fork, report) = place.branches.fork("fork", &of("main"), &script(&place, sql), &silent()).unwrap();
    assert_eq!(report.ran, Some(place.path().join("after.sql")));
    assert!(report.warnings.iter().any(|warning| warning.contains("pages and WAL")), "{report:?}");
    start(&fork);
    assert_eq!(rows(&fork, "select id, mail, (select count(*) from pg_database where datname = 'second') from person"), ["1|masked-1|1"]);
    assert_eq!(value(&main, "select mail from person"), "a@example.org");

    let failing = script(&place, "update person set mail = 'x';\nselect * from nowhere;\n");
    let error = place.branches.fork("bad", &of("main"), &failing, &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert!(error.to_string().contains("nowhere") && error.hint_text().is_some(), "{error}");
    let missing = ForkOptions { run: Some(PathBuf::from("/nonexistent/after.sql")), ..ForkOptions::default() };
    assert_eq!(place.branches.fork("bad", &of("main"), &missing, &silent()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!((place.names(), place.leftovers()), (vec!["fork".to_owned(), "main".to_owned()], Vec::new()));
}

#[test]
fn credentials_of_other_systems_are_cleared_in_every_database() {
    let place = Place::new();
    let main = place.running(
        "main",
        "create extension postgres_fdw; create extension file_fdw; \
         create server far foreign data wrapper postgres_fdw options (host 'db.example.org', dbname 'x'); \
         create user mapping for app server far options (user 'u', password 'hunter2'); \
         create user mapping for public server far options (user 'v', password 'hunter3'); \
         create foreign table far_t (x int) server far options (table_name 'x', schema_name 'y'); \
         create schema vault; create table vault.secrets (id int, secret text); insert into vault.secrets values (1, 'hunter4'); \
         create subscription sub connection 'host=/nonexistent password=hunter5' publication p with (connect = false)",
    );
    run(&main, "create database closed");
    let url = main.record().address.url(forklift::postgres::UrlForm::Socket, &main.credentials().unwrap().url, "closed").unwrap();
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    let mapped = "create extension postgres_fdw; create server deep foreign data wrapper postgres_fdw; \
                  create user mapping for app server deep options (password 'hunter6')";
    other.batch_execute(mapped).unwrap();
    drop(other);
    run(&main, "alter database closed allow_connections false");
    run(&main, "alter system set primary_conninfo = 'host=x password=hunter7'");
    let options = ForkOptions { blank_credentials: true, ..ForkOptions::default() };
    let (fork, report) = place.branches.fork("fork", &of("main"), &options, &silent()).unwrap();
    for part in [
        "user mapping app on far in database app",
        "user mapping public on far in database app",
        "user mapping app on deep in database closed",
        "foreign server far in database app",
        "1 rows of vault.secrets in database app",
        "subscription sub",
        "primary_conninfo in postgresql.auto.conf",
    ] {
        assert!(report.blanked.iter().any(|blanked| blanked == part), "{part}: {:?}", report.blanked);
    }
    // Before its first start for users there is nothing left to find, in no file but WAL.
    for secret in ["hunter2", "hunter3", "hunter4", "hunter5", "hunter6", "hunter7"] {
        let data = fork.info().unwrap().data;
        let found = std::process::Command::new("grep").args(["-rl", "--exclude-dir=pg_wal", secret]).arg(&data).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{secret}");
    }
    start(&fork);
    let left = "select (select count(*) from pg_user_mapping where umoptions is not null), (select count(*) from pg_user_mapping), \
                (select count(*) from pg_foreign_server where srvoptions is not null), (select count(*) from vault.secrets), \
                (select subconninfo from pg_subscription), (select datallowconn from pg_database where datname = 'closed'), \
                (select ftoptions from pg_foreign_table)";
    assert_eq!(rows(&fork, left), ["0|2|0|0||f|{table_name=x,schema_name=y}"]);
    // It can be dropped without reaching for the publisher.
    run(&fork, "drop subscription sub");
    assert_eq!(value(&main, "select count(*) from pg_user_mapping where umoptions is not null"), "2");
    let both = ForkOptions { keep_replication: true, ..options };
    assert_eq!(place.branches.fork("bad", &of("main"), &both, &silent()).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

fn ids(branch: &Branch) -> Vec<String> {
    rows(
        branch,
        "insert into a default values returning id; insert into b default values returning id; insert into c default values returning id; \
         select nextval('down')",
    )
}

#[test]
fn siblings_get_ranges_of_sequences_that_nobody_shares() {
    let place = Place::new();
    let main = place.running(
        "main",
        "create table a (id bigserial); create table b (id int generated always as identity); create table c (id smallserial); \
         create sequence down increment -10 minvalue -100000000000000 start -10; create sequence tiny maxvalue 50; insert into a select from generate_series(1, 41)",
    );
    ids(&main);
    let disjoint = ForkOptions { disjoint_sequences: true, ..ForkOptions::default() };
    let fork = |name: &str, from: &str| {
        let (branch, report) = place.branches.fork(name, &of(from), &disjoint, &silent()).unwrap();
        start(&branch);
        (branch, report)
    };
    let (first, report) = fork("first", "main");
    let (second, _) = fork("second", "main");
    let stride = 1_i64 << 40;
    let down = |index: i64| (-20 - index * stride * 10).to_string();
    let expected = |index: i64| {
        vec![(43 + index * stride).to_string(), (2 + index * 10_000_000).to_string(), (2 + index * 1000).to_string(), down(index)]
    };
    assert_eq!(ids(&first), expected(1));
    assert_eq!(ids(&second), expected(2));
    assert_eq!(ids(&main), expected(0));
    let moved = report.ranges.iter().find(|moved| moved.name == "public.a_id_seq").unwrap();
    assert_eq!((moved.database.as_str(), moved.next, moved.offset, moved.stride), ("app", 43 + stride, 1 << 40, 1 << 40));
    assert!(report.warnings.iter().any(|warning| warning.contains("public.tiny in app")), "{report:?}");
    assert_eq!(first.record().ranges.unwrap().index, 1);

    // A fork of one goes on behind all of them; one that does not ask for a range has its source's.
    let (nested, _) = fork("nested", "first");
    assert_eq!(nested.record().ranges.unwrap().index, 3);
    assert_eq!(ids(&nested)[0], (44 + 3 * stride).to_string());
    let (same, report) = place.branches.fork("same", &of("second"), &ForkOptions::default(), &silent()).unwrap();
    assert_eq!((same.record().ranges.unwrap().index, report.ranges.len()), (2, 0));
    start(&same);
    assert_eq!(ids(&same)[0], (44 + 2 * stride).to_string());
}

#[test]
fn a_branch_is_restarted_renamed_and_protected() {
    let place = Place::new();
    let main = place.running("main", "create table t (x int)");
    place.empty("other");
    let pid = main.info().unwrap().pid;
    let held = client(&main);
    let info = main.restart(StartOptions::default(), &silent()).unwrap();
    assert!(info.state == ServerState::Running && info.pid != pid);
    drop(held);
    let url = main.url(forklift::postgres::UrlForm::Socket).unwrap();

    for (name, kind) in [("other", ErrorKind::AlreadyExists), ("a b", ErrorKind::InvalidArgument)] {
        assert_eq!(main.rename(name).unwrap_err().kind(), kind);
    }
    main.rename("trunk").unwrap();
    assert_eq!(place.names(), ["other", "trunk"]);
    let trunk = place.reopen().find("trunk").unwrap();
    assert_eq!((trunk.info().unwrap().pid, trunk.url(forklift::postgres::UrlForm::Socket).unwrap()), (info.pid, url));
    assert_eq!(place.branches.find("main").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(value(&trunk, "select count(*) from t"), "0");

    trunk.protect(true).unwrap();
    assert!(trunk.info().unwrap().protected);
    let error = place.branches.delete("trunk", &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protected);
    assert!(error.hint_text().unwrap().contains("unprotect trunk"), "{error}");
    assert_eq!(trunk.info().unwrap().state, ServerState::Running, "nothing was stopped");
    trunk.protect(false).unwrap();
    stop(&trunk);
    let info = trunk.restart(StartOptions::default(), &silent()).unwrap();
    assert_eq!(info.state, ServerState::Running);
    place.branches.delete("trunk", &silent()).unwrap();
}

fn limited(place: &Place, name: &str, limits: Limits) -> Branch {
    let branch = place.branches.create(name, &Origin::Empty, &CreateOptions { limits, ..CreateOptions::default() }, &silent()).unwrap();
    assert_eq!(branch.info().unwrap().limits, limits);
    branch
}

fn is_stopped(branch: &Branch) -> bool {
    branch.info().unwrap().state == ServerState::Stopped
}

#[test]
fn a_server_is_stopped_after_its_time_clients_or_not() {
    let place = Place::new();
    let branch = limited(&place, "short", Limits { ttl_ms: Some(1500), idle_ms: None });
    start(&branch);
    let mut held = client(&branch);
    held.batch_execute("create table t (x int)").unwrap();
    wait_for("the end of its time", || is_stopped(&branch));
    assert!(held.batch_execute("select 1").is_err());
    // It can be started again, and nothing is lost.
    start(&branch);
    assert_eq!(value(&branch, "select count(*) from t"), "0");
    wait_for("the end of its time", || is_stopped(&branch));
}

#[test]
fn a_server_that_nobody_uses_is_stopped_and_one_in_use_is_not() {
    let place = Place::new();
    let branch = limited(&place, "idle", Limits { ttl_ms: None, idle_ms: Some(1000) });
    start(&branch);
    // A session that does nothing is somebody.
    let mut held = client(&branch);
    let looks = |held: &mut postgres::Client| held.simple_query("select pg_sleep(0.2)").map(drop);
    for _ in 0..12 {
        looks(&mut held).unwrap();
    }
    drop(held);
    wait_for("the idle server's end", || is_stopped(&branch));
    assert!(!branch.record().address.is_public());
    start(&branch);
    assert_eq!(value(&branch, "select 1"), "1");
}
