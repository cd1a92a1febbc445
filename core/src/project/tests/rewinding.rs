//! Rewinds and redos of sessions.

use std::path::PathBuf;

use super::*;
use crate::ErrorKind;
use crate::files::Verdict;

pub(super) fn begin(project: &Project, session: &str, turn: &str) {
    let options = TurnOptions { session: session.to_owned(), turn: turn.to_owned(), ..TurnOptions::default() };
    project.turn_begin(&options, &Control::silent()).unwrap();
}

pub(super) fn end(project: &Project, session: &str, turn: &str) {
    let options = TurnEnd { session: session.to_owned(), turn: turn.to_owned(), ..TurnEnd::default() };
    project.turn_end(&options, &Control::silent()).unwrap();
}

/// One turn in which an agent does something.
pub(super) fn turn(project: &Project, session: &str, name: &str, work: impl FnOnce(&Path)) {
    begin(project, session, name);
    work(project.root());
    end(project, session, name);
}

pub(super) fn before(session: &str, turn: &str) -> RewindOptions {
    RewindOptions::new(session, RewindTo::Before(turn.to_owned()))
}

fn after(session: &str, turn: &str) -> RewindOptions {
    RewindOptions::new(session, RewindTo::After(turn.to_owned()))
}

pub(super) fn rewind(project: &Project, options: RewindOptions) -> crate::Result<RewindReport> {
    project.plan_rewind(options, &Control::silent())?.apply(&Control::silent())
}

fn redo(project: &Project) -> crate::Result<RewindReport> {
    project.redo(RedoOptions::default(), &Control::silent())
}

fn verdicts(paths: &[PathVerdict]) -> BTreeMap<&str, Verdict> {
    paths.iter().map(|path| (path.path.as_str(), path.verdict)).collect()
}

#[test]
fn turns_are_taken_back_and_put_in_force_again() {
    let (machine, project) = Machine::with_project();
    let work = machine.work();
    let start = tree(&work);
    turn(&project, "s", "1", |work| write(&work.join("app.py"), "version = 2\n"));
    let first = tree(&work);
    turn(&project, "s", "2", edit);
    turn(&project, "s", "3", |work| write(&work.join("third"), "3"));
    let third = tree(&work);

    let plan = project.plan_rewind(after("s", "1"), &Control::silent()).unwrap();
    assert_eq!((plan.preview.turns.clone(), plan.preview.refused.len()), (vec!["2".to_owned(), "3".to_owned()], 0));
    assert_eq!(tree(&work), third, "a plan touches nothing");
    let report = plan.apply(&Control::silent()).unwrap();
    assert_eq!(tree(&work), first);
    assert_eq!(verdicts(&plan.preview.paths), verdicts(&report.paths), "what was planned is what was done");
    assert!(report.message.contains("turn 2, 3") && report.message.contains("app.py"), "{}", report.message);
    let timeline = project.timeline().unwrap().0;
    assert_eq!(timeline.turns("s").iter().map(|turn| turn.rewound.is_some()).collect::<Vec<_>>(), [false, true, true]);

    let further = rewind(&project, before("s", "1")).unwrap();
    assert_eq!((tree(&work), further.turns), (start.clone(), vec!["1".to_owned()]));

    let undone = redo(&project).unwrap();
    assert_eq!((tree(&work), undone.undoes), (first.clone(), further.id));
    let undone = redo(&project).unwrap();
    assert_eq!((tree(&work), undone.undoes.clone()), (third.clone(), report.id));
    assert!(project.timeline().unwrap().0.turns("s").iter().all(|turn| turn.rewound.is_none()));
    // Nothing but the redo itself is left to be taken back.
    let again = redo(&project).unwrap();
    assert_eq!((tree(&work), again.undoes), (first, None));
    redo(&project).unwrap();
    assert_eq!(tree(&work), third);
    rewind(&project, before("s", "1")).unwrap();
    assert_eq!(tree(&work), start);
}

