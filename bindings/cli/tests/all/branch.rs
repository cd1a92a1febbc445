//! Branches with real servers.

use serde_json::json;

use crate::harness::{Place, keys};

const INFO: &[&str] = &[
    "name", "id", "created", "origin", "parent", "state", "pid", "version", "database", "user", "socket", "port", "data", "bytes",
    "project", "held",
];

#[test]
fn installations_are_listed_with_their_extensions() {
    let place = Place::new();
    let found = place.run(&["postgres", "list", "--json"]).facts();
    let first = &found.as_array().unwrap()[0];
    keys(first, &["name", "major", "minor", "origin", "bin", "library_path", "extensions"]);
    assert!(first["extensions"].as_array().unwrap().iter().any(|extension| extension["name"] == "plpgsql"), "{first}");
    let version = format!("{}.{}", first["major"], first["minor"]);
    assert_eq!(first["name"], version);
    assert!(place.run(&["postgres", "list"]).text().lines().any(|line| line.starts_with(&version)));
}

#[test]
fn an_explicit_installation_that_is_none_is_an_error() {
    let place = Place::new();
    let error = place.run(&["--postgres", "nowhere", "create", "a", "--json"]).error(3);
    assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error}");
}

#[test]
fn a_branch_lives_and_is_forked_and_goes() {
    let place = Place::new();
    let fill = format!("{} && echo \"$DATABASE_URL\" > url", place.psql("CREATE TABLE t AS SELECT 1 AS one"));
    let main = place.run(&["create", "main", "--seed", &fill, "--json"]).facts();
    let mut with_fork = INFO.to_vec();
    with_fork.push("fork");
    keys(&main, &with_fork);
    assert_eq!((&main["state"], &main["origin"], &main["fork"]), (&json!("stopped"), &json!("seed"), &json!(null)));
    assert!(crate::harness::read(&place.path().join("url")).starts_with("postgresql://"));

    let error = place.run(&["create", "main", "--json"]).error(3);
    assert_eq!((&error["kind"], &error["context"]["branch"]), (&json!("already_exists"), &json!("main")));

    let started = place.run(&["start", "main", "--json"]).facts();
    keys(&started, INFO);
    assert_eq!(started["state"], "running");
    assert_eq!(place.run(&["start", "main", "--json"]).facts()["pid"], started["pid"]);

    let url = place.run(&["branch", "url", "main", "--json"]).facts();
    keys(&url, &["name", "form", "url"]);
    assert_eq!(place.run(&["branch", "url", "main"]).text(), format!("{}\n", url["url"].as_str().unwrap()));
    assert_eq!(place.run(&["branch", "url", "main", "--form", "tcp", "--json"]).error(2)["kind"], "invalid_argument");

    let fork = place.run(&["create", "agent", "--from", "main", "--tcp", "--set", "work_mem=8MB", "--json"]).facts();
    assert_eq!((&fork["parent"], &fork["fork"]["mode"]), (&json!("main"), &json!("online")));
    assert!(fork["port"].is_u64(), "{fork}");
    assert!(place.run(&["branch", "url", "agent", "--form", "tcp"]).text().contains(&format!("127.0.0.1:{}", fork["port"])));

    let list = place.run(&["list", "--json"]).facts();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|branch| branch["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["agent", "main"]);
    let table = place.run(&["list"]);
    let cells: Vec<Vec<&str>> = table.text().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((cells[0][..4].to_vec(), cells[1][3], cells[2][3]), (vec!["NAME", "STATE", "POSTGRES", "FROM"], "main", "(seed)"));
    assert!(table.text().lines().nth(2).unwrap().starts_with("main   running"), "{table:?}");
    assert!(place.run(&["inspect", "agent"]).text().contains("parent    main\n"));

    assert_eq!(place.run(&["stop", "main", "--json"]).facts()["state"], "stopped");
    assert_eq!(place.run(&["delete", "agent", "--json"]).facts(), json!({ "name": "agent", "deleted": true }));
    place.run(&["delete", "main"]).text();
    assert_eq!(place.run(&["list", "--json"]).facts(), json!([]));
    assert_eq!(place.run(&["inspect", "main", "--json"]).error(3)["kind"], "not_found");
}

#[test]
fn a_seed_that_fails_leaves_nothing() {
    let place = Place::new();
    let error = place.run(&["create", "main", "--seed", "exit 7", "--json"]).error(3);
    assert_eq!(error["kind"], "command");
    assert!(error["message"].as_str().unwrap().contains('7'), "{error}");
    assert_eq!(place.run(&["list", "--json"]).facts(), json!([]));
}
