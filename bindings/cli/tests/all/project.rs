//! Projects: files alone, and with a database.

use serde_json::json;

use crate::harness::{Place, keys, read, write};

const CHECKPOINT: &[&str] = &["id", "name", "created", "kind", "files", "cluster", "facts"];

#[test]
fn files_are_captured_shown_and_restored() {
    let place = Place::new();
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    write(&folder.join("a.txt"), "one\n");
    let setup = place.run(&["project", "setup", "work", "--files-only", "--json"]).facts();
    keys(&setup, &["id", "root", "store", "branch", "configuration_written", "warnings"]);
    assert_eq!((&setup["branch"], &setup["configuration_written"]), (&json!(null), &json!(true)));
    assert_eq!(place.run(&["project", "setup", "work", "--files-only", "--json"]).error(3)["kind"], "already_exists");
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());

    assert!(run(&["status"]).text().contains("no checkpoint yet"));
    let said = run(&["log"]);
    assert_eq!((said.text(), said.err.contains("project capture")), ("", true));

    let capture = run(&["capture", "first", "--json"]).facts();
    for member in [
        "id",
        "name",
        "mode",
        "downtime_ms",
        "total_ms",
        "bytes_read",
        "bytes_new",
        "bytes_stored",
        "fsyncs",
        "coverage",
        "files_opened",
        "reads",
    ] {
        assert!(capture.get(member).is_some(), "{member}: {capture}");
    }
    assert_eq!((&capture["name"], &capture["mode"]), (&json!("first"), &json!("files")));
    let why = &capture["reads"]["files"]["why"];
    assert_eq!((&why["new"], &capture["reads"]["database"]), (&capture["files_opened"], &json!(null)), "{capture}");
    keys(why, &["new", "size_changed", "times_changed", "racy", "other_boot", "in_doubt", "extents"]);
    assert_eq!(run(&["capture", "first", "--json"]).error(3)["kind"], "already_exists");

    write(&folder.join("a.txt"), "two\n");
    write(&folder.join("b.txt"), "new\n");
    let mut changes = run(&["diff", "first", "--json"]).facts();
    changes.as_array_mut().unwrap().sort_by_key(|change| change["path"].to_string());
    assert_eq!(changes, json!([{ "path": "a.txt", "kind": "modified" }, { "path": "b.txt", "kind": "added" }]));
    assert!(run(&["diff", "first"]).text().contains("modified  a.txt\n"));
    let status = run(&["status", "--json"]).facts();
    keys(&status, &["id", "root", "store", "branch", "server", "running", "pending", "last", "changed", "warnings"]);
    assert_eq!(status["changed"], 2);

    let plan = run(&["restore", "first", "--dry-run", "--json"]).facts();
    assert_eq!((&plan["database"], plan["paths"].as_array().unwrap().len()), (&json!("none"), 2));
    assert_eq!(read(&folder.join("a.txt")), "two\n");
    let text = run(&["restore", "first", "--dry-run"]);
    assert!(text.text().contains("restore  a.txt\n") && text.text().contains("delete   b.txt\n"), "{text:?}");

    let restore = run(&["restore", "first", "--json"]).facts();
    assert_eq!((read(&folder.join("a.txt")).as_str(), folder.join("b.txt").exists()), ("one\n", false));
    run(&["restore", restore["safety"].as_str().unwrap()]).text();
    assert_eq!((read(&folder.join("a.txt")).as_str(), folder.join("b.txt").exists()), ("two\n", true));

    write(&folder.join("c.txt"), "three\n");
    let text = run(&["capture", "told", "--no-extents"]);
    let read = text.text().lines().find(|line| line.starts_with("read: ")).unwrap_or_default();
    assert!(read.contains(" of the worktree (") && read.contains("1 new"), "{text:?}");

    let log = run(&["log", "--json"]).facts();
    let log = log.as_array().unwrap();
    keys(&log[0], CHECKPOINT);
    assert_eq!(log.last().unwrap()["name"], "first");
    let shown = run(&["show", capture["id"].as_str().unwrap(), "--json"]).facts();
    assert_eq!(&shown, log.last().unwrap());
    assert!(run(&["show", "first"]).text().starts_with("name"));
    assert_eq!(run(&["show", "second", "--json"]).error(3)["kind"], "not_found");

    assert_eq!(run(&["recover", "--json"]).facts()["outcome"], "clean");
    assert_eq!(run(&["forget", "first", "--json"]).facts()["applied"], false);
    assert!(run(&["forget", "first"]).err.contains("--yes"));
    assert_eq!(run(&["forget", "first", "--yes", "--json"]).facts()["applied"], true);
    assert_eq!(run(&["restore", "first", "--json"]).error(3)["kind"], "not_found");
    assert_eq!(run(&["prune", "--json"]).facts()["applied"], false);
    assert_eq!(run(&["prune", "--yes", "--json"]).facts()["applied"], true);
}

