//! Rewinds of both halves: rows that only the session wrote are taken back, those of others refuse it.

use forklift::ErrorKind;
use forklift::project::{DatabaseChoice, DatabaseFate, RedoOptions, RewindOptions, RewindReport, RewindTo, TurnEnd, TurnOptions};

use super::*;

fn running() -> (World, Project, Branch) {
    let (world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    (world, project, branch)
}

fn turn(project: &Project, name: &str, work: impl FnOnce()) {
    let begin = TurnOptions { session: "s".to_owned(), turn: name.to_owned(), ..TurnOptions::default() };
    project.turn_begin(&begin, &silent()).unwrap();
    work();
    let end = TurnEnd { session: "s".to_owned(), turn: name.to_owned(), ..TurnEnd::default() };
    project.turn_end(&end, &silent()).unwrap();
}

fn before(turn: &str) -> RewindOptions {
    RewindOptions::new("s", RewindTo::Before(turn.to_owned()))
}

fn rewind(project: &Project, options: RewindOptions) -> Result<RewindReport> {
    project.plan_rewind(options, &silent())?.apply(&silent())
}

fn sum(branch: &Branch) -> i64 {
    client(branch).query_one("SELECT sum(amount) FROM invoices", &[]).unwrap().get(0)
}

#[test]
fn both_halves_go_back_and_come_again() {
    let (world, project, branch) = running();
    let app = world.path("work/app.py");
    turn(&project, "1", || edit(&world.path("work"), &branch));
    turn(&project, "2", || write(&app, "version = 3\n"));
    let after = sum(&branch);
    assert_eq!(after, 216);

    // Only files: the database is left alone, and so is who is connected.
    let mut idle = client(&branch);
    let report = rewind(&project, before("2")).unwrap();
    assert_eq!((report.database, read(&app).as_str()), (DatabaseFate::Unchanged, "version = 2\n"));
    idle.batch_execute("SELECT 1").unwrap();
    drop(idle);

    let report = rewind(&project, before("1")).unwrap();
    assert_eq!((report.database, sum(&branch), read(&app).as_str()), (DatabaseFate::Replace, 215, "version = 1\n"));
    assert!(report.message.contains("database was put back"), "{}", report.message);
    let report = project.redo(RedoOptions::default(), &silent()).unwrap();
    assert_eq!((report.database, sum(&branch), read(&app).as_str()), (DatabaseFate::Replace, 216, "version = 2\n"));

    // The database that a redo put in place is known to be the one of before: later turns build on it.
    turn(&project, "3", || run(&branch, "INSERT INTO invoices (amount) VALUES (1000)"));
    rewind(&project, before("3")).unwrap();
    assert_eq!(sum(&branch), 216);
}

#[test]
fn rows_of_somebody_else_refuse_it() {
    let (world, project, branch) = running();
    let app = world.path("work/app.py");
    turn(&project, "1", || edit(&world.path("work"), &branch));
    run(&branch, "INSERT INTO invoices (amount) VALUES (7)");
    let there = sum(&branch);
    let refused = |options: RewindOptions| {
        let error = rewind(&project, options).unwrap_err();
        assert_eq!((error.kind(), sum(&branch), read(&app).as_str()), (ErrorKind::Edited, there, "version = 2\n"));
        let hint = error.hint_text().unwrap();
        assert!(error.to_string().contains("rows") && error.to_string().contains("started or stopped"), "{error}");
        assert!(hint.contains("--database") && !hint.contains("--keep-edited"), "{hint}");
    };
    refused(before("1"));
    refused(RewindOptions { keep_edited: true, ..before("1") });

    let kept = rewind(&project, RewindOptions { database: DatabaseChoice::Keep, ..before("1") }).unwrap();
    assert_eq!((kept.database, kept.partial, sum(&branch), read(&app).as_str()), (DatabaseFate::Keep, true, there, "version = 1\n"));
    project.redo(RedoOptions { database: DatabaseChoice::Keep, ..RedoOptions::default() }, &silent()).unwrap();
    assert_eq!((sum(&branch), read(&app).as_str()), (there, "version = 2\n"));

    let report = rewind(&project, RewindOptions { database: DatabaseChoice::Discard, ..before("1") }).unwrap();
    assert_eq!((report.database, sum(&branch), read(&app).as_str()), (DatabaseFate::Replace, 215, "version = 1\n"));
    restore(&project, &report.safety.unwrap());
    assert_eq!(sum(&branch), there, "what was discarded is in the safety checkpoint");
}

#[test]
fn rows_written_between_two_turns_are_found() {
    let (_world, project, branch) = running();
    turn(&project, "1", || run(&branch, "UPDATE invoices SET amount = 1 WHERE id = 1"));
    run(&branch, "UPDATE invoices SET amount = 2 WHERE id = 2");
    turn(&project, "2", || run(&branch, "UPDATE invoices SET amount = 3 WHERE id = 3"));
    let error = rewind(&project, before("1")).unwrap_err();
    assert!(error.kind() == ErrorKind::Edited && error.to_string().contains("between turn 1 and turn 2"), "{error}");
    assert_eq!(sum(&branch), 6);
    rewind(&project, before("2")).unwrap();
    assert_eq!(sum(&branch), 43, "the last turn alone was only the session's");
}

#[test]
fn killed_anywhere_both_halves_are_old_or_new() {
    let (world, project, branch) = running();
    let app = world.path("work/app.py");
    for (step, done) in
        [("branch-held", false), ("server-stopped", false), ("rewind-staged", false), ("selected", true), ("rewind-recorded", true)]
    {
        let name = format!("t-{step}");
        let version = read(&app);
        turn(&project, &name, || {
            write(&app, &format!("{step}\n"));
            run(&branch, "UPDATE invoices SET amount = amount + 1 WHERE id = 1");
        });
        let now = sum(&branch);
        let status = world.child("rewinds::child_rewind_last", &format!("{step}:kill")).status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{step}: {status}");
        project.recover(&silent()).unwrap();
        let expected = if done { (now - 1, version) } else { (now, format!("{step}\n")) };
        assert_eq!((sum(&branch), read(&app)), expected, "{step}");
    }
}

#[test]
fn child_rewind_last() {
    if let Some(project) = inherited() {
        let last = project.timeline().unwrap().0.turns("s").last().unwrap().turn.clone();
        rewind(&project, before(&last)).unwrap();
    }
}
