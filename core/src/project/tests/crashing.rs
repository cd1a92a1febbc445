//! kill -9 at each step of a restore, and at each step of its recovery.

use super::*;
use crate::ErrorKind;

/// Steps that a restore of files passes before its selection, and after.
const BEFORE: &[&str] = &["journal-written", "cluster-prepared", "files-staged", "prepared", "stopping", "safety-captured"];
const AFTER: &[&str] = &["selected", "files-installed", "installed", "journal-removed", "cleaned"];

#[test]
fn child_restore() {
    if let Some(project) = inherited() {
        restore(&project, "first");
    }
}

#[test]
fn child_recover() {
    if let Some(project) = inherited() {
        project.recover(&Control::silent()).unwrap();
    }
}

/// A restore killed at `step`: the machine, and the trees of the checkpoint and of before the restore.
fn killed(step: &str) -> (Machine, Project, [Tree; 2]) {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let first = tree(&machine.work());
    edit(&machine.work());
    let edited = tree(&machine.work());
    let status = machine.killed_at("crashing::child_restore", step);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{step}: {status}");
    (machine, project, [first, edited])
}

fn whole(machine: &Machine, project: &Project, expected: &Tree, step: &str) {
    assert_eq!(&tree(&machine.work()), expected, "{step}");
    assert_eq!(project.status(&Control::silent()).unwrap().pending, None, "{step}");
    assert_eq!(project.recover(&Control::silent()).unwrap().outcome, RecoverOutcome::Clean, "{step}");
    capture(project, "after");
    restore(project, "first");
    restore(project, "after");
    assert_eq!(&tree(&machine.work()), expected, "{step}");
}

#[test]
fn killed_before_the_selection_it_is_wholly_the_old() {
    for step in BEFORE {
        let (machine, project, [_, edited]) = killed(step);
        let error = project.capture("x", &CaptureOptions::default(), &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{step}");
        assert!(error.hint_text().unwrap().contains("project recover"));
        assert_eq!(project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err().kind(), ErrorKind::RecoveryNeeded);
        let report = project.recover(&Control::silent()).unwrap();
        assert_eq!(report.outcome, RecoverOutcome::RolledBack, "{step}");
        whole(&machine, &project, &edited, step);
    }
}

#[test]
fn killed_after_the_selection_it_is_wholly_the_new() {
    for step in AFTER {
        let (machine, project, [first, _]) = killed(step);
        let expected = if matches!(*step, "journal-removed" | "cleaned") { RecoverOutcome::Clean } else { RecoverOutcome::Finished };
        assert_eq!(project.recover(&Control::silent()).unwrap().outcome, expected, "{step}");
        whole(&machine, &project, &first, step);
    }
}

#[test]
fn a_recovery_may_be_killed_too() {
    for (step, again) in [
        ("safety-captured", "rollback-started"),
        ("safety-captured", "rollback-cluster-discarded"),
        ("safety-captured", "rollback-safety-removed"),
        ("selected", "files-installed"),
        ("selected", "installed"),
        ("installed", "journal-removed"),
    ] {
        let (machine, project, [first, edited]) = killed(step);
        let status = machine.killed_at("crashing::child_recover", again);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{step} {again}: {status}");
        project.recover(&Control::silent()).unwrap();
        whole(&machine, &project, if step == "safety-captured" { &edited } else { &first }, again);
    }
}

#[test]
fn an_edit_made_between_crash_and_recovery_is_kept() {
    let (machine, project, [first, _]) = killed("selected");
    write(&machine.work().join("app.py"), "by hand\n");
    let report = project.recover(&Control::silent()).unwrap();
    assert_eq!(report.outcome, RecoverOutcome::Finished);
    let kept = report.warnings.iter().find_map(|warning| warning.split_once("kept in ")).unwrap().1;
    assert_eq!(tree(Path::new(kept)).into_values().map(|(_, content)| content).find(|content| !content.is_empty()).unwrap(), b"by hand\n");
    assert_eq!(tree(&machine.work()), first);
}
