//! A cluster into a checkpoint and back.

use forklift::ErrorKind;
use forklift::branch::{CaptureMode, ForkFrom, ForkOptions, ServerState, StartOptions};
use forklift::postgres::UrlForm;

use super::{Place, client, commit, rows, run, silent, start, stop, value};

#[test]
fn a_captured_cluster_comes_back_with_its_rows_and_the_same_url() {
    let place = Place::new();
    let branch =
        place.running("main", "create table t (id bigserial primary key, x int); insert into t (x) select generate_series(1, 1000)");
    run(&branch, "create unlogged table quick as select 1 as y");
    let url = branch.url(UrlForm::Socket).unwrap();
    let sequence = "select last_value, is_called from t_id_seq";
    let before = (rows(&branch, "select count(*), sum(x) from t"), rows(&branch, sequence));
    let held = client(&branch);

    // With a client: online, and nobody is cut.
    let session = place.store.session(&silent()).unwrap();
    let capture = branch.capture(&session, CaptureMode::Auto, None, &silent()).unwrap();
    assert_eq!((capture.mode.as_str(), capture.downtime_ms), ("online", 0));
    assert_eq!(capture.unlogged, ["app.public.quick"]);
    assert!(!held.is_closed() && capture.bytes_read > 1 << 20);
    let first = commit(session, &branch, capture.half);

    // Nothing was written: the half is reused.
    let session = place.store.session(&silent()).unwrap();
    let again = branch.capture(&session, CaptureMode::Auto, Some(&first), &silent()).unwrap();
    assert_eq!((again.mode.as_str(), again.bytes_read), ("unchanged", 0));
    assert_eq!(Some(&again.half), first.cluster.as_ref());
    drop(session);

    run(&branch, "insert into t (x) values (5); alter table t add column z text; update t set x = 0");
    // Without a client: by a short stop, after which it runs again.
    drop(held);
    let changed = rows(&branch, "select count(*), sum(x) from t");
    let session = place.store.session(&silent()).unwrap();
    super::super::support::wait_for("the client to be gone", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    let capture = branch.capture(&session, CaptureMode::Auto, Some(&first), &silent()).unwrap();
    assert_eq!(capture.mode, "stopped");
    assert!(capture.unlogged.is_empty());
    assert_eq!(branch.info().unwrap().state, ServerState::Running);
    let second = commit(session, &branch, capture.half);
    let session = place.store.session(&silent()).unwrap();
    assert_eq!(branch.capture(&session, CaptureMode::Auto, Some(&second), &silent()).unwrap().mode, "unchanged");
    drop(session);

    // Ready clusters are kept where clones cost nothing.
    let reflink = forklift::clone::choose(place.path(), place.path()).unwrap().shares_blocks();
    for (checkpoint, expected, cached) in [(&first, &before.0, false), (&second, &changed, false), (&first, &before.0, reflink)] {
        let reader = place.store.reader(&silent()).unwrap();
        let old = branch.current().unwrap();
        let prepared = branch.materialise(&reader, &checkpoint.id, checkpoint.cluster.as_ref().unwrap(), &silent()).unwrap();
        assert_eq!(prepared.from_cache, cached);
        // The current one still runs beside it, and cannot be replaced under its server.
        start(&branch);
        assert_eq!(branch.select(&prepared.id).unwrap_err().kind(), ErrorKind::Busy);
        branch.hold("a restore is in progress").unwrap();
        stop(&branch);
        let error = branch.start(StartOptions::default(), &silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecoveryNeeded);
        assert!(error.message().contains("a restore is in progress") && error.hint_text().unwrap().contains("project recover"));
        branch.select(&prepared.id).unwrap();
        branch.select(&prepared.id).unwrap();
        branch.release().unwrap();
        assert_eq!(branch.discard(&prepared.id).unwrap_err().kind(), ErrorKind::InvalidArgument);
        branch.discard(&old).unwrap();
        branch.discard(&old).unwrap();
        start(&branch);
        assert_eq!(&rows(&branch, "select count(*), sum(x) from t"), expected);
        assert_eq!(branch.url(UrlForm::Socket).unwrap(), url);
        assert_eq!(branch.clusters().unwrap(), [prepared.id]);
    }
    assert_eq!(rows(&branch, sequence), before.1);
    assert_eq!(value(&branch, "select count(*) from quick"), "0");
    assert_eq!(value(&branch, "insert into t (x) values (1) returning id"), "1001");

    let (fork, report) = place.branches.fork("fork", &ForkFrom::Checkpoint(second.id.clone()), &ForkOptions::default(), &silent()).unwrap();
    assert_eq!(report.mode, if reflink { "cache" } else { "checkpoint" });
    start(&fork);
    assert_eq!(rows(&fork, "select count(*), sum(x) from t"), changed);
    assert_eq!(value(&fork, "select count(*) from quick"), "1");
    assert_eq!(fork.info().unwrap().parent.as_deref(), Some("main"));
}

#[test]
fn all_of_it_works_under_an_account_where_namespaces_are_refused() {
    let place = Place::without_namespaces();
    let branch = place.running("main", "create table t as select generate_series(1, 10) as x");
    let session = place.store.session(&silent()).unwrap();
    let capture = branch.capture(&session, CaptureMode::Stopped, None, &silent()).unwrap();
    let checkpoint = commit(session, &branch, capture.half);
    run(&branch, "delete from t");
    let reader = place.store.reader(&silent()).unwrap();
    let prepared = branch.materialise(&reader, &checkpoint.id, checkpoint.cluster.as_ref().unwrap(), &silent()).unwrap();
    let (fork, _) = place.branches.fork("fork", &ForkFrom::Branch("main".to_owned()), &ForkOptions::default(), &silent()).unwrap();
    stop(&branch);
    branch.select(&prepared.id).unwrap();
    start(&branch);
    start(&fork);
    assert_eq!([value(&branch, "select count(*) from t"), value(&fork, "select count(*) from t")], ["10", "0"]);
    stop(&fork);
    place.branches.delete("fork", &silent()).unwrap();
}

#[test]
fn a_stopped_branch_is_captured_as_it_is_and_a_cancel_leaves_it() {
    let place = Place::new();
    let branch = place.empty("main");
    let control = silent();
    control.cancel().cancel();
    let session = place.store.session(&silent()).unwrap();
    assert_eq!(branch.capture(&session, CaptureMode::Stopped, None, &control).unwrap_err().kind(), ErrorKind::Cancelled);
    let capture = branch.capture(&session, CaptureMode::Online, None, &silent()).unwrap();
    assert_eq!((capture.mode.as_str(), capture.downtime_ms), ("stopped", 0));
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
    let first = commit(session, &branch, capture.half);
    let session = place.store.session(&silent()).unwrap();
    assert_eq!(branch.capture(&session, CaptureMode::Auto, Some(&first), &silent()).unwrap().mode, "unchanged");
    drop(session);
    // A cancelled capture by a stop lets a running server run.
    start(&branch);
    let session = place.store.session(&silent()).unwrap();
    assert_eq!(branch.capture(&session, CaptureMode::Stopped, None, &control).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(branch.info().unwrap().state, ServerState::Running);
    assert_eq!(value(&branch, "select 1"), "1");
}
