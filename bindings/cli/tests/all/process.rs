//! What only a process has: exit codes of commands, signals, a reader that goes away.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Place, Said, read, write};

fn files_only(place: &Place) -> PathBuf {
    let folder = place.path().join("work");
    std::fs::create_dir(&folder).unwrap();
    write(&folder.join("a.txt"), "one\n");
    write(&folder.join(".forklift.json"), r#"{"format": 1, "commands": {"verify": ["sh", "-c", "echo verified"]}}"#);
    place.run_in(&folder, &["project", "setup", "--files-only"]).text();
    folder
}

#[test]
fn run_passes_on_how_its_command_ended() {
    let place = Place::new();
    let folder = files_only(&place);
    for (command, code) in [("true", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        assert_eq!(place.process(&folder, &["project", "run", "sh", "-c", command]).code, code, "{command}");
    }
    assert_eq!(place.process(&folder, &["project", "run", "verify"]).text(), "verified\n");
    assert_eq!(place.process(&folder, &["project", "run", "--", "echo", "--json"]).text(), "--json\n");
    let missing = place.process(&folder, &["project", "run", "no-such-program"]);
    assert!(missing.code != 0 && missing.err.contains("no-such-program"), "{missing:?}");
}

// What these commands wait for goes with the test's folder, so that none outlives a test that fails.
#[test]
fn ctrl_c_does_not_end_run_before_its_command() {
    let place = Place::new();
    let folder = files_only(&place);
    let script = "trap 'echo caught; exit 9' INT; echo ready; while [ -e a.txt ]; do sleep 0.05; done";
    let mut child = place.command(&folder, &["project", "run", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    // As a terminal does, to both of them; forklift first.
    let shell = children(child.id());
    kill("INT", child.id());
    shell.iter().for_each(|pid| kill("INT", *pid));
    assert_eq!(lines.next().as_deref(), Some("caught"));
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_request_to_terminate_ends_run_and_its_command() {
    let place = Place::new();
    let folder = files_only(&place);
    let mut child = place
        .command(&folder, &["project", "run", "sh", "-c", "echo ready; while [ -e a.txt ]; do sleep 0.05; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    kill("TERM", child.id());
    let code = child.wait().unwrap().code();
    assert!(code == Some(143) || code == Some(130), "{code:?}");
    // The command held the other end of the pipe.
    assert_eq!(lines.next(), None);
}

#[test]
fn ctrl_c_ends_an_operation_and_leaves_nothing() {
    let place = Place::new();
    let seed = "echo $$ > pid; mv pid ready; while [ -e ready ]; do sleep 0.05; done";
    let mut child = place.command(place.path(), &["create", "main", "--seed", seed, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let ready = place.path().join("ready");
    until(|| ready.exists(), "the seed runs");
    let seed = read(&ready);
    // Twice: the second one changes nothing.
    kill("INT", child.id());
    kill("INT", child.id());
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let said = Said { code: u8::try_from(child.wait().unwrap().code().unwrap()).unwrap(), out, err: String::new() };
    assert_eq!(said.error(130)["kind"], "cancelled");
    assert!(!Path::new("/proc").join(seed.trim()).exists());
    assert_eq!(place.run(&["list", "--json"]).facts(), serde_json::json!([]));
    let left = place.store().join("branches").read_dir().unwrap().map(Result::unwrap).find(|entry| entry.path().is_dir());
    assert!(left.is_none(), "{left:?}");
}

#[test]
fn a_command_captures_and_restores_from_within() {
    let place = Place::new();
    let folder = place.project("agent");
    let forklift = env!("CARGO_BIN_EXE_forklift");
    let change = place.psql("UPDATE notes SET text = 'two'");
    let script = format!(
        "set -e; '{forklift}' project capture inside; echo two > code.txt; {change}; \
         '{forklift}' -q project restore inside; cat code.txt; {}",
        place.psql("SELECT text FROM notes")
    );
    let said = place.process(&folder, &["project", "run", "sh", "-c", &script]);
    assert!(said.text().ends_with("\none\none\n"), "{said:?}");
    // From outside, meanwhile, a restore is refused and names the command.
    let script = "echo ready; cat";
    let mut child =
        place.command(&folder, &["project", "run", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let error = place.run_in(&folder, &["project", "restore", "inside", "--json"]).error(4);
    assert_eq!(error["kind"], "busy");
    assert!(error["message"].as_str().unwrap().contains("echo ready; cat"), "{error}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = place.command(place.path(), &["help"]).stdout(writer).output().unwrap();
    assert_eq!((said.status.code(), said.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let place = Place::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let said = place.command(place.path(), &["list", "--json"]).stdout(full).output().unwrap();
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("standard output"), "{said:?}");
}

/// Waits for a condition, at most a minute.
#[track_caller]
fn until(condition: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("sh").args(["-c", &format!("kill -s {signal} {pid}")]).status().unwrap().success());
}

/// The processes whose parent this is.
fn children(parent: u32) -> Vec<u32> {
    let list = read(Path::new(&format!("/proc/{parent}/task/{parent}/children")));
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
