//! Command lines that are wrong: exit code 2, and words that say why.

use crate::harness::Place;

#[test]
fn a_wrong_command_line_is_told_and_touches_nothing() {
    let place = Place::new();
    for (line, said) in [
        ("", "Usage: forklift"),
        ("bogus", "unrecognized subcommand 'bogus'"),
        ("branch", "Usage: forklift branch"),
        ("branch create", "<NAME>"),
        ("branch create a b", "unexpected argument 'b'"),
        ("branch create a --set work_mem", "NAME=VALUE"),
        ("branch create a --set =1", "NAME=VALUE"),
        ("branch create a --from b --seed true", "cannot be used with"),
        ("branch create a --at b --from-datadir c", "cannot be used with"),
        ("branch create a --seed true --from-url c", "cannot be used with"),
        ("branch create a --from b --database c", "cannot be used with"),
        ("branch create a --from b --postgres-major 15", "cannot be used with"),
        ("branch create a --postgres-major fifteen", "invalid value 'fifteen'"),
        ("branch create a --mode atomic", "--from <BRANCH>"),
        ("branch create a --from b --mode sometimes", "auto, online, atomic"),
        ("pool", "Usage: forklift pool"),
        ("pool create", "--size <SIZE>"),
        ("doctor now", "unexpected argument 'now'"),
        ("branch url a --form pigeon", "socket, localhost, tcp"),
        ("branch delete", "<NAME>"),
        ("list --bogus", "unexpected argument '--bogus'"),
        ("postgres install 17 18", "unexpected argument '18'"),
        ("project setup --files-only --from a", "cannot be used with"),
        ("project run", "<CMD>"),
        ("project capture", "<NAME>"),
        ("project capture a --mode sometimes", "auto, online, stopped"),
        ("project restore", "<CHECKPOINT>"),
        ("project diff", "<FIRST>"),
        ("project forget", "<CHECKPOINT>"),
        ("project prune now", "unexpected argument 'now'"),
        ("--store", "a value is required for '--store <DIR>'"),
    ] {
        let said_so = place.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(said_so.code, 2, "{line}: {said_so:?}");
        assert!(said_so.err.contains(said), "{line}: {said_so:?}");
        assert_eq!(said_so.out, "", "{line}");
    }
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn usage_is_told_as_json_where_that_was_asked_for() {
    let error = Place::new().run(&["branch", "create", "--json"]).error(2);
    assert_eq!((error["kind"].as_str(), error["code"].as_i64()), (Some("invalid_argument"), Some(-2)));
    assert_eq!(error["message"], "the following required arguments were not provided: <NAME>");
}

#[test]
fn help_and_version_are_results() {
    let place = Place::new();
    assert_eq!(place.run(&["--version"]).text(), format!("forklift {}\n", env!("CARGO_PKG_VERSION")));
    assert!(place.run(&["branch", "create", "--help"]).text().contains("--seed <CMD>"));
    assert!(place.run(&["help", "project"]).text().contains("capture"));
}

#[test]
fn a_bare_command_is_the_one_of_branch() {
    let place = Place::new();
    for command in ["inspect", "start", "stop", "delete"] {
        let (bare, long) = (place.run(&[command, "none"]), place.run(&["branch", command, "none"]));
        assert_eq!((bare.code, &bare.err), (3, &long.err));
        assert!(bare.err.starts_with("error: no branch none: there is no store in "), "{bare:?}");
        assert!(bare.err.contains("\nhint: "), "{bare:?}");
    }
}

#[test]
fn without_a_store_there_are_no_branches_and_none_is_made() {
    let place = Place::new();
    let said = place.run(&["list"]);
    assert_eq!((said.text(), said.err.starts_with("hint: ")), ("", true));
    assert_eq!(place.run(&["list", "--quiet"]).err, "");
    assert_eq!(place.run(&["list", "--json"]).facts(), serde_json::json!([]));
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_none_cannot_be_worked_in() {
    let place = Place::new();
    crate::harness::write(&place.path().join("file"), "");
    for (folder, code, kind) in [("nowhere", 3, "not_found"), ("file", 2, "invalid_argument")] {
        let error = place.run(&["-C", folder, "list", "--json"]).error(code);
        assert_eq!(error["kind"], kind);
        assert!(error["message"].as_str().unwrap().contains(folder), "{error}");
    }
}

#[test]
fn outside_a_project_the_next_step_is_named() {
    let place = Place::new();
    for command in ["status", "log", "recover", "prune"] {
        let error = place.run(&["project", command, "--json"]).error(3);
        assert_eq!(error["kind"], "not_found", "{command}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("project setup")), "{error}");
    }
}

#[test]
fn names_that_are_not_allowed_are_usage() {
    let place = Place::new();
    for name in ["a/b", "", "-a", ".a", "a\u{1b}[2J", &"a".repeat(64)] {
        let said = place.run(&["create", "--json", "--", name]);
        assert_eq!(said.error(2)["kind"], "invalid_argument", "{name:?}");
        let said = place.run(&["create", "--", name]);
        assert!(said.err.chars().all(|character| character == '\n' || !character.is_control()), "{said:?}");
    }
    assert_eq!(place.run(&["list", "--json"]).facts(), serde_json::json!([]));
}

#[test]
fn a_command_of_project_without_that_word_is_named() {
    let place = Place::new();
    for command in ["status", "run", "capture", "restore", "log", "show", "diff", "forget", "prune", "setup", "recover"] {
        let said = place.run(&[command, "one"]);
        let told = format!("error: unrecognized subcommand '{command}'\nhint: the command is `forklift project {command}`\n");
        assert_eq!((said.code, said.err), (2, told));
    }
    assert_eq!(place.run(&["capture", "one", "--json"]).error(2)["hint"], "the command is `forklift project capture`");
    assert!(!place.run(&["bogus"]).err.contains("the command is"));
}

#[test]
fn a_named_store_that_is_not_there_is_an_error_but_for_commands_that_make_one() {
    let place = Place::new();
    for line in ["list", "inspect a", "start a", "delete a", "branch url a", "project log", "project status"] {
        let line: Vec<&str> = line.split(' ').collect();
        let error = place.run(&[&["--store", "typo", "--json"], &line[..]].concat()).error(3);
        assert_eq!(error["kind"], "not_found", "{error}");
        assert!(error["message"].as_str().unwrap().contains("typo"), "{error}");
        assert!(error["hint"].is_string(), "{error}");
    }
    assert!(!place.path().join("typo").exists());
}

#[test]
fn a_worktree_that_is_none_is_named() {
    let place = Place::new();
    crate::harness::write(&place.path().join("file"), "");
    for worktree in ["nowhere", "file"] {
        let error = place.run(&["project", "setup", worktree, "--json"]).error(3);
        assert!(error["message"].as_str().unwrap().contains(worktree), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("project setup DIR"), "{error}");
    }
}

#[test]
fn versions_and_folders_of_postgres_that_cannot_be_are_told() {
    let place = Place::new();
    let error = place.run(&["create", "a", "--postgres-major", "99", "--json"]).error(2);
    assert_eq!(
        (&error["message"], &error["hint"]),
        (&"branch a: Postgres 99 is not supported".into(), &"forklift works with Postgres 13 to 18".into())
    );
    for (folder, said) in [("nowhere", "does not exist"), (".", "no postgres program")] {
        let error = place.run(&["--postgres", folder, "create", "a", "--json"]).error(3);
        assert_eq!(error["kind"], "postgres_not_found");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("--postgres ") && message.contains(said), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("forklift postgres list"), "{error}");
    }
}
