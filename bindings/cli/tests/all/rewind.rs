//! Rewinds and redos: what is told, as text and as JSON, and the exit codes.

use serde_json::json;

use crate::harness::{Place, keys, read, write};

const PLAN: &[&str] = &["id", "what", "session", "turns", "target", "paths", "touched", "database", "partial", "refused", "warnings"];
const REPORT: &[&str] = &[
    "id",
    "what",
    "session",
    "turns",
    "undoes",
    "safety",
    "checkpoint",
    "paths",
    "database",
    "partial",
    "message",
    "downtime_ms",
    "total_ms",
    "fsyncs",
    "kept",
    "warnings",
];

#[test]
fn turns_are_taken_back_and_that_is_taken_back() {
    let place = Place::new();
    let folder = place.path().join("work");
    for folder in [&folder, &folder.join("sub")] {
        std::fs::create_dir(folder).unwrap();
    }
    write(&folder.join("a.txt"), "one\n");
    place.run(&["project", "setup", "work", "--files-only"]).text();
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());
    let names = |turn: &'static str| ["--session", "s", "--turn", turn];
    run(&[&["turn", "begin"], &names("1")[..]].concat()).text();
    write(&folder.join("a.txt"), "two\n");
    write(&folder.join("sub/b.txt"), "new\n");
    assert_eq!(run(&["rewind", "--session", "s", "--to", "1", "--json"]).error(4)["kind"], "busy");
    run(&[&["turn", "end"], &names("1")[..]].concat()).text();

    let plan = run(&["rewind", "--session", "s", "--to", "1", "--dry-run", "--json"]).facts();
    keys(&plan, PLAN);
    assert_eq!(
        (&plan["paths"], &plan["turns"], &plan["touched"], &plan["database"], &plan["refused"]),
        (
            &json!([{ "path": "a.txt", "verdict": "restore" }, { "path": "sub/b.txt", "verdict": "delete" }]),
            &json!(["1"]),
            &json!(2),
            &json!("none"),
            &json!([])
        )
    );
    let text = run(&["rewind", "--session", "s", "--to", "1", "--dry-run"]);
    assert!(text.text().contains("restore  a.txt\n") && text.text().contains("2 paths would be touched"), "{text:?}");

    write(&folder.join("a.txt"), "two and a person\n");
    let id = plan["id"].as_str().unwrap();
    let error = run(&["rewind", "--session", "s", "--to", "1", "--json"]).error(5);
    assert_eq!((&error["kind"], &error["context"]["kept"]), (&json!("edited"), &json!("kept: edited after this step: a.txt")));
    let told = run(&["rewind", "--session", "s", "--to", "1"]);
    let lines: Vec<&str> = told.err.lines().collect();
    assert!(told.code == 5 && lines.contains(&"kept: edited after this step  a.txt") && told.err.contains("--keep-edited"), "{told:?}");
    assert!(lines.contains(&"delete                        sub/b.txt") && !lines.contains(&""), "a line for each path: {told:?}");
    assert_eq!(run(&["rewind", "--session", "s", "--to", "1", "--keep-edited", "--plan", id, "--json"]).error(5)["kind"], "edited");
    assert_eq!(run(&["rewind", "--session", "s", "--to", "1", "--limit", "0", "--keep-edited", "--json"]).error(5)["kind"], "edited");
    assert!(folder.join("sub/b.txt").exists(), "nothing was touched so far");

    // Paths start from where one stands.
    let below = place.run_in(&folder.join("sub"), &["project", "rewind", "--session", "s", "--to", "1", "--paths", "b.txt", "--json"]);
    keys(&below.facts(), REPORT);
    assert_eq!((read(&folder.join("a.txt")).as_str(), folder.join("sub/b.txt").exists()), ("two and a person\n", false));
    let redo = run(&["redo", "--json"]).facts();
    assert_eq!((&redo["undoes"], &redo["turns"]), (&below.facts()["id"], &json!(["1"])));
    assert_eq!(read(&folder.join("sub/b.txt")), "new\n");
    write(&folder.join("a.txt"), "two\n");
    let text = run(&["rewind", "--session", "s", "--after", "1"]);
    assert!(text.text().contains("rewind of session s to after turn 1"), "{text:?}");
    let report = run(&["rewind", "--session", "s", "--to", "1", "--json"]).facts();
    assert_eq!((read(&folder.join("a.txt")).as_str(), &report["partial"]), ("one\n", &json!(false)));
    assert!(report["message"].as_str().unwrap().contains("a.txt"));
    assert!(run(&["redo", "-q"]).text().starts_with("redo of session s"));
    assert_eq!(read(&folder.join("a.txt")), "two\n");

    // What to type next is the whole command, and only what would be done.
    let nothing = run(&["rewind", "--session", "s", "--after", "1"]);
    assert!(nothing.text().contains("nothing to do") && !nothing.err.contains("hint"), "{nothing:?}");
    let report = run(&["rewind", "--session", "s", "--to", "1"]);
    assert!(report.err.contains("hint: `forklift project redo --session s` takes it back"), "{report:?}");
    run(&["redo", "--session", "s"]).text();
    write(&folder.join("a.txt"), "two and a person\n");
    let refused = run(&["rewind", "--session", "s", "--to", "1", "--dry-run"]);
    assert!(refused.code == 0 && refused.err.contains("--keep-edited") && !refused.err.contains("--plan"), "{refused:?}");
}

#[test]
fn what_is_not_there_is_named_and_what_is_unclear_is_usage() {
    let place = Place::new();
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    place.run(&["project", "setup", "work", "--files-only"]).text();
    let run = |arguments: &[&str]| place.run_in(&folder, &[&["project"], arguments].concat());
    assert_eq!(run(&["redo", "--json"]).error(3)["kind"], "not_found");
    assert_eq!(run(&["rewind", "--session", "s", "--to", "1", "--json"]).error(3)["kind"], "not_found");
    for asked in [&["show", "nope"][..], &["replay", "nope", "../then"]] {
        let told = run(asked);
        assert!(told.code == 3 && told.err.contains("no turn is called nope") && told.err.contains("no checkpoint is called"), "{told:?}");
    }
    let told = run(&["edited", "nosuch"]);
    assert!(told.code == 3 && told.err.contains("nosuch"), "{told:?}");
    for wrong in [&["rewind", "--session", "s"][..], &["rewind", "--to", "1"], &["rewind", "--session", "s", "--to", "1", "--after", "2"]] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
}
