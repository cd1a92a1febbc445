//! A restore leaves a database alone only where nobody can still change it.

use forklift::ErrorKind;
use forklift::project::RecoverOutcome;

use super::*;
use crate::support::wait_for;

#[test]
fn child_restore_unchanged() {
    if let Some(project) = inherited() {
        restore(&project, "start");
    }
}

fn count(branch: &Branch) -> i64 {
    client(branch).query_one("SELECT count(*) FROM invoices", &[]).unwrap().get(0)
}

/// A project whose server runs and whose database is as in the checkpoint `start`.
fn running() -> (World, Project, Branch) {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    capture(&project, "start");
    write(&world.path("work/app.py"), "version = 2\n");
    (world, project, branch)
}

#[test]
fn an_open_transaction_cannot_commit_into_what_was_restored() {
    let (_world, project, branch) = running();
    let mut writer = client(&branch);
    writer.batch_execute("BEGIN; INSERT INTO invoices (amount) VALUES (1)").unwrap();
    capture(&project, "open");
    let plan = project.plan_restore("open", &silent()).unwrap();
    assert_eq!((plan.database.as_str(), plan.clients), ("replace", 1));
    writer.batch_execute("INSERT INTO invoices (amount) SELECT generate_series(1, 1000)").unwrap();
    assert_eq!(restore(&project, "open").database, "replace");
    writer.batch_execute("COMMIT").expect_err("it was cut");
    assert_eq!(count(&branch), 3);
}

#[test]
fn idle_clients_are_cut_too() {
    let (_world, project, branch) = running();
    let mut idle = client(&branch);
    assert_eq!(restore(&project, "start").database, "replace");
    idle.batch_execute("SELECT 1").expect_err("it was cut");
    drop(idle);
    wait_for("nobody", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    let cluster = branch.current().unwrap();
    capture(&project, "now");
    assert_eq!(project.plan_restore("now", &silent()).unwrap().database, "unchanged");
    assert_eq!(restore(&project, "now").database, "unchanged");
    assert_eq!(branch.current().unwrap(), cluster);
    assert_eq!(count(&branch), 3, "clients can connect again");
}

#[test]
fn a_client_that_comes_while_the_restore_is_prepared_is_cut() {
    let (world, project, branch) = running();
    let psql = format!("{}/psql", super::super::support::installation().bin.display());
    let (url, ready) = (branch.url(UrlForm::Socket).unwrap(), world.path("ready"));
    let sql = format!("begin; insert into invoices (amount) values (9);\n\\! touch {}\nselect pg_sleep(600);\ncommit;", ready.display());
    write(&world.path("late.sql"), &sql);
    let stop = format!(
        "{psql} -Xqf {} '{url}' > /dev/null 2>&1 & while ! test -e {}; do sleep 0.01; done; exit 1",
        world.path("late.sql").display(),
        ready.display()
    );
    let configuration = serde_json::json!({"format": 1, "hooks": {"stop": ["sh", "-c", stop]}});
    write(&world.path("work/.forklift.json"), &configuration.to_string());
    assert_eq!(project.plan_restore("start", &silent()).unwrap().database, "unchanged");
    assert_eq!(restore(&project, "start").database, "replace");
    assert_eq!((count(&branch), read(&world.path("work/app.py")).as_str()), (3, "version = 1\n"));
    assert_eq!(branch.clusters().unwrap().len(), 1);
}

#[test]
fn every_failure_lets_clients_in_again() {
    let (world, project, branch) = running();
    for step in ["branch-held", "branch-closed", "safety-captured"] {
        let failing = world.open("work", &[("FORKLIFT_FAILPOINT", step)]);
        assert_eq!(failing.restore("start", &RestoreOptions::default(), &silent()).unwrap_err().kind(), ErrorKind::Io, "{step}");
        assert_eq!(count(&branch), 3, "{step}");
        wait_for("nobody", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    }
    for step in ["selected", "files-installed", "installed", "branch-released"] {
        let failing = world.open("work", &[("FORKLIFT_FAILPOINT", step)]);
        let error = failing.restore("start", &RestoreOptions::default(), &silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{step}: {error}");
        assert!(postgres::Client::connect(&branch.url(UrlForm::Socket).unwrap(), postgres::NoTls).is_err(), "{step}: closed until then");
        assert_eq!(project.recover(&silent()).unwrap().outcome, RecoverOutcome::Finished, "{step}");
        assert_eq!(count(&branch), 3, "{step}");
        wait_for("nobody", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    }
}

#[test]
fn a_killed_restore_stays_closed_until_it_is_recovered() {
    let (world, project, branch) = running();
    for (step, outcome) in [("branch-closed", RecoverOutcome::RolledBack), ("files-installed", RecoverOutcome::Finished)] {
        assert!(!world.child("left_alone::child_restore_unchanged", &format!("{step}:kill")).status().unwrap().success());
        assert!(postgres::Client::connect(&branch.url(UrlForm::Socket).unwrap(), postgres::NoTls).is_err(), "{step}");
        assert_eq!(branch.start(StartOptions::default(), &silent()).unwrap_err().kind(), ErrorKind::RecoveryNeeded, "{step}");
        assert_eq!(project.recover(&silent()).unwrap().outcome, outcome, "{step}");
        assert_eq!(count(&branch), 3, "{step}");
        wait_for("nobody", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    }
    // What a capture that was killed over it leaves.
    branch.record().address.hide().unwrap();
    assert_eq!(project.recover(&silent()).unwrap().outcome, RecoverOutcome::Clean);
    assert_eq!(count(&branch), 3);
}

#[test]
fn a_capture_reuses_the_last_half_while_a_transaction_is_open_and_not_once_it_has_committed() {
    let (_world, project, branch) = running();
    let mut writer = client(&branch);
    writer.batch_execute("BEGIN; INSERT INTO invoices (amount) VALUES (1)").unwrap();
    capture(&project, "open");
    writer.batch_execute("INSERT INTO invoices (amount) VALUES (2)").unwrap();
    let again = capture(&project, "open again");
    writer.batch_execute("COMMIT").unwrap();
    assert_ne!(capture(&project, "committed").mode, "unchanged");
    drop(writer);
    assert_eq!(count(&branch), 5);
    restore(&project, "open again");
    assert_eq!((again.warnings.len(), count(&branch)), (0, 3));
    restore(&project, "committed");
    assert_eq!(count(&branch), 5);
}
