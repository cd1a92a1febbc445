//! What an edge costs and holds.

use super::*;
use crate::ErrorKind;

#[test]
fn an_unchanged_edge_repeats_the_last_checkpoint_without_fsync_or_ref() {
    let (machine, project) = Machine::with_project();
    let first = begin(&project, "a", "1", "");
    assert!(first.new_checkpoint && first.fsyncs > 0);
    let unchanged = end(&project, "a", "1", "");
    assert_eq!((unchanged.new_checkpoint, unchanged.fsyncs, &*unchanged.mode), (false, 0, "unchanged"));
    assert_eq!(unchanged.checkpoint, first.checkpoint);
    begin(&project, "a", "2", "");
    edit(&machine.work());
    let changed = end(&project, "a", "2", "");
    assert!(changed.new_checkpoint && changed.fsyncs <= 6, "{}", changed.fsyncs);
    let next = begin(&project, "a", "3", "");
    assert_eq!((next.checkpoint, next.fsyncs, next.bytes_stored), (changed.checkpoint.clone(), 0, 0));
    assert_eq!(refs(&project), [first.checkpoint.unwrap(), changed.checkpoint.unwrap()]);
}

#[test]
fn an_edge_holds_what_was_there_and_a_restore_brings_it_back() {
    let (machine, project) = Machine::with_project();
    let before = tree(&machine.work());
    let begun = begin(&project, "a", "1", "");
    edit(&machine.work());
    let after = tree(&machine.work());
    let ended = end(&project, "a", "1", "");
    restore(&project, &begun.checkpoint.unwrap());
    assert_eq!(tree(&machine.work()), before);
    restore(&project, &ended.checkpoint.unwrap());
    assert_eq!(tree(&machine.work()), after);
}

#[test]
fn the_ref_names_session_turn_and_tool_and_carries_the_records() {
    let (_machine, project) = Machine::with_project();
    let begun = begin(&project, "a", "1", "call-1");
    let (found, _) = project.refs().unwrap();
    assert_eq!((found[0].session.as_deref(), found[0].turn.as_deref(), found[0].tool.as_deref()), (Some("a"), Some("1"), Some("Bash")));
    let carried = crate::timeline::records_of(&found[0]);
    assert!(matches!(&carried[0].what, crate::timeline::What::Begin(begin) if begin.window == begun.window.id));
    let info = project.show(&found[0].id).unwrap();
    assert_eq!((&*info.kind, info.turn.as_deref()), ("turn", Some("1")));
    assert!(info.facts.get("timeline").is_none() && info.facts.get("coverage").is_some());
}

#[test]
fn case_21_what_a_shell_writes_is_seen() {
    let (machine, project) = Machine::with_project();
    turn(&project, "a", "1", || {
        let script = "cat > lib/heredoc.py <<'X'\nmade\nX\nrm app.py && mkdir empty && ln -s nowhere link";
        assert!(Command::new("sh").args(["-c", script]).current_dir(machine.work()).status().unwrap().success());
    });
    assert_eq!(changed(&project, "a", "1"), ["app.py", "empty", "lib/heredoc.py", "link"]);
}

#[test]
fn case_20_a_failed_turn_has_its_checkpoint_and_the_next_one_nothing_of_it() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "");
    edit(&machine.work());
    let failed = project.turn_end(&TurnEnd { failed: true, ..closing("a", "1", "") }, &Control::silent()).unwrap();
    assert_eq!(failed.window.state, WindowState::Failed);
    turn(&project, "a", "2", || {});
    assert_eq!(changed(&project, "a", "1").len(), 4);
    assert_eq!(changed(&project, "a", "2"), [""; 0]);
}

#[test]
fn case_20_an_interrupted_turn_is_closed_by_the_next_and_keeps_its_edits() {
    let (machine, project) = Machine::with_project();
    let first = begin(&project, "a", "1", "");
    edit(&machine.work());
    let second = begin(&project, "a", "2", "");
    assert_eq!(second.interrupted, [&*first.window.id]);
    end(&project, "a", "2", "");
    let found = windows(&project);
    assert_eq!((found[0].state, found[1].state), (WindowState::Interrupted, WindowState::Ended));
    assert_eq!(found[0].end, found[1].start);
    assert_eq!(changed(&project, "a", "1").len(), 4);
    assert_eq!(changed(&project, "a", "2"), [""; 0]);
    let late = end(&project, "a", "1", "");
    assert!(late.repeated && late.warnings[0].contains("interrupted"), "{late:?}");
    assert_eq!(windows(&project), found);
}

