//! One agent: capture, edits, restore; what clients see.

use forklift::ErrorKind;
use forklift::branch::{CaptureMode, ServerState};

use super::*;

#[test]
fn code_and_rows_are_put_back_together_and_the_restore_can_be_undone() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let url = branch.url(UrlForm::Socket).unwrap();
    let mut old_client = client(&branch);
    let report = capture(&project, "start");
    assert_eq!((report.mode.as_str(), report.downtime_ms), ("online", 0), "a server with clients is never stopped");
    old_client.batch_execute("SELECT 1").unwrap();
    let start = state(&work, &branch);
    edit(&work, &branch);
    let edited = state(&work, &branch);
    assert_ne!(start, edited);

    let plan = project.plan_restore("start", &silent()).unwrap();
    assert_eq!((plan.database.as_str(), plan.clients), ("replace", 1));
    assert_eq!(state(&work, &branch), edited, "a plan touches nothing");
    let restored = restore(&project, "start");
    assert_eq!(restored.database, "replace");
    assert!(restored.downtime_ms > 0 && restored.downtime_ms < restored.total_ms, "{restored:?}");
    assert_eq!(state(&work, &branch), start);
    assert_eq!(branch.url(UrlForm::Socket).unwrap(), url, "the address is the project's");
    assert_eq!(branch.info().unwrap().state, ServerState::Running);
    old_client.batch_execute("INSERT INTO invoices (amount) VALUES (1)").expect_err("a client of before cannot write anywhere");
    run(&branch, "INSERT INTO invoices (amount) VALUES (7)");
    assert_eq!(client(&branch).query_one("SELECT max(id) FROM invoices", &[]).unwrap().get::<_, i64>(0), 4, "the sequence is exact");

    let undone = restore(&project, &restored.safety);
    assert_eq!(state(&work, &branch), edited);
    assert_eq!(branch.clusters().unwrap().len(), 1, "what was replaced is a checkpoint, not a copy");
    // Both safety checkpoints but the newest are retained copies that prune takes.
    let pruned = project.prune(true, &silent()).unwrap();
    assert_eq!(pruned.safety.iter().map(|info| info.id.clone()).collect::<Vec<_>>(), [restored.safety]);
    restore(&project, &undone.safety);
    assert!(state(&work, &branch).contains("\"amount\": 7"));
}

#[test]
fn a_stopped_server_stays_stopped_and_an_unchanged_database_is_left_alone() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    let report = capture(&project, "start");
    assert_eq!(report.mode, "stopped");
    assert!(report.bytes_read > 0 && report.fsyncs > 0, "{report:?}");
    assert_eq!(capture(&project, "again").mode, "unchanged");
    write(&work.join("app.py"), "version = 2\n");
    let cluster = branch.current().unwrap();
    let restored = restore(&project, "start");
    assert_eq!(restored.database, "unchanged");
    assert_eq!((branch.current().unwrap(), read(&work.join("app.py")).as_str()), (cluster, "version = 1\n"));
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
    let start = state(&work, &branch);
    branch.start(StartOptions::default(), &silent()).unwrap();
    edit(&work, &branch);
    branch.stop(&silent()).unwrap();
    let restored = restore(&project, "start");
    assert_eq!((restored.database.as_str(), restored.downtime_ms), ("replace", 0));
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
    assert_eq!(state(&work, &branch), start);
}

#[test]
fn a_capture_by_stopping_says_how_long_nobody_could_connect() {
    let (_world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let report = project.capture("stopped", &CaptureOptions { mode: CaptureMode::Stopped }, &silent()).unwrap();
    assert_eq!(report.mode, "stopped");
    assert!(report.total_ms >= report.downtime_ms);
    assert_eq!(branch.info().unwrap().state, ServerState::Running);
}

#[test]
fn a_restore_that_fails_before_its_selection_leaves_server_and_files_as_they_were() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    capture(&project, "start");
    edit(&work, &branch);
    let before = state(&work, &branch);
    for step in ["cluster-prepared", "branch-held", "server-stopped", "safety-captured"] {
        let failing = world.open("work", &[("FORKLIFT_FAILPOINT", step)]);
        let error = failing.restore("start", &RestoreOptions::default(), &silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{step}: {error}");
        assert_eq!(branch.info().unwrap().state, ServerState::Running, "{step}");
        assert_eq!(state(&work, &branch), before, "{step}");
        assert_eq!(branch.clusters().unwrap().len(), 1, "{step}");
        assert_eq!(project.log().unwrap().0.len(), 1, "{step}");
    }
    restore(&project, "start");
}
