//! What agent hosts call, by recorded events of each (`tests/hosts`): the turns that come of them, and that a host is never kept from working.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Place, Said, read, write};

const HOSTS: [&str; 4] = ["claude-code", "codex", "gemini", "cursor"];

/// An event of a host that works in this folder.
fn event(host: &str, name: &str, folder: &Path) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(host).join(format!("{name}.json"));
    serde_json::from_str(&read(&path).replace("ROOT", folder.to_str().unwrap())).unwrap()
}

fn tell(place: &Place, host: &str, event: &Value) -> Said {
    // Hosts start their hooks in a folder of their own choice.
    place.told(place.path(), &["hook", host], event.to_string().as_bytes())
}

/// The answer to an event that went well: what the host takes as "go on", and no permission.
#[track_caller]
fn goes_on(host: &str, event: &Value, said: &Said) {
    assert_eq!((said.code, &*said.err), (0, ""), "{host}: {said:?}");
    let answer: Option<Value> = (!said.out.is_empty()).then(|| serde_json::from_str(&said.out).unwrap());
    let expected = match host {
        "cursor" if event["hook_event_name"] == "beforeSubmitPrompt" => Some(json!({ "continue": true })),
        "cursor" | "gemini" => Some(json!({})),
        _ => None,
    };
    assert_eq!(answer, expected, "{host}");
}

fn turns(place: &Place, folder: &Path) -> Value {
    place.run_in(folder, &["project", "log", "--turns", "--json"]).facts()
}

#[test]
fn the_events_of_every_host_open_and_close_turns() {
    for host in HOSTS {
        let place = Place::new();
        let folder = place.project_of_files();
        for round in 1..=2 {
            for name in ["1-prompt", "2-before", "3-after", "4-read", "5-stop", "6-end"] {
                if matches!((host, name), ("codex" | "cursor", "4-read") | ("codex", "6-end")) {
                    continue;
                }
                let mut event = event(host, name, &folder);
                for id in ["prompt_id", "turn_id", "generation_id"] {
                    if event.get(id).is_some() {
                        event[id] = json!(format!("turn-{round}"));
                    }
                }
                goes_on(host, &event, &tell(&place, host, &event));
                if name == "2-before" {
                    write(&folder.join("made.txt"), &format!("{round}\n"));
                }
            }
            // By hand, between two turns.
            write(&folder.join("code.txt"), &format!("{round}\n"));
        }
        let turns = turns(&place, &folder);
        let told: Vec<_> = turns.as_array().unwrap().iter().map(|turn| (turn["changed"].as_u64(), turn["state"].as_str())).collect();
        assert_eq!(told, [(Some(1), Some("ended")), (Some(1), Some("ended"))], "{host}: {turns:#}");
        let calls = turns[0]["calls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["instant"], &calls[1]["instant"]), (2, &json!(true), &json!(false)), "{host}");
        assert!(calls[0]["start"].is_string(), "{host}");
        let names = if host == "gemini" { ["prompt-2", "prompt-1"] } else { ["turn-2", "turn-1"] };
        assert_eq!([&turns[0]["turn"], &turns[1]["turn"]], [&json!(names[0]), &json!(names[1])], "{host}");
    }
}

#[test]
fn a_host_without_names_for_prompts_gets_turns_by_their_place() {
    let place = Place::new();
    let folder = place.project_of_files();
    for name in ["1-prompt", "2-before", "3-after", "5-stop", "1-prompt"] {
        let mut event = event("claude-code", name, &folder);
        event.as_object_mut().unwrap().remove("prompt_id");
        goes_on("claude-code", &event, &tell(&place, "claude-code", &event));
    }
    let turns = turns(&place, &folder);
    assert_eq!([&turns[0]["turn"], &turns[1]["turn"]], [&json!("prompt-2"), &json!("prompt-1")]);
}

#[test]
fn case_20_a_tool_that_was_interrupted_is_closed_by_the_end_of_the_turn_or_the_next_one() {
    let place = Place::new();
    let folder = place.project_of_files();
    tell(&place, "claude-code", &event("claude-code", "2-before", &folder));
    write(&folder.join("made.txt"), "half\n");
    tell(&place, "claude-code", &event("claude-code", "5-stop", &folder));
    let turns_now = turns(&place, &folder);
    assert_eq!((&turns_now[0]["state"], &turns_now[0]["changed"]), (&json!("ended"), &json!(1)));
    let mut again = event("claude-code", "2-before", &folder);
    again["tool_use_id"] = json!("toolu_2");
    tell(&place, "claude-code", &again);
    write(&folder.join("made.txt"), "more\n");
    let mut next = event("claude-code", "1-prompt", &folder);
    next["prompt_id"] = json!("msg_02");
    tell(&place, "claude-code", &next);
    let turns_now = turns(&place, &folder);
    assert_eq!((&turns_now[1]["state"], &turns_now[1]["changed"]), (&json!("interrupted"), &json!(1)));
}

#[test]
fn failed_tools_say_so() {
    let place = Place::new();
    let folder = place.project_of_files();
    let failures = [
        ("claude-code", "PostToolUseFailure", json!({ "error": "exit code 1" })),
        ("claude-code", "PostToolUse", json!({ "tool_response": { "success": false } })),
        ("gemini", "AfterTool", json!({ "tool_response": { "error": { "message": "no" } } })),
        ("cursor", "postToolUseFailure", json!({})),
    ];
    for (number, (host, name, more)) in failures.into_iter().enumerate() {
        for file in ["2-before", "3-after"] {
            let mut event = event(host, file, &folder);
            for id in ["session_id", "conversation_id"] {
                if event.get(id).is_some() {
                    event[id] = json!(format!("session-{number}"));
                }
            }
            if file == "3-after" {
                event["hook_event_name"] = json!(name);
                event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            }
            goes_on(host, &event, &tell(&place, host, &event));
        }
        assert_eq!(turns(&place, &folder)[0]["state"], "failed", "{host} {name}");
    }
}

#[test]
fn a_failure_of_ours_is_a_warning_and_never_in_the_way() {
    let place = Place::new();
    let folder = place.project_of_files();
    for host in HOSTS {
        let wrong = [
            ("not json".to_owned(), "no JSON"),
            ("[]".to_owned(), "no JSON object"),
            ("{}".to_owned(), "hook_event_name"),
            (String::new(), "no JSON"),
            (
                {
                    let mut event = event(host, "2-before", &folder);
                    event.as_object_mut().unwrap().retain(|name, _| !matches!(&**name, "session_id" | "conversation_id"));
                    event.to_string()
                },
                "names no session",
            ),
            (event(host, "3-after", &folder).to_string(), "is open"),
        ];
        for (told, why) in wrong {
            let said = place.told(place.path(), &["hook", host], told.as_bytes());
            assert_eq!(said.code, 0, "{host} {told}: {said:?}");
            assert!(said.err.starts_with("warning: forklift: ") && said.err.contains(why), "{host}: {said:?}");
            let answer: Value = serde_json::from_str(&said.out).unwrap();
            match host {
                "cursor" => assert_eq!(answer, json!({})),
                _ => assert!(answer["systemMessage"].as_str().unwrap().contains(why), "{host}: {said:?}"),
            }
        }
    }
    // A damaged project, and one that others hold alone.
    write(&folder.join(".forklift.json"), "{");
    let said = tell(&place, "claude-code", &event("claude-code", "2-before", &folder));
    assert_eq!(said.code, 0);
    assert!(said.err.contains(".forklift.json"), "{said:?}");
}

#[test]
fn a_folder_that_is_no_project_is_none_of_our_business() {
    let place = Place::new();
    for host in HOSTS {
        for name in ["1-prompt", "2-before", "3-after", "5-stop"] {
            let event = event(host, name, place.path());
            goes_on(host, &event, &tell(&place, host, &event));
        }
    }
    assert!(!place.store().exists());
}

fn settings(host: &str) -> &'static str {
    match host {
        "claude-code" => ".claude/settings.local.json",
        "codex" => ".codex/hooks.json",
        "gemini" => ".gemini/settings.json",
        _ => ".cursor/hooks.json",
    }
}