#[test]
fn a_redo_takes_the_newest_thing_back_and_never_one_of_another_session() {
    let (machine, project) = Machine::with_project();
    let there = |name: &str| machine.work().join(name).exists();
    for session in ["a", "b"] {
        turn(&project, session, "1", |work| write(&work.join(session), "new\n"));
    }
    for session in ["a", "b"] {
        rewind(&project, before(session, "1")).unwrap();
    }
    for in_force in [true, false, true] {
        assert_eq!(redo(&project).unwrap().session, "b");
        assert_eq!((there("a"), there("b")), (false, in_force));
    }
    let of_a = RedoOptions { session: Some("a".to_owned()), ..RedoOptions::default() };
    for in_force in [true, false] {
        project.redo(of_a.clone(), &Control::silent()).unwrap();
        assert_eq!((there("a"), there("b")), (in_force, true));
    }
    redo(&project).unwrap();
    assert_eq!((there("a"), there("b")), (true, true), "the newest is the one of a now");
}

#[test]
fn a_rewind_with_nothing_to_do_leaves_no_trace() {
    let (_machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    turn(&project, "s", "2", |_| {});
    let traces = || (project.log().unwrap().0.len(), project.timeline().unwrap().0.last_number());
    let before_it = traces();
    let report = rewind(&project, before("s", "2")).unwrap();
    assert_eq!((report.id, report.safety, report.checkpoint, report.fsyncs), (None, None, None, 0));
    assert_eq!(traces(), before_it);
    assert_eq!(redo(&project).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_refused_plan_names_what_lets_it_through() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    write(&machine.work().join("app.py"), "a person\n");
    let way = |options| project.plan_rewind(options, &Control::silent()).unwrap().way_out().unwrap_or_default();
    assert!(way(before("s", "1")).contains("--keep-edited"));
    let few = way(RewindOptions { keep_edited: true, limit: Some(0), ..before("s", "1") });
    assert!(few.contains("--limit") && !few.contains("--keep-edited"), "{few}");
    assert_eq!(way(RewindOptions { keep_edited: true, ..before("s", "1") }), "");
}

#[test]
fn case_17_31_later_turns_after_a_rewind_are_taken_back_with_it() {
    let (machine, project) = Machine::with_project();
    let start = tree(&machine.work());
    turn(&project, "s", "1", |work| write(&work.join("a"), "1"));
    turn(&project, "s", "2", |work| write(&work.join("a"), "2"));
    rewind(&project, before("s", "2")).unwrap();
    turn(&project, "s", "3", |work| write(&work.join("a"), "3"));
    turn(&project, "s", "4", |work| write(&work.join("newer"), "4"));
    let report = rewind(&project, before("s", "1")).unwrap();
    assert_eq!(tree(&machine.work()), start);
    assert_eq!(report.turns, ["1", "3", "4"], "turn 2 was taken back before");
    let (log, _) = project.log().unwrap();
    for info in log.iter().filter(|info| info.kind == "safety") {
        restore(&project, &info.id);
    }
}

#[test]
fn case_1_a_persons_edit_refuses_the_whole_plan() {
    let (machine, project) = Machine::with_project();
    let work = machine.work();
    turn(&project, "s", "1", |work| {
        write(&work.join("app.py"), "agent\n");
        write(&work.join("made"), "agent\n");
    });
    write(&work.join("app.py"), "agent\nperson\n");
    let there = tree(&work);
    let refs = project.log().unwrap().0.len();
    let error = rewind(&project, before("s", "1")).unwrap_err();
    assert_eq!((error.kind(), tree(&work), project.log().unwrap().0.len()), (ErrorKind::Edited, there, refs));
    assert!(error.to_string().contains("app.py") && error.hint_text().unwrap().contains("--keep-edited"), "{error}");
    let plan = project.plan_rewind(before("s", "1"), &Control::silent()).unwrap();
    assert_eq!(verdicts(&plan.preview.paths), BTreeMap::from([("app.py", Verdict::KeptAfter), ("made", Verdict::Delete)]));
    assert_eq!(plan.preview.refused.len(), 1);

    let report = rewind(&project, RewindOptions { keep_edited: true, ..before("s", "1") }).unwrap();
    assert!(report.partial && !work.join("made").exists());
    assert_eq!(read(&work.join("app.py")), "agent\nperson\n");
    assert!(report.message.contains("somebody else edited them: app.py"), "{}", report.message);
    // The redo takes back what was done, and no more.
    redo(&project).unwrap();
    assert_eq!((read(&work.join("app.py")).as_str(), read(&work.join("made")).as_str()), ("agent\nperson\n", "agent\n"));
}

#[test]
fn case_1_agent_person_agent_is_found() {
    let (machine, project) = Machine::with_project();
    let app = machine.work().join("app.py");
    turn(&project, "s", "1", |_| write(&app, "agent\n"));
    write(&app, "agent\nperson\n");
    turn(&project, "s", "2", |_| write(&app, "agent\nperson\nagent\n"));
    let plan = project.plan_rewind(before("s", "1"), &Control::silent()).unwrap();
    assert_eq!(verdicts(&plan.preview.paths)["app.py"], Verdict::KeptBetween);
    assert_eq!(plan.apply(&Control::silent()).unwrap_err().kind(), ErrorKind::Edited);
    assert_eq!(read(&app), "agent\nperson\nagent\n");
    rewind(&project, before("s", "2")).unwrap();
    assert_eq!(read(&app), "agent\nperson\n");
}

#[test]
fn what_a_person_says_they_edited_meanwhile_stays() {
    let (machine, project) = Machine::with_project();
    let app = machine.work().join("app.py");
    begin(&project, "s", "1");
    write(&app, "agent and person\n");
    project.edited(std::slice::from_ref(&app), "human", &Control::silent()).unwrap();
    end(&project, "s", "1");
    assert_eq!(rewind(&project, before("s", "1")).unwrap_err().kind(), ErrorKind::Edited);
    assert_eq!(read(&app), "agent and person\n");
}

#[test]
fn case_2_19_only_what_the_sessions_own_turns_changed_is_touched() {
    let (machine, project) = Machine::with_project();
    let work = machine.work();
    turn(&project, "b", "1", |_| {});
    turn(&project, "a", "1", |work| write(&work.join("a"), "of a"));
    let report = rewind(&project, before("b", "1")).unwrap();
    assert_eq!((report.paths.len(), read(&work.join("a")).as_str()), (0, "of a"));
    turn(&project, "b", "2", |work| write(&work.join("b"), "of b"));
    turn(&project, "a", "2", |work| write(&work.join("a"), "of a again"));
    rewind(&project, before("b", "2")).unwrap();
    assert_eq!((work.join("b").exists(), read(&work.join("a")).as_str()), (false, "of a again"));
    rewind(&project, before("a", "1")).unwrap();
    assert!(!work.join("a").exists());

    // Both at work at once: nobody's.
    begin(&project, "a", "3");
    begin(&project, "b", "3");
    write(&work.join("whose"), "?");
    end(&project, "a", "3");
    end(&project, "b", "3");
    for session in ["a", "b"] {
        let plan = project.plan_rewind(before(session, "3"), &Control::silent()).unwrap();
        assert_eq!(verdicts(&plan.preview.paths), BTreeMap::from([("whose", Verdict::KeptBetween)]));
    }
}

#[test]
fn unknown_sessions_and_turns_are_named() {
    let (machine, project) = Machine::with_project();
    let control = Control::silent();
    let no = |options| project.plan_rewind(options, &control).unwrap_err();
    assert_eq!(no(before("s", "1")).kind(), ErrorKind::NotFound);
    assert_eq!(redo(&project).unwrap_err().kind(), ErrorKind::NotFound);
    turn(&project, "s", "1", edit);
    assert!(no(before("t", "1")).hint_text().unwrap().contains('s'));
    assert!(no(before("s", "9")).to_string().contains("no turn 9"));
    assert_eq!(no(RewindOptions { paths: Some(vec![PathBuf::from("../x")]), ..before("s", "1") }).kind(), ErrorKind::InvalidArgument);
    assert_eq!(redo(&project).unwrap_err().kind(), ErrorKind::NotFound);

    // A turn of another project of the store is none of this one.
    write(&machine.path("other/x"), "x");
    let (other, _) = machine.setup(&machine.path("other")).unwrap();
    turn(&other, "o", "1", |work| write(&work.join("x"), "agent"));
    assert_eq!(no(before("o", "1")).kind(), ErrorKind::NotFound);

    // A checkpoint that was forgotten is said to be.
    let id = project.timeline().unwrap().0.turns("s")[0].start.clone().unwrap();
    project.store.remove_ref(&id).unwrap();
    let error = no(before("s", "1"));
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("forgotten"), "{error}");
}

#[test]
fn a_plan_that_is_out_of_date_does_nothing() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    let plan = project.plan_rewind(before("s", "1"), &Control::silent()).unwrap();
    write(&machine.work().join("app.py"), "person\n");
    let there = tree(&machine.work());
    let error = plan.apply(&Control::silent()).unwrap_err();
    assert_eq!((error.kind(), tree(&machine.work())), (ErrorKind::Edited, there));
    assert!(error.to_string().contains("app.py"), "{error}");

    let old = plan.preview.id;
    let fresh = project.plan_rewind(RewindOptions { keep_edited: true, ..before("s", "1") }, &Control::silent()).unwrap();
    assert_eq!(fresh.apply_if(&old, &Control::silent()).unwrap_err().kind(), ErrorKind::Edited);
    // What the plan does not concern may move.
    write(&machine.work().join("unrelated"), "x");
    fresh.apply_if(&fresh.preview.id, &Control::silent()).unwrap();
    assert!(machine.work().join("lib/util.py").exists() && machine.work().join("unrelated").exists());
    // Once done it is out of date itself.
    assert_eq!(fresh.apply(&Control::silent()).unwrap_err().kind(), ErrorKind::Edited);
}

