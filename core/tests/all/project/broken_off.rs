//! Captures and restores that are cancelled in each of their parts, or whose process is killed while the server is down.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use forklift::branch::CaptureMode;

use forklift::{CancelToken, ErrorKind, Progress, ProgressSink};

use super::*;
use crate::support::wait_for;

/// Cancels at the first report of a part, as Ctrl-C in it would; notes the parts.
struct CancelAt {
    part: &'static str,
    token: CancelToken,
    seen: Mutex<BTreeSet<String>>,
}

impl ProgressSink for CancelAt {
    fn report(&self, progress: Progress<'_>) {
        self.seen.lock().unwrap().insert(progress.step.to_owned());
        if progress.step == self.part {
            self.token.cancel();
        }
    }
}

/// A control that is cancelled in this part, and what it has seen.
fn cancelled_in(part: &'static str) -> (Control, Arc<CancelAt>) {
    let token = CancelToken::new();
    let sink = Arc::new(CancelAt { part, token: token.clone(), seen: Mutex::default() });
    (Control::new(token, Some(sink.clone())), sink)
}

#[test]
fn cancelled_in_any_part_everything_is_as_it_was() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    capture(&project, "start");
    edit(&work, &branch);
    let before = state(&work, &branch);
    let as_before = |what: &str| {
        assert_eq!(branch.info().unwrap().state, ServerState::Running, "{what}");
        assert_eq!(state(&work, &branch), before, "{what}");
        assert_eq!((project.log().unwrap().0.len(), branch.clusters().unwrap().len()), (1, 1), "{what}");
        assert_eq!(project.status(&silent()).unwrap().pending, None, "{what}");
    };
    for (mode, parts) in
        [(CaptureMode::Online, &["read files", "store cluster"][..]), (CaptureMode::Stopped, &["store cluster", "start server"])]
    {
        for part in parts {
            let (control, sink) = cancelled_in(part);
            let error = project.capture("x", &CaptureOptions { mode }, &control).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{mode:?} {part}: {error}");
            assert!(sink.seen.lock().unwrap().contains(*part), "{mode:?} {part}");
            as_before(part);
        }
    }
    for part in ["write cluster", "start server", "stop server", "stage files", "store cluster"] {
        let (control, sink) = cancelled_in(part);
        let error = project.restore("start", &RestoreOptions::default(), &control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "restore {part}: {error}");
        assert!(sink.seen.lock().unwrap().contains(part), "restore {part}");
        as_before(part);
    }
    // What is selected is finished.
    let (control, sink) = cancelled_in("install files");
    project.restore("start", &RestoreOptions::default(), &control).unwrap();
    assert!(sink.token.is_cancelled());
    assert_eq!(read(&work.join("app.py")), "version = 1\n");
}

#[test]
fn child_captures_by_stopping() {
    let Some(project) = inherited() else { return };
    project.capture("killed", &CaptureOptions { mode: CaptureMode::Stopped }, &silent()).unwrap();
}

#[test]
fn killed_while_the_server_is_down_for_it_a_capture_leaves_the_database_usable() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let before = state(&work, &branch);
    let address = branch.record().address.clone();
    let mut child = world.child("broken_off::child_captures_by_stopping", "").spawn().unwrap();
    // The public socket goes first and comes back last.
    wait_for("the server to be stopped", || !address.is_public());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(project.log().unwrap().0.len(), 0);
    branch.start(StartOptions::default(), &silent()).unwrap();
    assert_eq!(state(&work, &branch), before);
    capture(&project, "again");
    edit(&work, &branch);
    restore(&project, "again");
    assert_eq!(state(&work, &branch), before);
    let folder = branch.info().unwrap().data.ancestors().nth(3).unwrap().to_owned();
    let left: Vec<_> =
        forklift::sys::fs::names(&folder).unwrap().into_iter().filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}
