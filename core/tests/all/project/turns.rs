//! Turns of a project with a database: when its half is captured, and that nobody is cut for it. And captures in the background.

use forklift::project::{TurnData, TurnEnd, TurnOptions, TurnReport};

use super::*;
use crate::support::wait_for;

fn opening(turn: &str, data: TurnData) -> TurnOptions {
    TurnOptions { session: "a".to_owned(), turn: turn.to_owned(), tool: Some("Bash".to_owned()), data, ..TurnOptions::default() }
}

fn begin(project: &Project, turn: &str, data: TurnData) -> TurnReport {
    project.turn_begin(&opening(turn, data), &silent()).unwrap()
}

fn end(project: &Project, turn: &str, data: TurnData) -> TurnReport {
    project.turn_end(&TurnEnd { session: "a".to_owned(), turn: turn.to_owned(), data, ..TurnEnd::default() }, &silent()).unwrap()
}

#[test]
fn the_database_is_captured_when_it_was_written_and_no_client_is_cut() {
    let (_world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let mut staying = client(&branch);
    let first = begin(&project, "1", TurnData::Auto);
    assert_eq!((first.new_checkpoint, &*first.mode), (true, "online"));
    let unchanged = end(&project, "1", TurnData::Auto);
    assert_eq!((unchanged.new_checkpoint, unchanged.fsyncs, unchanged.checkpoint), (false, 0, first.checkpoint.clone()));

    begin(&project, "2", TurnData::Auto);
    staying.batch_execute("UPDATE invoices SET amount = 0 WHERE id = 1").unwrap();
    let written = end(&project, "2", TurnData::Auto);
    assert!(written.new_checkpoint);
    let details = project.show_turn(Some("a"), "2", &silent()).unwrap();
    assert_eq!((details.info.changed, details.info.calls[0].database_changed), (0, Some(true)));
    assert_eq!(project.show_turn(Some("a"), "1", &silent()).unwrap().info.calls[0].database_changed, Some(false));
    staying.batch_execute("SELECT 1").unwrap();
    drop(staying);

    restore(&project, &first.checkpoint.unwrap());
    assert_eq!(client(&branch).query_one("SELECT amount FROM invoices WHERE id = 1", &[]).unwrap().get::<_, i32>(0), 50);
    restore(&project, &written.checkpoint.unwrap());
    assert_eq!(client(&branch).query_one("SELECT amount FROM invoices WHERE id = 1", &[]).unwrap().get::<_, i32>(0), 0);
}

#[test]
fn on_request_the_database_is_left_out() {
    let (_world, project) = World::with_project();
    let branch = project.branch().unwrap().unwrap();
    let first = begin(&project, "1", TurnData::Never);
    assert_eq!(first.mode, "files");
    branch.start(StartOptions::default(), &silent()).unwrap();
    run(&branch, "DELETE FROM invoices");
    assert!(!end(&project, "1", TurnData::Never).new_checkpoint);
    assert_eq!(project.show(&first.checkpoint.unwrap()).unwrap().cluster, None);
    assert_eq!(project.show_turn(Some("a"), "1", &silent()).unwrap().info.calls[0].database_changed, None);
}

fn start_of(project: &Project, window: &str) -> Option<String> {
    project.timeline().unwrap().0.window(window).unwrap().start.clone()
}

#[test]
fn a_background_begin_is_captured_by_a_process_of_its_own() {
    let (world, project) = World::with_project();
    let begun = project.turn_begin(&TurnOptions { background: true, ..opening("1", TurnData::Never) }, &silent()).unwrap();
    assert_eq!((begun.checkpoint, &*begun.mode, begun.warnings), (None, "background", vec![]));
    wait_for("the background to capture", || start_of(&project, &begun.window.id).is_some());
    assert_eq!(project.turn_wait("a", TurnData::Never, &silent()).unwrap().captured, [""; 0]);
    write(&world.path("work/app.py"), "by the agent\n");
    end(&project, "1", TurnData::Never);
    assert_eq!(project.show_turn(Some("a"), "1", &silent()).unwrap().paths.len(), 1);
}

#[test]
fn a_wait_captures_where_the_background_was_killed() {
    let (world, _) = World::with_project();
    // The process meets the failpoint, this one does not wait for it.
    let killed = world.open("work", &[("FORKLIFT_FAILPOINT", "turn-paired:kill")]);
    let begun = killed.turn_begin(&TurnOptions { background: true, ..opening("1", TurnData::Never) }, &silent()).unwrap();
    assert_eq!(begun.mode, "background");
    let project = world.open("work", &[]);
    let waited = project.turn_wait("a", TurnData::Never, &silent()).unwrap();
    assert_eq!(waited.captured, [&*begun.window.id]);
    write(&world.path("work/app.py"), "by the agent\n");
    end(&project, "1", TurnData::Never);
    assert_eq!(project.show_turn(Some("a"), "1", &silent()).unwrap().paths.len(), 1);
}

#[test]
fn an_end_before_the_background_has_captured_knows_no_start() {
    let (world, _) = World::with_project();
    let killed = world.open("work", &[("FORKLIFT_FAILPOINT", "turn-paired:kill")]);
    let begun = killed.turn_begin(&TurnOptions { background: true, ..opening("1", TurnData::Never) }, &silent()).unwrap();
    let project = world.open("work", &[]);
    let ended = end(&project, "1", TurnData::Never);
    assert_eq!((ended.window.id, ended.window.start), (begun.window.id.clone(), None));
    let (timeline, _) = project.timeline().unwrap();
    let range = timeline.range("a", forklift::timeline::RangeStart::Before("1")).unwrap();
    assert_eq!((range.spans, range.unknown), (vec![], vec![begun.window.id]));
}