#[test]
fn case_6_many_paths_want_a_higher_limit() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", |work| {
        for number in 0..600 {
            write(&work.join(format!("many/{number}")), "x");
        }
    });
    let error = rewind(&project, before("s", "1")).unwrap_err();
    assert!(error.to_string().contains("601 paths") && error.hint_text().unwrap().contains("--limit"), "{error}");
    assert!(machine.work().join("many/599").exists());
    rewind(&project, RewindOptions { limit: Some(601), ..before("s", "1") }).unwrap();
    assert!(!machine.work().join("many").exists());
}

#[test]
fn case_9_an_open_turn_and_a_managed_command_are_waited_for() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    let there = tree(&machine.work());
    for session in ["s", "another"] {
        begin(&project, session, "open");
        let error = rewind(&project, before("s", "1")).unwrap_err();
        assert_eq!((error.kind(), tree(&machine.work())), (ErrorKind::Busy, there.clone()));
        assert!(error.to_string().contains("turn open"), "{error}");
        end(&project, session, "open");
    }
    let holder = project.hold(super::super::lock::HolderKind::Run, "npm run dev", &Control::silent()).unwrap();
    let error = rewind(&project, before("s", "1")).unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("npm run dev"), "{error}");
    // From inside that command it is the caller's own.
    let inside = machine.environment_with("FORKLIFT_RUN_TOKEN", holder.token());
    let inside = Project::open(&machine.work(), &ProjectOptions::default(), &inside).unwrap();
    rewind(&inside, before("s", "1")).unwrap();
    drop(holder);
    assert_eq!(read(&machine.work().join("app.py")), "version = 1\n");
}

