//! Turns on real worktrees; tests named `case_N` are public failures of other tools.

mod blaming;
mod broken_off;
mod edges;
mod kept;
mod sharing;
mod telling;

use super::*;
use crate::timeline::{Owner, Window, WindowState};

fn opening(session: &str, turn: &str, call: &str) -> TurnOptions {
    TurnOptions {
        session: session.to_owned(),
        turn: turn.to_owned(),
        tool: Some("Bash".to_owned()),
        call: (!call.is_empty()).then(|| call.to_owned()),
        ..TurnOptions::default()
    }
}

fn closing(session: &str, turn: &str, call: &str) -> TurnEnd {
    TurnEnd { session: session.to_owned(), turn: turn.to_owned(), call: (!call.is_empty()).then(|| call.to_owned()), ..TurnEnd::default() }
}

#[track_caller]
fn begin(project: &Project, session: &str, turn: &str, call: &str) -> TurnReport {
    project.turn_begin(&opening(session, turn, call), &Control::silent()).unwrap()
}

#[track_caller]
fn end(project: &Project, session: &str, turn: &str, call: &str) -> TurnReport {
    project.turn_end(&closing(session, turn, call), &Control::silent()).unwrap()
}

/// A whole turn of one call that does this.
#[track_caller]
fn turn(project: &Project, session: &str, turn: &str, work: impl FnOnce()) -> TurnReport {
    begin(project, session, turn, "");
    work();
    end(project, session, turn, "")
}

fn windows(project: &Project) -> Vec<Window> {
    let (timeline, damage) = project.timeline().unwrap();
    assert!(damage.is_none(), "{damage:?}");
    timeline.windows().to_vec()
}

fn refs(project: &Project) -> Vec<String> {
    project.refs().unwrap().0.into_iter().map(|reference| reference.id).collect()
}

/// Names of what changed in a turn, with the tools and others that share it.
fn changed(project: &Project, session: &str, turn: &str) -> Vec<String> {
    let details = project.show_turn(Some(session), turn, &Control::silent()).unwrap();
    assert_eq!(details.info.changed as usize, details.paths.len());
    details.paths.into_iter().map(|path| path.path).collect()
}

fn log_file(project: &Project) -> PathBuf {
    project.folder.timeline().join("log")
}
