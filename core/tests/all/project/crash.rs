//! kill -9 at each step of a restore: wholly the old pair or wholly the new one, files and rows.

use std::os::unix::process::ExitStatusExt;

use forklift::ErrorKind;
use forklift::branch::ServerState;
use forklift::project::RecoverOutcome;

use super::*;

#[test]
fn child_restore() {
    if let Some(project) = inherited() {
        restore(&project, "start");
    }
}

#[test]
fn child_recover() {
    if let Some(project) = inherited() {
        project.recover(&silent()).unwrap();
    }
}

#[test]
fn child_setup() {
    let Some(top) = parent() else { return };
    let setup = SetupOptions { from: Some("main".to_owned()), ..SetupOptions::default() };
    Project::setup(&top.join("work"), &setup, &ProjectOptions::default(), &Environment::read(), &silent()).unwrap();
}

fn killed(world: &World, child: &str, step: &str) {
    let status = world.child(child, &format!("{step}:kill")).status().unwrap();
    assert_eq!(status.signal(), Some(9), "{child} {step}: {status}");
}

/// Every step that a restore passes with a running server, and whether the pair is selected by then.
const STEPS: &[(&str, bool)] = &[
    ("journal-written", false),
    ("cluster-prepared", false),
    ("files-staged", false),
    ("prepared", false),
    ("stopping", false),
    ("branch-held", false),
    ("server-stopped", false),
    ("safety-captured", false),
    ("selected", true),
    ("branch-selected", true),
    ("files-installed", true),
    ("installed", true),
    ("branch-released", true),
    ("server-started", true),
    ("journal-removed", true),
    ("cleaned", true),
];

/// One restore after another on one project; `steps` are killed in it and recovered, some recoveries killed too.
fn matrix(steps: &[(&str, bool)], recovery_steps: &[&str]) {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    capture(&project, "start");
    let start = state(&work, &branch);
    for (step, selected) in steps {
        edit(&work, &branch);
        let edited = state(&work, &branch);
        killed(&world, "crash::child_restore", step);
        let over = matches!(*step, "journal-removed" | "cleaned");
        if !over {
            let error = project.capture("x", &CaptureOptions::default(), &silent()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{step}");
        }
        for again in recovery_steps {
            killed(&world, "crash::child_recover", again);
        }
        let report = project.recover(&silent()).unwrap();
        let expected = match (over, selected) {
            (true, _) => RecoverOutcome::Clean,
            (false, true) => RecoverOutcome::Finished,
            (false, false) => RecoverOutcome::RolledBack,
        };
        assert_eq!((report.outcome, report.warnings.as_slice()), (expected, &[][..]), "{step}");
        assert_eq!(branch.info().unwrap().state, ServerState::Running, "{step}");
        assert_eq!(branch.info().unwrap().held, None, "{step}");
        assert_eq!(state(&work, &branch), if *selected { start.clone() } else { edited }, "{step}");
        if !selected {
            assert_eq!(branch.clusters().unwrap().len(), 1, "{step}");
        }
    }
    edit(&work, &branch);
    restore(&project, "start");
    assert_eq!(state(&work, &branch), start);
    project.prune(true, &silent()).unwrap();
    assert_eq!(branch.clusters().unwrap().len(), 1);
}

#[test]
fn killed_before_the_selection_it_is_wholly_the_old_pair() {
    matrix(&STEPS[..8], &[]);
}

#[test]
fn killed_after_the_selection_it_is_wholly_the_new_pair() {
    matrix(&STEPS[8..], &[]);
}

#[test]
fn a_recovery_that_is_killed_can_be_run_again() {
    matrix(
        &[("safety-captured", false)],
        &["rollback-cluster-discarded", "rollback-safety-removed", "rollback-branch-released", "rollback-server-started"],
    );
    matrix(&[("selected", true)], &["branch-selected", "files-installed", "installed", "branch-released", "server-started"]);
}

#[test]
fn a_killed_setup_leaves_no_branch_after_the_next_one() {
    let world = World::new();
    write(&world.path("work/app.py"), "version = 1\n");
    for step in ["setup-intent-written", "setup-branch-forked", "setup-record-written", "setup-configuration-written"] {
        killed(&world, "crash::child_setup", step);
    }
    let (project, report) = world.setup("work", &[]).unwrap();
    assert_eq!(report.branch.as_deref(), Some("work"), "the name is free again");
    let names: Vec<_> = world.branches.list().unwrap().into_iter().map(|info| (info.name, info.project)).collect();
    assert_eq!(names, [("main".to_owned(), None), ("work".to_owned(), Some(project.id().to_owned()))]);
}