#[test]
fn the_database_goes_with_the_files() {
    let place = Place::new();
    let folder = place.project("pair");
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());
    let psql = |statement: &str| place.process(&folder, &["project", "run", "--", "sh", "-c", &place.psql(statement)]);
    let notes = || psql("SELECT string_agg(text, ',' ORDER BY text) FROM notes");

    let capture = run(&["capture", "start", "--json"]).facts();
    assert_eq!((&capture["mode"], &capture["downtime_ms"], &capture["coverage"]["complete"]), (&json!("stopped"), &json!(0), &json!(true)));
    for figure in ["bytes_read", "bytes_new", "bytes_stored", "fsyncs"] {
        assert!(capture[figure].as_u64().unwrap() > 0, "{figure}: {capture}");
    }
    let of_database = &capture["reads"]["database"];
    assert!(of_database["why"]["new"].as_u64() > Some(100) && of_database["bytes_read"].as_u64() > Some(10 << 20), "{capture}");
    let again = run(&["capture", "again", "--json"]).facts();
    assert_eq!(again["reads"]["database"]["files_opened"], 0);
    assert_eq!((&again["mode"], &again["bytes_new"], &again["bytes_stored"]), (&json!("unchanged"), &json!(0), &json!(0)));
    write(&folder.join("code.txt"), "two\n");
    psql("INSERT INTO notes VALUES ('two')").text();
    assert_eq!(notes().text(), "one,two\n");

    place.run(&["start", "pair"]).text();
    let running = run(&["capture", "later", "--mode", "online", "--json"]).facts();
    assert_eq!((&running["mode"], &running["downtime_ms"]), (&json!("online"), &json!(0)));
    assert_eq!(run(&["restore", "start", "--json"]).facts()["database"], "replace");
    assert_eq!((read(&folder.join("code.txt")).as_str(), notes().text()), ("one\n", "one\n"));
    assert_eq!(place.run(&["inspect", "pair", "--json"]).facts()["state"], "running");

    // A branch of the old state, by the checkpoint's name, by its id, and of another branch, which has none of that name.
    let later = running["id"].as_str().unwrap();
    place.run_in(&folder, &["create", "fork", "--from", "pair", "--at", "later"]).text();
    place.run_in(&folder, &["create", "fork2", "--at", later, "--json"]).facts();
    let error = place.run_in(&folder, &["create", "fork3", "--at", &later[..1], "--json"]).error(2);
    assert!(error["hint"].as_str().unwrap().starts_with("say whose it is with `--from BRANCH`, or name one by its id: "), "{error}");
    assert_eq!(place.run_in(&folder, &["create", "fork3", "--from", "pair-seed", "--at", "later", "--json"]).error(3)["kind"], "not_found");
    let error = place.run_in(&folder, &["delete", "pair", "--json"]).error(3);
    assert_eq!(error["kind"], "has_dependents");
    assert!(error["message"].as_str().unwrap().ends_with(" depend on it"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("`forklift project prune --yes`"), "{error}");
    let error = place.run(&["delete", "pair-seed", "--json"]).error(3);
    assert_eq!(error["message"], "branch pair-seed cannot be deleted: branch pair depends on it");
}

#[test]
fn a_restore_says_what_it_did_in_few_lines() {
    let place = Place::new();
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());
    run(&["setup", "--files-only"]).text();
    run(&["capture", "empty"]).text();
    for number in 0..30 {
        write(&folder.join(format!("{number}.txt")), "");
    }
    run(&["capture", "full"]).text();
    let said = run(&["restore", "empty"]);
    assert!(said.text().contains("and 10 more; --json lists all\nempty is restored in "), "{said:?}");
    let said = run(&["restore", "full", "--quiet"]);
    assert!(said.text().starts_with("full is restored in ") && said.out.lines().count() == 1 && said.err.is_empty(), "{said:?}");

    // Ids that were made within the same time begin alike: here of two captures, two safety checkpoints and these.
    for name in ["a", "b", "c"] {
        run(&["capture", name]).text();
    }
    let id = run(&["show", "full", "--json"]).facts()["id"].as_str().unwrap().to_owned();
    let error = place.run_in(&folder, &["project", "show", &id[..1], "--json"]).error(2);
    assert_eq!(error["kind"], "invalid_argument");
    assert!(error["message"].as_str().unwrap().ends_with(" and 2 more"), "{error}");
}

#[test]
fn a_capture_beside_a_restore_is_told_to_wait_for_it() {
    let place = Place::new();
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());
    // The stop hook runs in the middle of a restore.
    let hook = format!("'{}' project capture second --json > ../said; exit 1", env!("CARGO_BIN_EXE_forklift"));
    write(&folder.join(".forklift.json"), &json!({ "format": 1, "hooks": { "stop": ["sh", "-c", hook] } }).to_string());
    run(&["setup", "--files-only"]).text();
    run(&["capture", "first"]).text();
    write(&folder.join("a.txt"), "");
    run(&["restore", "first"]).text();
    let said: serde_json::Value = serde_json::from_str(&read(&place.path().join("said"))).unwrap();
    assert_eq!((&said["error"]["kind"], &said["error"]["hint"]), (&json!("busy"), &json!("wait for the restore to end")), "{said}");
}
