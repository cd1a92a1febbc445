//! Restores that run to their end, and hooks.

use super::*;
use crate::ErrorKind;
use crate::files::Verdict;

#[test]
fn a_restore_makes_the_tree_exact_and_keeps_what_it_replaced() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let first = tree(&machine.work());
    edit(&machine.work());
    let edited = tree(&machine.work());
    let plan = project.plan_restore("first", &Control::silent()).unwrap();
    assert_eq!(tree(&machine.work()), edited, "a plan touches nothing");
    assert_eq!((plan.database.as_str(), plan.clients), ("none", 0));
    assert!(plan.paths.contains(&("app.py".to_owned(), Verdict::Restore)), "{plan:?}");
    assert!(plan.paths.contains(&("new/made.py".to_owned(), Verdict::Delete)), "{plan:?}");
    assert!(plan.paths.contains(&("lib/util.py".to_owned(), Verdict::Create)), "{plan:?}");
    let report = restore(&project, "first");
    assert_eq!(tree(&machine.work()), first);
    assert_eq!(report.paths, plan.paths);
    assert_eq!((report.unchanged, report.kept), (plan.unchanged, None));
    let safety = project.show(&report.safety).unwrap();
    assert_eq!(safety.kind, "safety");
    restore(&project, &report.safety);
    assert_eq!(tree(&machine.work()), edited, "undone");
    assert!(!machine.path("store").join("projects").join(project.id()).join("staging").exists());
}

#[test]
fn nothing_outside_the_selected_paths_is_touched() {
    let machine = Machine::new();
    let work = machine.work();
    write(&work.join(".forklift.json"), r#"{"format": 1, "source": ["src"]}"#);
    write(&work.join("src/a"), "1");
    write(&work.join("outside"), "1");
    let (project, _) = machine.setup(&work).unwrap();
    capture(&project, "first");
    write(&work.join("src/a"), "2");
    write(&work.join("outside"), "2");
    restore(&project, "first");
    assert_eq!((read(&work.join("src/a")), read(&work.join("outside"))), ("1".to_owned(), "2".to_owned()));
    // The checkpoint's own list rules, also where today's is another one.
    write(&work.join(".forklift.json"), r#"{"format": 1, "source": ["other"]}"#);
    write(&work.join("other/b"), "1");
    write(&work.join("src/a"), "3");
    let plan = project.plan_restore("first", &Control::silent()).unwrap();
    assert!(plan.paths.iter().all(|(path, verdict)| !path.starts_with("other") || *verdict == Verdict::Outside), "{plan:?}");
    restore(&project, "first");
    assert_eq!((read(&work.join("src/a")), read(&work.join("other/b"))), ("1".to_owned(), "1".to_owned()));
}

#[test]
fn a_forgotten_name_is_not_found() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let names = ["first".to_owned()];
    assert!(!project.forget(&names, false, &Control::silent()).unwrap().applied);
    assert!(project.forget(&names, true, &Control::silent()).unwrap().applied);
    edit(&machine.work());
    let before = tree(&machine.work());
    let error = project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(tree(&machine.work()), before);
}

#[test]
fn hooks_pause_the_app_and_start_it_only_if_it_ran() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let said = machine.path("said");
    let hooks = |stop: &str| {
        let shown = said.display();
        let text = serde_json::json!({"format": 1, "hooks": {
            "stop": ["sh", "-c", format!("cat app.py >> {shown}; {stop}")],
            "start": ["sh", "-c", format!("cat app.py >> {shown}")],
        }});
        write(&machine.work().join(".forklift.json"), &text.to_string());
        write(&machine.work().join("app.py"), "version = 2\n");
        write(&said, "");
    };
    hooks("exit 0");
    restore(&project, "first");
    assert_eq!(read(&said), "version = 2\nversion = 1\n");
    hooks("exit 1");
    restore(&project, "first");
    assert_eq!(read(&said), "version = 2\n", "it did not run");
    hooks("echo no permission; exit 7");
    let before = tree(&machine.work());
    let error = project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert!(error.message().contains("no permission") && error.message().contains('7'), "{error}");
    assert_eq!(tree(&machine.work()), before);
    capture(&project, "works");
}

#[test]
fn a_cancelled_restore_leaves_everything() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    edit(&machine.work());
    let before = tree(&machine.work());
    let cancel = crate::CancelToken::new();
    cancel.cancel();
    let error = project.restore("first", &RestoreOptions::default(), &Control::new(cancel, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(tree(&machine.work()), before);
    assert_eq!((project.log().unwrap().0.len(), project.status(&Control::silent()).unwrap().pending), (1, None));
}

#[test]
fn every_failure_before_the_selection_rolls_back_at_once() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    edit(&machine.work());
    let before = tree(&machine.work());
    for step in ["journal-written", "cluster-prepared", "files-staged", "prepared", "stopping", "safety-captured"] {
        let environment = machine.environment_with("FORKLIFT_FAILPOINT", step);
        let failing = Project::open(&machine.work(), &ProjectOptions::default(), &environment).unwrap();
        let error = failing.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{step}: {error}");
        assert_eq!(tree(&machine.work()), before, "{step}");
        assert_eq!(project.log().unwrap().0.len(), 1, "{step}: no safety checkpoint of what did not happen");
        assert_eq!(project.status(&Control::silent()).unwrap().pending, None, "{step}");
    }
    restore(&project, "first");
}

#[test]
fn a_failure_after_the_selection_asks_for_recovery() {
    for step in ["selected", "branch-selected", "files-installed", "installed"] {
        let (machine, project) = Machine::with_project();
        capture(&project, "first");
        let first = tree(&machine.work());
        edit(&machine.work());
        let environment = machine.environment_with("FORKLIFT_FAILPOINT", step);
        let failing = Project::open(&machine.work(), &ProjectOptions::default(), &environment).unwrap();
        let error = failing.restore("first", &RestoreOptions::default(), &Control::silent());
        if step == "branch-selected" {
            error.unwrap();
            continue;
        }
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{step}: {error}");
        assert_eq!(project.recover(&Control::silent()).unwrap().outcome, RecoverOutcome::Finished, "{step}");
        assert_eq!(tree(&machine.work()), first, "{step}");
    }
}

#[test]
fn a_damaged_chunk_is_found_while_nothing_is_touched() {
    let (machine, project) = Machine::with_project();
    write(&machine.work().join("big"), &"content that only this file has ".repeat(100));
    capture(&project, "first");
    edit(&machine.work());
    std::fs::remove_file(machine.work().join("big")).unwrap();
    let before = tree(&machine.work());
    for pack in packs(&machine.path("store/packs")) {
        std::fs::set_permissions(&pack, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut bytes = crate::sys::fs::read(&pack).unwrap();
        bytes.iter_mut().skip(64).for_each(|byte| *byte ^= 0x55);
        crate::sys::fs::replace(&pack, &bytes, 0o400, &crate::sys::fs::Syncs::new()).unwrap();
    }
    let error = project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(tree(&machine.work()), before);
}

fn packs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in crate::sys::fs::names(folder).unwrap() {
        let path = folder.join(name);
        if path.is_dir() { found.extend(packs(&path)) } else { found.push(path) }
    }
    found
}
