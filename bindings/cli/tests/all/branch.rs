//! Branches with real servers.

use serde_json::json;

use crate::harness::{Place, keys};

const INFO: &[&str] = &[
    "name",
    "id",
    "created",
    "origin",
    "parent",
    "state",
    "pid",
    "version",
    "database",
    "user",
    "socket",
    "port",
    "data",
    "bytes",
    "safe",
    "limits",
    "protected",
    "project",
    "held",
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
    with_fork.extend(["fork", "warnings"]);
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

#[test]
fn what_a_seed_says_is_passed_on() {
    let place = Place::new();
    let seed = "echo filling; echo 'psql: ERROR: no such table' >&2";
    let said = place.run(&["create", "main", "--seed", seed]);
    assert!(said.text().starts_with("main is ready"), "{said:?}");
    assert!(said.err.contains("filling\n") && said.err.contains("psql: ERROR: no such table\n"), "{said:?}");
    let quiet = place.run(&["create", "quiet", "--quiet", "--seed", seed]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""), "{quiet:?}");
    assert_eq!(place.run(&["create", "json", "--json", "--seed", seed]).err.lines().filter(|line| !line.starts_with("hint: ")).count(), 0);
    let failed = place.run(&["create", "bad", "--quiet", "--seed", "echo the reason >&2; echo the end >&2; exit 7"]);
    assert!(failed.code == 3 && failed.err.starts_with("the reason\nthe end\nerror: "), "{failed:?}");
}

#[test]
fn a_setting_that_the_server_refuses_is_told_and_nothing_that_is_gone() {
    let place = Place::new();
    let error = place.run(&["create", "main", "--set", "nosuch=1", "--json"]).error(3);
    assert_eq!(error["kind"], "server_start");
    assert!(error["message"].as_str().unwrap().contains("nosuch"), "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.contains(".making-")), "{error}");
    assert_eq!(place.run(&["list", "--json"]).facts(), json!([]));
}

#[test]
fn a_safe_fork_says_what_holds_and_branches_are_renamed_and_protected() {
    let place = Place::new();
    place.run(&["create", "main", "--json"]).facts();
    let layers = place.run(&["create", "agent", "--from", "main", "--safe", "--idle-stop", "10m", "--disjoint-sequences", "--json"]);
    let fork = layers.facts();
    assert_eq!((&fork["safe"], &fork["limits"]), (&json!("strict"), &json!({"ttl_ms": null, "idle_ms": 600_000})));
    let safe = &fork["fork"]["safe"];
    keys(safe, &["layers", "open"]);
    for layer in safe["layers"].as_array().unwrap() {
        keys(layer, &["name", "holds", "detail"]);
    }
    keys(
        &fork["fork"],
        &["mode", "method", "total_ms", "parts_ms", "unlogged", "prepared", "switched_off", "safe", "blanked", "ran", "ranges", "warnings"],
    );
    let told = place.run(&["create", "other", "--from", "agent", "--safe=best-effort"]);
    assert!(told.err.contains("safe mode: kept inside by: seccomp"), "{}", told.err);
    assert!(place.run(&["inspect", "other"]).text().contains("best effort"));
    place.run(&["create", "bad", "--safe", "--json"]).error(2);
    place.run(&["create", "bad", "--from", "main", "--ttl", "soon", "--json"]).error(2);

    assert_eq!(place.run(&["branch", "protect", "other", "--json"]).facts()["protected"], true);
    assert_eq!(place.run(&["delete", "other", "--json"]).error(3)["kind"], "protected");
    assert_eq!(place.run(&["branch", "rename", "other", "third", "--json"]).facts()["name"], "third");
    assert_eq!(place.run(&["branch", "unprotect", "third", "--json"]).facts()["protected"], false);
    place.run(&["delete", "third", "--json"]).facts();
}
