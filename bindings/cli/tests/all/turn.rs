//! Turns by the command line: what it says, and what each call of it costs.

use serde_json::Value;

use crate::harness::{Place, keys, write};

const WINDOW: [&str; 29] = [
    "id",
    "session",
    "turn",
    "tool",
    "call",
    "start",
    "end",
    "state",
    "instant",
    "owner",
    "boot",
    "began_ms",
    "ended_ms",
    "opened",
    "closed",
    "overlaps_other_session",
    "rewound",
    "checkpoint",
    "new_checkpoint",
    "repeated",
    "mode",
    "interrupted",
    "total_ms",
    "parts_ms",
    "bytes_read",
    "bytes_new",
    "bytes_stored",
    "fsyncs",
    "files_opened",
];

#[test]
fn a_turn_is_begun_ended_listed_and_shown() {
    let place = Place::new();
    let folder = place.project_of_files();
    let names = ["--session", "s", "--turn", "message-1", "--tool", "Edit", "--call", "c1"];
    let turn = |verb: &str, more: &[&str]| {
        let words = [&["project", "turn", verb][..], &names, more].concat();
        place.run_in(&folder, &words)
    };
    let begun = turn("begin", &["--json"]).facts();
    keys(&begun, &[&WINDOW[..], &["warnings"]].concat());
    assert_eq!((&begun["state"], &begun["new_checkpoint"]), (&Value::from("open"), &Value::from(true)));
    write(&folder.join("code.txt"), "two\n");
    let ended = turn("end", &["--failed"]);
    assert!(ended.text().starts_with("turn message-1 of s (Edit) ended: new checkpoint "), "{ended:?}");
    assert!(turn("end", &[]).text().contains("was told already"));

    let log = place.run_in(&folder, &["project", "log", "--session", "s"]);
    assert!(log.text().contains("#1 message-1") && log.out.contains("Edit") && log.out.contains("failed"), "{log:?}");
    let turns = place.run_in(&folder, &["project", "log", "--turns", "--json"]).facts();
    assert_eq!((&turns[0]["changed"], &turns[0]["calls"][0]["call"]), (&Value::from(1), &Value::from("c1")));
    for what in [&["message-1"][..], &["mess"], &["#1", "--session", "s"]] {
        let shown = place.run_in(&folder, &[&["project", "show"][..], what].concat());
        assert!(shown.text().lines().last().unwrap().starts_with("modified  code.txt  Edit"), "{shown:?}");
    }
    let checkpoints = place.run_in(&folder, &["project", "log", "--json"]).facts();
    assert_eq!((checkpoints.as_array().unwrap().len(), &checkpoints[0]["kind"]), (2, &Value::from("turn")));
    let shown = place.run_in(&folder, &["project", "show", checkpoints[0]["id"].as_str().unwrap()]);
    assert!(shown.text().contains("message-1 of s, Edit"), "{shown:?}");
}

#[test]
fn lines_are_blamed_and_a_turn_is_replayed() {
    let place = Place::new();
    let folder = place.project_of_files();
    for (verb, text) in [("begin", "one\ntwo\n"), ("end", "one\ntwo\nthree\n")] {
        place.run_in(&folder, &["project", "turn", verb, "--session", "s", "--turn", "m1", "--tool", "Edit"]).text();
        write(&folder.join("code.txt"), text);
    }
    let said = place.run_in(&folder, &["project", "blame", "code.txt"]);
    let lines: Vec<&str> = said.text().lines().collect();
    assert!(lines[0].starts_with("-") && lines[1].starts_with("m1 of s  Edit") && lines[2].starts_with("-"), "{said:?}");
    let facts = place.run_in(&folder, &["project", "blame", "code.txt", "--json"]).facts();
    keys(&facts["lines"][1], &["line", "text", "author", "session", "turn", "tools", "seen_ms"]);
    keys(&facts["lines"][2], &["line", "text", "author", "seen_ms"]);
    let said = place.run_in(&folder, &["project", "replay", "m1", "../replayed"]);
    assert!(said.text().starts_with("what turn m1 left is in "), "{said:?}");
    assert_eq!(crate::harness::read(&place.path().join("replayed/code.txt")), "one\ntwo\n");
    place.run_in(&folder, &["project", "replay", "m1", "../replayed", "--json"]).error(3);
}