#[test]
fn a_restore_waits_for_an_open_turn_as_a_rewind_does() {
    let (machine, project) = Machine::with_project();
    let control = Control::silent();
    turn(&project, "s", "1", edit);
    let start = project.timeline().unwrap().0.turns("s")[0].start.clone().unwrap();
    let there = tree(&machine.work());
    begin(&project, "s", "open");
    let holder = project.hold(super::super::lock::HolderKind::Run, "npm run dev", &control).unwrap();
    let inside = machine.environment_with("FORKLIFT_RUN_TOKEN", holder.token());
    for environment in [machine.environment(), inside] {
        let project = Project::open(&machine.work(), &ProjectOptions::default(), &environment).unwrap();
        let error = project.restore(&start, &RestoreOptions::default(), &control).unwrap_err();
        assert_eq!((error.kind(), tree(&machine.work())), (ErrorKind::Busy, there.clone()));
    }
    drop(holder);
    let error = project.restore(&start, &RestoreOptions::default(), &control).unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("turn open of session s"), "{error}");
    end(&project, "s", "open");

    // One that nobody will end is closed first, with what its turn changed.
    let mut owner = Command::new("sleep").arg("60").spawn().unwrap();
    let options = TurnOptions { session: "s".to_owned(), turn: "dead".to_owned(), owner: Some(owner.id()), ..TurnOptions::default() };
    project.turn_begin(&options, &control).unwrap();
    write(&machine.work().join("dead"), "theirs\n");
    owner.kill().unwrap();
    owner.wait().unwrap();
    restore(&project, &start);
    assert_eq!(read(&machine.work().join("app.py")), "version = 1\n");
    let dead = project.show_turn(Some("s"), "dead", &control).unwrap();
    assert_eq!(dead.paths.iter().map(|path| path.path.as_str()).collect::<Vec<_>>(), ["dead"]);
}

