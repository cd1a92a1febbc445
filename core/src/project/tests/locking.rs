//! Managed commands, their token, and who has to wait for whom.

use std::ffi::OsString;

use super::*;
use crate::ErrorKind;

fn run(project: &Project, command: &[&str]) -> crate::Result<RunOutcome> {
    let command = command.iter().map(OsString::from).collect();
    project.run(&RunOptions { command }, &Control::silent())
}

/// The words that run a child test with this machine's variables.
fn words(machine: &Machine, test: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["env".into()];
    for (name, value) in machine.variables() {
        let mut word = OsString::from(format!("{name}="));
        word.push(value);
        words.push(word);
    }
    words.push(std::env::current_exe().unwrap().into());
    words.extend(["--exact", "-q"].map(OsString::from));
    words.push(format!("project::tests::{test}").into());
    words
}

#[test]
fn child_capture_and_restore() {
    if let Some(project) = inherited() {
        capture(&project, "inside");
        edit(project.root());
        restore(&project, "inside");
    }
}

/// Runs the same from one managed command further in.
#[test]
fn child_nested() {
    let Some(project) = inherited() else { return };
    let command = [
        std::env::current_exe().unwrap().into(),
        "--exact".into(),
        "-q".into(),
        "project::tests::locking::child_capture_and_restore".into(),
    ];
    assert_eq!(project.run(&RunOptions { command: command.to_vec() }, &Control::silent()).unwrap().code, Some(0));
}

#[test]
fn exit_code_signal_folder_and_token_reach_the_caller() {
    let (machine, project) = Machine::with_project();
    assert_eq!(run(&project, &["sh", "-c", "exit 7"]).unwrap(), RunOutcome { code: Some(7), signal: None });
    assert_eq!(run(&project, &["sh", "-c", "kill -9 $$"]).unwrap(), RunOutcome { code: None, signal: Some(9) });
    let below = machine.open(&machine.work().join("lib")).unwrap();
    assert_eq!(run(&below, &["sh", "-c", "test -e util.py && test ${#FORKLIFT_RUN_TOKEN} = 32"]).unwrap().code, Some(0));
    assert!(project.status(&Control::silent()).unwrap().running.is_empty());
}

#[test]
fn named_commands_run_in_the_root_and_unknown_programs_are_named() {
    let (machine, project) = Machine::with_project();
    write(&machine.work().join(".forklift.json"), r#"{"format": 1, "commands": {"verify": ["test", "-e", "app.py"]}}"#);
    assert_eq!(run(&machine.open(&machine.work().join("lib")).unwrap(), &["verify"]).unwrap().code, Some(0));
    let error = run(&project, &["no-such-program-here"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("no-such-program-here"), "{error}");
    assert_eq!(run(&project, &["./app.py"]).unwrap_err().kind(), ErrorKind::Permission);
    let error = run(&project, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.hint_text().unwrap().contains("verify"));
}

#[test]
fn a_restore_from_outside_waits_for_nobody_and_names_the_command() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    edit(&machine.work());
    let ready = machine.path("ready");
    let cancel = crate::CancelToken::new();
    std::thread::scope(|scope| {
        let script = format!("touch {}; exec sleep 600", ready.display());
        let control = Control::new(cancel.clone(), None);
        let project = &project;
        let running = scope.spawn(move || project.run(&RunOptions { command: vec!["sh".into(), "-c".into(), script.into()] }, &control));
        while !ready.exists() {
            std::thread::yield_now();
        }
        let error = project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
        let status = project.status(&Control::silent()).unwrap();
        // A capture is allowed meanwhile.
        let captured = project.capture("during", &CaptureOptions::default(), &Control::silent());
        let forgotten = project.forget(&["first".to_owned()], true, &Control::silent()).unwrap_err();
        let forged = machine.environment_with("FORKLIFT_RUN_TOKEN", &"0".repeat(32));
        let outsider = Project::open(&machine.work(), &ProjectOptions::default(), &forged).unwrap();
        let forged = outsider.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
        cancel.cancel();
        assert_eq!(running.join().unwrap().unwrap().signal, Some(15), "a cancelled run ends its child");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.message().contains("sleep 600") && error.message().contains(&std::process::id().to_string()), "{error}");
        assert_eq!(status.running.len(), 1);
        captured.unwrap();
        assert_eq!((forgotten.kind(), forged.kind()), (ErrorKind::Busy, ErrorKind::Busy));
    });
    restore(&project, "first");
}

#[test]
fn a_command_captures_and_restores_from_within() {
    let (machine, project) = Machine::with_project();
    let before = tree(&machine.work());
    for test in ["locking::child_capture_and_restore", "locking::child_nested"] {
        let outcome = project.run(&RunOptions { command: words(&machine, test) }, &Control::silent()).unwrap();
        assert_eq!(outcome.code, Some(0), "{test}");
        assert_eq!(tree(&machine.work()), before, "{test}");
        project.forget(&["inside".to_owned()], true, &Control::silent()).unwrap();
    }
}

#[test]
fn two_restores_at_once_leave_one_of_the_two_states() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let first = tree(&machine.work());
    edit(&machine.work());
    capture(&project, "second");
    let second = tree(&machine.work());
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for name in ["first", "second"] {
                let project = &project;
                scope.spawn(move || {
                    if let Err(error) = project.restore(name, &RestoreOptions::default(), &Control::silent()) {
                        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    }
                });
            }
        });
        let now = tree(&machine.work());
        assert!(now == first || now == second);
    }
}

#[test]
fn what_a_killed_command_held_is_free_again() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let mut child = machine.child("locking::child_sleeps").spawn().unwrap();
    while project.status(&Control::silent()).unwrap().running.is_empty() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    restore(&project, "first");
    assert!(crate::sys::fs::names(&project.folder.holders()).unwrap().is_empty(), "reaped");
}

#[test]
fn child_sleeps() {
    if let Some(project) = inherited() {
        // Ends by itself once its parent is gone.
        run(&project, &["sh", "-c", "while kill -0 $PPID 2>/dev/null; do sleep 0.05; done"]).unwrap();
    }
}