#[test]
fn case_10_case_27_a_capture_that_fails_leaves_no_window_and_no_restore_point() {
    let (machine, project) = Machine::with_project();
    for step in ["turn-paired", "turn-published"] {
        let failing = Project::open(
            &machine.work(),
            &ProjectOptions::default(),
            &machine.environment_with("FORKLIFT_FAILPOINT", &format!("{step}:fail")),
        )
        .unwrap();
        let error = failing.turn_begin(&opening("a", "1", ""), &Control::silent()).unwrap_err();
        assert!(error.message().contains(step), "{error}");
        if step == "turn-paired" {
            assert_eq!((windows(&project), refs(&project)), (vec![], vec![]));
        }
    }
    let begun = begin(&project, "a", "2", "");
    end(&project, "a", "2", "");
    restore(&project, &begun.checkpoint.unwrap());
}

#[test]
fn an_end_that_fails_leaves_the_window_open_to_be_ended_again() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "");
    edit(&machine.work());
    let failing =
        Project::open(&machine.work(), &ProjectOptions::default(), &machine.environment_with("FORKLIFT_FAILPOINT", "turn-paired:fail"));
    failing.unwrap().turn_end(&closing("a", "1", ""), &Control::silent()).unwrap_err();
    assert!(windows(&project)[0].is_open());
    end(&project, "a", "1", "");
    assert_eq!(changed(&project, "a", "1").len(), 4);
}

#[test]
fn case_54_many_processes_at_once_lose_nothing() {
    let (machine, project) = Machine::with_project();
    let children: Vec<_> = (0..6)
        .map(|number| machine.child("turns::edges::child_turns").env("FORKLIFT_TEST_NUMBER", number.to_string()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let found = windows(&project);
    assert_eq!(found.len(), 18);
    assert!(found.iter().all(|window| window.state == WindowState::Ended));
    let (timeline, damage) = project.timeline().unwrap();
    assert_eq!((timeline.last_number(), damage.torn), (36, 0));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "which of several processes this one is")]
fn child_turns() {
    let Some(project) = inherited() else { return };
    let session = std::env::var("FORKLIFT_TEST_NUMBER").unwrap();
    for number in 0..3 {
        turn(&project, &session, &number.to_string(), || {
            write(&project.root().join(format!("by-{session}")), &number.to_string());
        });
    }
}

#[test]
fn names_that_cannot_be_told_apart_or_shown_are_refused() {
    let (_machine, project) = Machine::with_project();
    for options in [
        opening("", "1", ""),
        opening("a", "", ""),
        opening("a\n", "1", ""),
        opening("a", &"x".repeat(513), ""),
        TurnOptions { tool: Some(String::new()), ..opening("a", "1", "") },
    ] {
        assert_eq!(project.turn_begin(&options, &Control::silent()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let owned = TurnOptions { owner: Some(u32::MAX), ..opening("a", "1", "") };
    assert_eq!(project.turn_begin(&owned, &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!log_file(&project).exists());
}

#[test]
fn without_a_program_for_it_a_background_begin_captures_before_it_returns() {
    let (machine, _) = Machine::with_project();
    let environment = machine.environment_with("FORKLIFT_KEEPER", "/nowhere");
    let project = Project::open(&machine.work(), &ProjectOptions::default(), &environment).unwrap();
    let begun = project.turn_begin(&TurnOptions { background: true, ..opening("a", "1", "") }, &Control::silent()).unwrap();
    assert!(begun.checkpoint.is_some() && begun.mode == "files");
    assert!(!cfg!(feature = "postgres") || begun.warnings[0].contains("/nowhere"), "{:?}", begun.warnings);
    assert_eq!(project.turn_wait("a", TurnData::Auto, &Control::silent()).unwrap().captured, [""; 0]);
}
