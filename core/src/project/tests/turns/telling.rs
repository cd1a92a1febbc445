//! What was edited by hand, and what the log tells.

use super::*;
use crate::ErrorKind;
use crate::files::ChangeKind;
use crate::timeline::RangeStart;

#[test]
fn case_24_edits_are_noted_by_the_path_below_the_root() {
    let (machine, _) = Machine::with_project();
    let project = machine.open(&machine.work().join("lib")).unwrap();
    std::os::unix::fs::symlink(machine.work(), machine.path("alias")).unwrap();
    write(&machine.work().join("lib/gone.py"), "once\n");
    project.edited(&["gone.py".into()], "human", &Control::silent()).unwrap();
    capture(&project, "with-it");
    std::fs::remove_file(machine.work().join("lib/gone.py")).unwrap();
    for folder in ["new", "new/deep"] {
        crate::sys::fs::make_folder(&machine.work().join(folder), 0o755).unwrap();
    }
    write(&machine.work().join("new/deep/file"), "new\n");
    let error = project.edited(&["util.py".into(), "nosuch".into()], "human", &Control::silent()).unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("lib/nosuch"), "{error}");
    for (given, noted) in [
        (PathBuf::from("util.py"), "lib/util.py"),
        (PathBuf::from("../app.py"), "app.py"),
        (PathBuf::from("./../lib/./gone.py"), "lib/gone.py"),
        (machine.work().join("app.py"), "app.py"),
        (machine.path("alias").join("lib/util.py"), "lib/util.py"),
        (machine.path("alias").join("new/deep/file"), "new/deep/file"),
        (machine.work().join("lib"), "lib"),
    ] {
        let report = project.edited(std::slice::from_ref(&given), "human", &Control::silent()).unwrap();
        assert_eq!((report.paths, report.fsyncs), (vec![noted.to_owned()], 1), "{}", given.display());
    }
    for wrong in [machine.path("other"), machine.work(), PathBuf::from(".."), PathBuf::from("../../store/x"), PathBuf::from("/")] {
        let error = project.edited(std::slice::from_ref(&wrong), "human", &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}", wrong.display());
    }
    assert_eq!(project.edited(&[], "human", &Control::silent()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(project.edited(&["a".into()], "", &Control::silent()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(project.timeline().unwrap().0.edits().count(), 8);
}

#[test]
fn case_1_an_edit_between_turns_is_a_gap_and_one_within_is_shared() {
    let (machine, project) = Machine::with_project();
    turn(&project, "a", "1", || write(&machine.work().join("app.py"), "agent 1\n"));
    write(&machine.work().join("app.py"), "human\n");
    let second = begin(&project, "a", "2", "");
    write(&machine.work().join("lib/util.py"), "who?\n");
    let told = project.edited(&[machine.work().join("lib")], "human", &Control::silent()).unwrap();
    assert_eq!(told.during, [&*second.window.id]);
    end(&project, "a", "2", "");
    let (timeline, _) = project.timeline().unwrap();
    let range = timeline.range("a", RangeStart::Before("1")).unwrap();
    assert_ne!(range.spans[0].end, range.spans[1].start);
    assert_eq!(range.edits.len(), 1);
    let details = project.show_turn(None, "2", &Control::silent()).unwrap();
    assert_eq!(details.paths[0].shared_with, ["human"]);
    assert_eq!(changed(&project, "a", "2"), ["lib/util.py"], "what the human did in between is not the turn's");
}

#[test]
fn case_3_a_turn_that_wrote_nothing_changed_nothing() {
    let (machine, project) = Machine::with_project();
    begin(&project, "a", "1", "");
    end(&project, "a", "1", "");
    write(&machine.work().join("app.py"), "fixed by hand\n");
    turn(&project, "a", "2", || {});
    let (turns, _) = project.turns(Some("a"), &Control::silent()).unwrap();
    assert_eq!(turns.iter().map(|info| (&*info.turn.turn, info.changed)).collect::<Vec<_>>(), [("2", 0), ("1", 0)]);
}

#[test]
fn changes_of_several_windows_are_told_as_one() {
    let (machine, project) = Machine::with_project();
    let work = machine.work();
    let gone = work.join("gone");
    for (call, tool) in [("1", "Write"), ("2", "Bash"), ("3", "Edit")] {
        let options = TurnOptions { tool: Some(tool.to_owned()), ..opening("a", "t", call) };
        project.turn_begin(&options, &Control::silent()).unwrap();
        match call {
            "1" => {
                write(&work.join("new"), "1");
                write(&gone, "1");
                std::fs::remove_file(work.join("app.py")).unwrap();
            }
            "2" => {
                write(&work.join("new"), "2");
                std::fs::remove_file(&gone).unwrap();
                write(&work.join("app.py"), "made again");
            }
            _ => std::fs::set_permissions(work.join("lib/util.py"), std::fs::Permissions::from_mode(0o600)).unwrap(),
        }
        end(&project, "a", "t", call);
    }
    let details = project.show_turn(Some("a"), "t", &Control::silent()).unwrap();
    let told: Vec<_> = details.paths.iter().map(|path| (&*path.path, path.kind, path.tools.join("+"))).collect();
    assert_eq!(
        told,
        [
            ("app.py", ChangeKind::Modified, "Write+Bash".to_owned()),
            ("lib/util.py", ChangeKind::Metadata, "Edit".to_owned()),
            ("new", ChangeKind::Added, "Write+Bash".to_owned()),
        ]
    );
    assert_eq!(details.info.calls.iter().map(|call| call.changed.unwrap()).collect::<Vec<_>>(), [3, 3, 1]);
}

#[test]
fn sessions_and_turns_that_there_are_not_are_told() {
    let (_machine, project) = Machine::with_project();
    let error = project.turns(Some("a"), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(project.turns(None, &Control::silent()).unwrap().0.is_empty());
    turn(&project, "a", "1", || {});
    turn(&project, "b", "1", || {});
    assert_eq!(project.turns(None, &Control::silent()).unwrap().0.len(), 2);
    let error = project.show_turn(None, "1", &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.hint_text().unwrap().contains("a, b"));
    assert_eq!(project.show_turn(None, "x", &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(project.show_turn(Some("a"), "x", &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn case_41_names_come_through_byte_by_byte() {
    use std::os::unix::ffi::OsStrExt;
    let (machine, project) = Machine::with_project();
    let names = [&b"a\xffb"[..], "日本 \"x\"".as_bytes(), b"new\nline", br"back\slash"];
    turn(&project, "a", "1", || {
        for name in names {
            write(&machine.work().join(std::ffi::OsStr::from_bytes(name)), "x");
        }
    });
    let mut expected: Vec<String> = names.iter().map(|name| crate::report::escape(name)).collect();
    expected.sort_by_key(|name| crate::timeline::tests_unescape(name));
    assert_eq!(changed(&project, "a", "1"), expected);
}
