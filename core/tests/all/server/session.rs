//! Our own sessions.

use forklift::ErrorKind;
use forklift::postgres::{Credentials, Role, Sql, bootstrap_superuser};

use crate::support::{Cluster, initdb, installation, run_as, stop};

#[test]
fn statements_give_text_and_errors_give_the_state_but_no_literal() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let mut sql = server.connect("app").unwrap();
    assert_eq!(sql.server_version().unwrap() / 10_000, cluster.spec.installation.version.major);
    let rows = sql.rows("SELECT 1; SELECT 2, NULL UNION ALL SELECT 3, 'x' ORDER BY 1").unwrap();
    assert_eq!(rows, [vec![Some("2".to_owned()), None], vec![Some("3".to_owned()), Some("x".to_owned())]]);
    assert_eq!(sql.rows("SELECT 1; SET work_mem = '4MB'").unwrap(), Vec::<Vec<Option<String>>>::new());
    let text = "a'b\\c\"d\u{e9}\n";
    assert_eq!(sql.value(&format!("SELECT {}", Sql::literal(text))).unwrap(), text);
    sql.run(&format!("CREATE TABLE public.{} (x int)", Sql::identifier("odd \" name"))).unwrap();
    let error = sql.run("CREATE ROLE app PASSWORD 'geheim'").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Sql);
    assert!(error.context().contains(&("sqlstate", "42710".to_owned())), "{error:?}");
    assert!(error.message().starts_with("CREATE ROLE app PASSWORD: "), "{error}");
    assert!(!format!("{error:?}").contains("geheim"));
    assert_eq!(sql.value("SELECT 1 WHERE false").unwrap_err().kind(), ErrorKind::Sql);
    for (name, wanted) in
        [("application_name", "forklift"), ("search_path", "pg_catalog"), ("statement_timeout", "0"), ("DateStyle", "ISO, MDY")]
    {
        assert_eq!(sql.value(&format!("SHOW {name}")).unwrap(), wanted);
    }
    assert_eq!(server.clients().unwrap(), 0, "our own sessions do not count");
    let client = cluster.client().unwrap();
    assert_eq!(server.clients().unwrap(), 1);
    drop(client);
    let error = server.connect("no-such-database").unwrap_err();
    assert!(error.context().contains(&("sqlstate", "3D000".to_owned())), "{error:?}");
    let address = server.address().clone();
    stop(server);
    let error = Sql::connect(&address, &cluster.spec.credentials.ours, "app").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn the_superuser_of_a_foreign_cluster_is_found_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().canonicalize().unwrap().join("data");
    let name = "o Brien \u{e9}";
    initdb(&data, name);
    assert_eq!(bootstrap_superuser(&installation(), &run_as(), &data).unwrap(), name);
    // Its roles stay; ours gets a password, the URL's role is made.
    let mut cluster = Cluster::new();
    cluster.spec.data = data;
    cluster.spec.credentials =
        Credentials { ours: Role::random(name).unwrap(), url: Role::random("agent x").unwrap(), database: "my db".to_owned() };
    let server = cluster.start().unwrap();
    let mut sql = server.connect("my db").unwrap();
    assert_eq!(
        sql.value("SELECT string_agg(rolname, ',' ORDER BY rolname) FROM pg_roles WHERE rolcanlogin").unwrap(),
        format!("agent x,{name}")
    );
    let url = server.address().url(forklift::postgres::UrlForm::Socket, &cluster.spec.credentials.url, "my db").unwrap();
    let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    assert_eq!(client.query_one("SELECT current_user::text", &[]).unwrap().get::<_, String>(0), "agent x");
    let error = bootstrap_superuser(&installation(), &run_as(), &cluster.spec.data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(client);
    stop(server);
}

#[test]
fn credentials_are_written_closed_and_read_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials.json");
    let credentials = Credentials { ours: Role::random("a").unwrap(), url: Role::random("b").unwrap(), database: "c".to_owned() };
    credentials.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(Credentials::load(&path).unwrap(), credentials);
    std::fs::write(&path, "{\"ours\": {\"name\": \"x\", \"password\": 12345678}}").unwrap();
    let error = Credentials::load(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(!format!("{error:?}").contains("12345678"));
}

#[test]
fn a_session_ends_with_a_farewell_and_says_what_the_server_said_last() {
    let mut cluster = Cluster::new();
    cluster.spec.settings.push(("log_disconnections".to_owned(), "on".to_owned()));
    cluster.spec.settings.push(("log_min_messages".to_owned(), "debug1".to_owned()));
    let server = cluster.start().unwrap();
    let mut sql = server.connect("app").unwrap();
    sql.run("DO $$ BEGIN RAISE NOTICE 'nobody hears this'; END $$").unwrap();
    let pid = sql.value("SELECT pg_backend_pid()").unwrap();
    drop(sql);
    let log = || std::fs::read_to_string(cluster.spec.run.join("log")).unwrap();
    crate::support::wait_for("the session to end", || log().lines().any(|line| line.contains(&pid) && line.contains("disconnection")));
    assert!(!log().contains("unexpected EOF"));
    let mut sql = server.connect("app").unwrap();
    let pid = sql.value("SELECT pg_backend_pid()").unwrap();
    server.connect("app").unwrap().run(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    crate::support::wait_for("the backend to end", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    let error = sql.run("SELECT 1").unwrap_err();
    assert!(error.context().contains(&("sqlstate", "57P01".to_owned())), "{error:?}");
    assert!(sql.run("SELECT 1").is_err());
    stop(server);
}