#[test]
fn install_shows_the_change_merges_it_once_and_can_be_taken_back() {
    let place = Place::new();
    let folder = place.project_of_files();
    for host in HOSTS {
        let path = folder.join(settings(host));
        let run = |words: &[&str]| place.process(&folder, &[&["hook"][..], words].concat());
        let said = run(&["install", host]);
        assert!(said.text().contains(&format!("hook {host}")) && said.err.contains("--yes"), "{said:?}");
        assert!(!path.exists(), "{host}");

        let event = if host == "cursor" { "stop" } else { "Stop" };
        let theirs = match host {
            "cursor" => json!({ "version": 1, "hooks": { event: [{ "command": "their.sh" }] } }),
            _ => json!({ "model": "x", "hooks": { event: [{ "hooks": [{ "type": "command", "command": "their.sh" }] }] } }),
        };
        forklift::sys::fs::make_folder(path.parent().unwrap(), 0o755).unwrap();
        write(&path, &theirs.to_string());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(run(&["install", host, "--yes"]).code, 0);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{host}");
        let installed: Value = serde_json::from_str(&read(&path)).unwrap();
        assert_eq!(installed["hooks"][event][0], theirs["hooks"][event][0], "{host}");
        let again = place.process(&folder, &["hook", "install", host, "--yes", "--json"]).facts();
        assert_eq!((&again["changes"], &again["content"]), (&json!(false), &installed), "{host}");

        // The command that it calls works.
        let first = &installed["hooks"].as_object().unwrap().values().next().unwrap()[0];
        let command = first.get("command").or_else(|| first["hooks"][0].get("command")).unwrap().as_str().unwrap();
        let mut shell = std::process::Command::new("sh").args(["-c", command]).stdin(std::process::Stdio::null()).spawn().unwrap();
        assert!(shell.wait().unwrap().success(), "{host}: {command}");

        assert_eq!(run(&["uninstall", host, "--yes"]).code, 0);
        assert_eq!(serde_json::from_str::<Value>(&read(&path)).unwrap(), theirs, "{host}");
        assert!(run(&["uninstall", host]).text().contains("needs no change"));
    }
}

#[test]
fn settings_that_are_no_plain_json_are_left_as_they_are() {
    let place = Place::new();
    let folder = place.project_of_files();
    let path = folder.join(".gemini/settings.json");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    for wrong in ["{ // a comment\n}", "[]", r#"{"hooks": []}"#, r#"{"hooks": {"BeforeTool": {}}}"#] {
        write(&path, wrong);
        let error = place.run_in(&folder, &["hook", "install", "gemini", "--yes", "--json"]).error(3);
        assert_eq!(error["kind"], "config", "{wrong}");
        assert_eq!(read(&path), wrong);
    }
    place.run_in(place.path(), &["hook", "install", "gemini", "--json"]).error(3);
}
