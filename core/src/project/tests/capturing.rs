//! Captures, the log, and what is refused.

use super::*;
use crate::ErrorKind;
use crate::files::ChangeKind;

fn refused(project: &Project, name: &str) -> crate::Error {
    project.capture(name, &CaptureOptions::default(), &Control::silent()).unwrap_err()
}

#[test]
fn a_capture_is_listed_shown_and_compared() {
    let (machine, project) = Machine::with_project();
    let report = capture(&project, "first");
    assert_eq!((report.mode.as_str(), report.name.as_str()), ("files", "first"));
    assert!(report.bytes_read > 0 && report.bytes_new > 0 && report.bytes_stored > 0 && report.fsyncs > 0, "{report:?}");
    edit(&machine.work());
    capture(&project, "second");
    let (log, unreadable) = project.log().unwrap();
    assert_eq!(log.iter().map(|info| info.name.as_deref().unwrap()).collect::<Vec<_>>(), ["second", "first"]);
    assert!(unreadable.is_empty());
    assert_eq!(project.show(&report.id).unwrap().name.as_deref(), Some("first"));
    assert_eq!(project.show(&report.id[..25]).unwrap_or_else(|_| project.show("first").unwrap()).id, report.id);
    let changes = project.diff("first", Some("second"), &Control::silent()).unwrap();
    let expected = [
        ("app.py", ChangeKind::Modified),
        ("lib/util.py", ChangeKind::Removed),
        ("new", ChangeKind::Added),
        ("new/made.py", ChangeKind::Added),
    ];
    let found: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
    assert_eq!(found, expected);
    assert_eq!(project.diff("first", None, &Control::silent()).unwrap(), changes);
    assert_eq!(project.diff("second", None, &Control::silent()).unwrap(), []);
    let status = project.status(&Control::silent()).unwrap();
    assert_eq!((status.changed, status.pending, status.last.unwrap().name.as_deref()), (0, None, Some("second")));
}

#[test]
fn names_that_are_taken_wrong_or_unknown_are_told() {
    let (_machine, project) = Machine::with_project();
    capture(&project, "before-migration");
    let error = refused(&project, "before-migration");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(refused(&project, "a/b").kind(), ErrorKind::InvalidArgument);
    let error = project.show("before-migraton").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint_text().unwrap().contains("before-migration"), "{error:?}");
    capture(&project, "other");
    let error = project.show("0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("before-migration") && error.message().contains("other"), "{error}");
    assert_eq!(project.log().unwrap().0.len(), 2);
}

#[test]
fn two_captures_at_once_both_succeed_and_one_name_is_given_once() {
    let (machine, project) = Machine::with_project();
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = |name: &'static str| {
            let project = &project;
            scope.spawn(move || project.capture(name, &CaptureOptions::default(), &Control::silent()))
        };
        let running = [start("a"), start("b"), start("same"), start("same")];
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3, "{results:?}");
    let failed = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(failed.kind(), ErrorKind::AlreadyExists);
    edit(&machine.work());
    for name in ["a", "b", "same"] {
        restore(&project, name);
        assert_eq!(read(&machine.work().join("app.py")), "version = 1\n");
    }
}

#[test]
fn a_cancelled_or_failed_capture_leaves_nothing() {
    let (machine, project) = Machine::with_project();
    let cancel = crate::CancelToken::new();
    cancel.cancel();
    let error = project.capture("x", &CaptureOptions::default(), &Control::new(cancel, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let environment = machine.environment_with("FORKLIFT_FAILPOINT", "capture-paired");
    let failing = Project::open(&machine.work(), &ProjectOptions::default(), &environment).unwrap();
    assert_eq!(refused(&failing, "x").kind(), ErrorKind::Io);
    assert!(project.log().unwrap().0.is_empty());
    assert!(project.status(&Control::silent()).unwrap().running.is_empty());
    capture(&project, "x");
}

#[test]
fn a_broken_settings_file_refuses_a_capture_and_a_restore_mends_it() {
    let (machine, project) = Machine::with_project();
    capture(&project, "sound");
    write(&machine.work().join(".forklift.json"), r#"{"format": 1, "sauce": []}"#);
    let error = refused(&project, "x");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("sauce"), "{error}");
    let report = restore(&project, "sound");
    assert!(report.warnings.iter().any(|warning| warning.contains("sauce")), "{report:?}");
    capture(&project, "x");
}

#[test]
fn the_checkpoints_of_another_project_are_not_seen() {
    let (machine, project) = Machine::with_project();
    capture(&project, "mine");
    let other = machine.path("other");
    write(&other.join("x"), "x");
    let (other, _) = machine.setup(&other).unwrap();
    assert!(other.log().unwrap().0.is_empty());
    assert_eq!(other.show("mine").unwrap_err().kind(), ErrorKind::NotFound);
    capture(&other, "mine");
}
