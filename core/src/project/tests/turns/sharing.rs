//! Parallel tools, two sessions, owners that die, and who may work when.

use super::*;
use crate::ErrorKind;
use crate::timeline::RangeStart;

#[test]
fn parallel_tools_of_a_turn_share_what_changed() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "x");
    write(&machine.work().join("x"), "x");
    begin(&project, "a", "1", "y");
    write(&machine.work().join("y"), "y");
    end(&project, "a", "1", "x");
    write(&machine.work().join("y2"), "y");
    end(&project, "a", "1", "y");
    assert_eq!(changed(&project, "a", "1"), ["x", "y", "y2"]);
    let (timeline, _) = project.timeline().unwrap();
    assert_eq!(timeline.range("a", RangeStart::Before("1")).unwrap().spans.len(), 1);
}

#[test]
fn a_begin_that_is_told_twice_is_one_window_and_an_end_too() {
    let (machine, project) = Machine::with_project();
    let first = begin(&project, "a", "1", "x");
    write(&machine.work().join("x"), "x");
    let again = begin(&project, "a", "1", "x");
    assert!(again.repeated && again.window == first.window && again.checkpoint == first.checkpoint);
    let ended = end(&project, "a", "1", "x");
    let twice = end(&project, "a", "1", "x");
    assert!(twice.repeated && twice.window == ended.window);
    assert_eq!(windows(&project).len(), 1);
    for wrong in [closing("a", "1", "y"), closing("a", "2", ""), closing("b", "1", "")] {
        let error = project.turn_end(&wrong, &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn case_19_overlapping_windows_of_two_sessions_say_so() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "");
    begin(&project, "b", "1", "");
    write(&machine.work().join("x"), "x");
    end(&project, "a", "1", "");
    end(&project, "b", "1", "");
    turn(&project, "a", "2", || write(&machine.work().join("y"), "y"));
    let details = project.show_turn(Some("a"), "1", &Control::silent()).unwrap();
    assert!(details.info.turn.overlaps_other_session);
    assert_eq!(details.paths[0].shared_with, ["another session"]);
    assert!(!project.show_turn(Some("a"), "2", &Control::silent()).unwrap().info.turn.overlaps_other_session);
}

/// A process that lives until it is killed, also after a failed test.
struct Process(std::process::Child);

impl Process {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdout(std::process::Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_killed_owner_ends_its_window_at_the_next_call_of_anybody() {
    for closed_by in ["begin", "end", "close"] {
        let (machine, project) = Machine::with_project();
        let owner = Process::new();
        if closed_by == "end" {
            begin(&project, "b", "1", "");
        }
        let owned = TurnOptions { owner: Some(owner.0.id()), ..opening("a", "1", "") };
        let begun = project.turn_begin(&owned, &Control::silent()).unwrap();
        assert_eq!(begun.window.owner, Some(Owner::of(owner.0.id()).unwrap()));
        write(&machine.work().join("x"), "by the killed one");
        assert_eq!(project.close_abandoned(&Control::silent()).unwrap(), [""; 0], "its owner lives");
        drop(owner);
        let interrupted = match closed_by {
            "begin" => begin(&project, "b", "1", "").interrupted,
            "end" => end(&project, "b", "1", "").interrupted,
            _ => project.close_abandoned(&Control::silent()).unwrap(),
        };
        assert_eq!(interrupted, [&*begun.window.id], "{closed_by}");
        let (timeline, _) = project.timeline().unwrap();
        let window = timeline.window(&begun.window.id).unwrap();
        assert_eq!((window.state, window.overlaps_other_session), (WindowState::Interrupted, closed_by == "end"), "{closed_by}");
        assert_eq!(changed(&project, "a", "1"), ["x"], "{closed_by}");
    }
}

#[test]
fn turns_work_inside_a_managed_command_and_beside_another() {
    let (machine, project) = Machine::with_project();
    let mut words: Vec<std::ffi::OsString> = vec!["env".into()];
    for (name, value) in machine.variables() {
        let mut word = std::ffi::OsString::from(format!("{name}="));
        word.push(value);
        words.push(word);
    }
    words.extend([std::env::current_exe().unwrap().into(), "--exact".into(), "-q".into()]);
    words.push("project::tests::turns::sharing::child_turn_inside".into());
    assert_eq!(project.run(&RunOptions { command: words }, &Control::silent()).unwrap().code, Some(0));
    assert_eq!(changed(&project, "inside", "1"), ["made"]);
}

#[test]
fn child_turn_inside() {
    let Some(project) = inherited() else { return };
    assert!(project.inside().is_some());
    turn(&project, "inside", "1", || write(&project.root().join("made"), "inside"));
}

#[test]
fn while_a_restore_is_pending_no_window_opens_or_closes() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    turn(&project, "a", "1", || edit(&machine.work()));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&machine.killed_at("crashing::child_restore", "selected")), Some(9));
    for error in [
        project.turn_begin(&opening("a", "2", ""), &Control::silent()).unwrap_err(),
        project.turn_end(&closing("a", "1", ""), &Control::silent()).unwrap_err(),
        project.turn_wait("a", TurnData::Auto, &Control::silent()).unwrap_err(),
        project.edited(&["app.py".into()], "human", &Control::silent()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{error}");
    }
    project.recover(&Control::silent()).unwrap();
    turn(&project, "a", "2", || {});
}

#[test]
fn while_somebody_works_alone_a_turn_is_told_who() {
    let (_machine, project) = Machine::with_project();
    let alone = project.alone("restore first", &Control::silent()).unwrap();
    let error = project.turn_begin(&opening("a", "1", ""), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains("restore first"), "{error}");
    drop(alone);
    begin(&project, "a", "1", "");
}

#[test]
fn a_worktree_that_was_replaced_is_not_captured() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "");
    rename(&machine.work(), &machine.path("old"));
    crate::sys::fs::make_folder(&machine.work(), 0o755).unwrap();
    assert_eq!(project.turn_end(&closing("a", "1", ""), &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::remove_dir(machine.work()).unwrap();
    std::os::unix::fs::symlink(machine.path("old"), machine.work()).unwrap();
    assert!(project.turn_end(&closing("a", "1", ""), &Control::silent()).is_err());
    assert!(windows(&project)[0].is_open());
}
