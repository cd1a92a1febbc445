//! Line by line, and any state in a folder of its own.

use super::*;
use crate::ErrorKind;

/// `text | who` of each line.
fn blamed(project: &Project, path: &str) -> Vec<String> {
    let report = project.blame(&project.root().join(path), &Control::silent()).unwrap();
    let who = |author: &crate::timeline::Author| match author {
        crate::timeline::Author::Agent { session, turn, tools } => format!("{session} {turn} {}", tools.join("+")),
        crate::timeline::Author::Named { name } => name.clone(),
        crate::timeline::Author::Unknown => "?".to_owned(),
    };
    report.lines.iter().map(|line| format!("{} | {}", line.text, who(&line.author))).collect()
}

#[test]
fn every_line_has_its_turn_tool_and_author() {
    let (machine, project) = Machine::with_project();
    let file = machine.work().join("app.py");
    turn(&project, "a", "1", || write(&file, "version = 1\nagent 1\n"));
    write(&file, "unknown\nversion = 1\nagent 1\n");
    turn(&project, "a", "2", || write(&file, "unknown\nversion = 1\nagent 1\nagent 2\n"));
    project.edited(std::slice::from_ref(&file), "human", &Control::silent()).unwrap();
    write(&file, "unknown\nversion = 1\nhuman\nagent 2\n");
    begin(&project, "a", "3", "");
    begin(&project, "b", "1", "");
    write(&file, "unknown\nversion = 1\nhuman\nagent 2\nnobody's\n");
    end(&project, "a", "3", "");
    end(&project, "b", "1", "");
    write(&file, "unknown\nversion = 1\nhuman\nagent 2\nnobody's\non disk\n");
    let expected = ["unknown | ?", "version = 1 | ?", "human | human", "agent 2 | a 2 Bash", "nobody's | ?", "on disk | ?"];
    assert_eq!(blamed(&project, "app.py"), expected);
    write(&file, "agent 2\n");
    assert_eq!(blamed(&project, "app.py"), ["agent 2 | a 2 Bash"]);
}

#[test]
fn a_file_that_a_turn_made_is_its_own_and_one_that_is_open_too() {
    let (machine, project) = Machine::with_project();
    turn(&project, "a", "1", || write(&machine.work().join("new/deep.py"), "one\ntwo"));
    begin(&project, "a", "2", "");
    write(&machine.work().join("new/deep.py"), "one\ntwo\nthree\n");
    assert_eq!(blamed(&project, "new/deep.py"), ["one | a 1 Bash", "two | a 1 Bash", "three | a 2 Bash"]);
    write(&machine.work().join("empty"), "");
    assert_eq!(blamed(&project, "empty"), [""; 0]);
}

#[test]
fn what_has_no_lines_is_refused_by_name() {
    let (machine, project) = Machine::with_project();
    write(&machine.work().join("binary"), "a\0b");
    std::os::unix::fs::symlink("app.py", machine.work().join("link")).unwrap();
    for (path, kind) in [
        ("binary", ErrorKind::InvalidArgument),
        ("link", ErrorKind::NotFound),
        ("lib", ErrorKind::NotFound),
        ("gone", ErrorKind::NotFound),
        ("../other", ErrorKind::InvalidArgument),
    ] {
        let error = project.blame(&machine.work().join(path), &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
}

#[test]
fn what_a_turn_left_is_put_into_a_folder_and_the_worktree_is_not_touched() {
    let (machine, project) = Machine::with_project();
    let before = tree(&machine.work());
    turn(&project, "a", "1", || {});
    let mut states = vec![before];
    for number in 2..4 {
        turn(&project, "a", &number.to_string(), || {
            edit(&machine.work());
            write(&machine.work().join("number"), &number.to_string());
        });
        states.push(tree(&machine.work()));
        write(&machine.work().join("lib/util.py"), "back\n");
    }
    let now = tree(&machine.work());
    for (number, state) in (1..).zip(&states) {
        let folder = machine.path(&format!("replay-{number}"));
        let report = project.replay(Some("a"), &number.to_string(), &folder, &Control::silent()).unwrap();
        assert_eq!((report.entries as usize, report.turn.as_deref()), (state.len(), Some(&*number.to_string())));
        assert_eq!(&tree(&folder), state, "{number}");
        assert_eq!(project.replay(None, &report.checkpoint, &folder, &Control::silent()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    assert_eq!(tree(&machine.work()), now);
    for (what, folder, kind) in [
        ("9", machine.path("x"), ErrorKind::NotFound),
        ("1", machine.work().join("sub"), ErrorKind::InvalidArgument),
        ("1", machine.path(""), ErrorKind::InvalidArgument),
    ] {
        assert_eq!(project.replay(None, what, &folder, &Control::silent()).unwrap_err().kind(), kind, "{}", folder.display());
    }
    begin(&project, "a", "4", "");
    assert_eq!(project.replay(Some("a"), "4", &machine.path("y"), &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
}