#[test]
fn edits_by_hand_are_noted_from_the_folder_of_the_caller() {
    let place = Place::new();
    let folder = place.project_of_files();
    std::fs::create_dir(folder.join("lib")).unwrap();
    write(&folder.join("lib/a.txt"), "by hand\n");
    let said = place.run_in(&folder.join("lib"), &["project", "edited", "a.txt", "../code.txt", "--json"]).facts();
    keys(&said, &["author", "paths", "during", "fsyncs", "warnings"]);
    assert_eq!((&said["author"], &said["paths"]), (&Value::from("human"), &serde_json::json!(["code.txt", "lib/a.txt"])));
    place.run_in(&folder, &["project", "edited", "../other", "--json"]).error(2);
}

#[test]
fn turns_and_sessions_that_there_are_not_are_told() {
    let place = Place::new();
    let folder = place.project_of_files();
    for words in [
        &["project", "turn", "end", "--session", "s", "--turn", "1"][..],
        &["project", "log", "--session", "s"],
        &["project", "show", "1", "--session", "s"],
        &["project", "show", "1"],
    ] {
        let error = place.run_in(&folder, &[words, &["--json"]].concat()).error(3);
        assert_eq!(error["kind"], "not_found", "{words:?}");
    }
    let none = place.run_in(&folder, &["project", "log", "--turns"]);
    assert_eq!(none.text(), "");
    place.run_in(&folder, &["project", "turn", "begin", "--session", "", "--turn", "1", "--json"]).error(2);
    place.run_in(&folder, &["project", "turn", "begin", "--session", "s", "--json"]).error(2);
}

#[test]
fn forgetting_warns_of_the_turns_that_stand_on_it_and_a_damaged_log_is_mended() {
    let place = Place::new();
    let folder = place.project_of_files();
    let begun = place.run_in(&folder, &["project", "turn", "begin", "--session", "s", "--turn", "1", "--json"]).facts();
    write(&folder.join("code.txt"), "two\n");
    place.run_in(&folder, &["project", "turn", "end", "--session", "s", "--turn", "1"]).text();
    let id = begun["checkpoint"].as_str().unwrap();
    let said = place.run_in(&folder, &["project", "forget", id]);
    assert!(said.err.contains("turns that could not be taken back then: 1 of s"), "{said:?}");

    let project = place.store().join("projects").read_dir().unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let log = project.unwrap().join("timeline/log");
    let whole = forklift::sys::fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::io::Write::write_all(&mut std::fs::File::create(&log).unwrap(), &damaged).unwrap();
    assert!(place.run_in(&folder, &["project", "log", "--turns"]).err.contains("log --rebuild"));
    assert!(place.run_in(&folder, &["project", "log", "--rebuild", "--turns"]).err.contains("came back"));
    assert_eq!(forklift::sys::fs::read(&log).unwrap(), whole);
}

#[test]
fn a_window_opened_inside_a_managed_command_ends_with_it() {
    let place = Place::new();
    let folder = place.project_of_files();
    let program = env!("CARGO_BIN_EXE_forklift");
    let inside = format!("'{program}' project turn begin --session s --turn 1 && echo two > code.txt");
    assert_eq!(place.process(&folder, &["project", "run", "sh", "-c", &inside]).code, 0);
    let next = place.run_in(&folder, &["project", "turn", "begin", "--session", "other", "--turn", "1", "--json"]).facts();
    assert_eq!(next["interrupted"].as_array().unwrap().len(), 1);
    let turns = place.run_in(&folder, &["project", "log", "--session", "s", "--json"]).facts();
    assert_eq!((&turns[0]["state"], &turns[0]["changed"]), (&Value::from("interrupted"), &Value::from(1)));
}