#[test]
fn two_at_once_are_one() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    let plan = project.plan_rewind(before("s", "1"), &Control::silent()).unwrap();
    let there = tree(&machine.work());
    let alone = project.alone("rewind of session s", &Control::silent()).unwrap();
    let error = plan.apply(&Control::silent()).unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("rewind of session s"), "{error}");
    assert_eq!(tree(&machine.work()), there);
    drop(alone);
    plan.apply(&Control::silent()).unwrap();
}

#[test]
fn case_20_the_turn_of_a_dead_owner_is_taken_back() {
    let (machine, project) = Machine::with_project();
    let mut owner = Command::new("sleep").arg("60").spawn().unwrap();
    let options = TurnOptions { session: "s".to_owned(), turn: "1".to_owned(), owner: Some(owner.id()), ..TurnOptions::default() };
    project.turn_begin(&options, &Control::silent()).unwrap();
    edit(&machine.work());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let report = rewind(&project, before("s", "1")).unwrap();
    assert_eq!(read(&machine.work().join("app.py")), "version = 1\n");
    assert!(report.warnings.iter().any(|warning| warning.contains("interrupted")), "{:?}", report.warnings);
}

#[test]
fn a_root_that_is_another_one_now_is_left_alone() {
    let control = Control::silent();
    let swaps: [fn(&Machine); 3] = [
        |machine| {
            rename(&machine.work(), &machine.path("moved"));
            write(&machine.work().join("app.py"), "another\n");
        },
        |machine| {
            rename(&machine.work(), &machine.path("moved"));
            std::os::unix::fs::symlink(machine.path("moved"), machine.work()).unwrap();
        },
        |machine| rename(&machine.work(), &machine.path("moved")),
    ];
    for swap in swaps {
        let (machine, project) = Machine::with_project();
        turn(&project, "s", "1", edit);
        let plan = project.plan_rewind(before("s", "1"), &control).unwrap();
        swap(&machine);
        let there = tree(&machine.path("moved"));
        assert_eq!(plan.apply(&control).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(project.plan_rewind(before("s", "1"), &control).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(tree(&machine.path("moved")), there);
        assert!(!machine.work().join("lib/util.py").exists());
    }
    // One that was only moved is found where it is.
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    rename(&machine.work(), &machine.path("moved"));
    let moved = machine.open(&machine.path("moved")).unwrap();
    rewind(&moved, before("s", "1")).unwrap();
    assert_eq!(read(&machine.path("moved/app.py")), "version = 1\n");
}

#[test]
fn a_selected_folder_that_a_turn_removed_comes_back() {
    let (machine, project) = Machine::with_project();
    write(&machine.work().join(".forklift.json"), r#"{"format": 1, "source": ["app.py", "lib"]}"#);
    begin(&project, "s", "1");
    write(&machine.work().join("lib/util.py"), "agent\n");
    write(&machine.work().join("beside"), "not selected\n");
    end(&project, "s", "1");
    rewind(&project, before("s", "1")).unwrap();
    assert_eq!(read(&machine.work().join("lib/util.py")), "one\n");
    crate::sys::fs::remove_tree(&machine.work().join("lib")).unwrap();
    // What is not there was removed by a person: it stays so.
    let report = redo(&project);
    assert_eq!(report.unwrap_err().kind(), ErrorKind::Edited);
    assert!(!machine.work().join("lib").exists() && machine.work().join("beside").exists());
}
