//! Setup and identity: moved, copied, removed and made again, linked worktrees, killed setups.

use super::*;
use crate::ErrorKind;

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(folder).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(arguments);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn repository(machine: &Machine) -> PathBuf {
    let work = machine.work();
    git(&work, &["init", "-q", "-b", "main"]);
    write(&work.join("app.py"), "version = 1\n");
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-q", "-m", "one"]);
    work
}

#[test]
fn child_setup() {
    let Some(top) = parent() else { return };
    let options = ProjectOptions::default();
    Project::setup(&top.join("work"), &SetupOptions::default(), &options, &Environment::read(), &Control::silent()).unwrap();
}

#[test]
fn a_plain_folder_is_bound_once_and_found_from_below() {
    let (machine, project) = Machine::with_project();
    assert!(read(&machine.work().join(".forklift.json")).contains("\"format\": 1"));
    let below = machine.work().join("lib");
    assert_eq!(machine.open(&below).unwrap().id(), project.id());
    let error = machine.setup(&machine.work()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains(project.id()), "{error}");
}

#[test]
fn the_settings_file_may_be_gone() {
    let (machine, project) = Machine::with_project();
    std::fs::remove_file(machine.work().join(".forklift.json")).unwrap();
    let opened = machine.open(&machine.work().join("lib")).unwrap();
    assert_eq!(opened.id(), project.id());
    assert_eq!(opened.root(), machine.work());
}

#[test]
fn a_folder_that_is_not_bound_names_setup() {
    let machine = Machine::new();
    let error = machine.open(&machine.work()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.hint_text().unwrap().contains("project setup"));
    assert_eq!(machine.open(&machine.path("absent")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn home_root_and_contradictions_are_refused_and_leave_nothing() {
    let machine = Machine::new();
    for folder in [machine.path("home"), machine.path(""), PathBuf::from("/")] {
        assert_eq!(machine.setup(&folder).unwrap_err().kind(), ErrorKind::InvalidArgument, "{}", folder.display());
        assert!(!folder.join(".forklift.json").exists());
    }
    let from = SetupOptions { from: Some("main".to_owned()), files_only: true, branch: None };
    let both = Project::setup(&machine.work(), &from, &ProjectOptions::default(), &machine.environment(), &Control::silent());
    assert_eq!(both.unwrap_err().kind(), ErrorKind::InvalidArgument);
    for (text, kind) in [
        (r#"{"format": 1, "database": true}"#, ErrorKind::InvalidArgument),
        (r#"{"format": 9}"#, ErrorKind::Config),
        (r#"{"format": 1, "source": ["../x"]}"#, ErrorKind::Config),
    ] {
        write(&machine.work().join(".forklift.json"), text);
        assert_eq!(machine.setup(&machine.work()).unwrap_err().kind(), kind, "{text}");
    }
    assert!(!machine.path("store").exists(), "nothing was made");
}

#[test]
fn a_moved_folder_is_adopted() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let there = machine.path("there");
    rename(&machine.work(), &there);
    assert_eq!(project.capture("x", &CaptureOptions::default(), &Control::silent()).unwrap_err().kind(), ErrorKind::NotFound);
    let moved = machine.open(&there).unwrap();
    assert_eq!(moved.id(), project.id());
    assert!(moved.notices()[0].contains("moved"), "{:?}", moved.notices());
    edit(&there);
    restore(&moved, "first");
    assert!(machine.open(&there).unwrap().notices().is_empty(), "said once");
}

#[test]
fn a_folder_that_was_made_again_is_told_and_can_be_bound_anew() {
    let (machine, project) = Machine::with_project();
    crate::sys::fs::remove_tree(&machine.work()).unwrap();
    std::fs::create_dir(machine.work()).unwrap();
    let error = machine.open(&machine.work()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("made again") && error.message().contains(project.id()), "{error}");
    let (second, _) = machine.setup(&machine.work()).unwrap();
    assert_ne!(second.id(), project.id());
    assert_eq!(machine.open(&machine.work()).unwrap().id(), second.id());
}

#[test]
fn a_replaced_root_is_noticed_by_an_open_handle() {
    let (machine, project) = Machine::with_project();
    rename(&machine.work(), &machine.path("aside"));
    std::os::unix::fs::symlink(machine.path("aside"), machine.work()).unwrap();
    let error = project.capture("x", &CaptureOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("another folder"), "{error}");
}

#[test]
fn git_worktrees_have_projects_of_their_own() {
    let machine = Machine::new();
    let work = repository(&machine);
    git(&work, &["worktree", "add", "-q", "--detach", "../b"]);
    let linked = machine.path("b");
    let (main, _) = machine.setup(&work).unwrap();
    let (other, _) = machine.setup(&linked).unwrap();
    assert_ne!(main.id(), other.id());
    assert!(work.join(".git/forklift-id").is_file() && work.join(".git/worktrees/b/forklift-id").is_file());
    assert_eq!(machine.open(&linked).unwrap().id(), other.id());
    // The id alone is enough: another data folder knows nothing of it.
    let elsewhere = Environment::of([("FORKLIFT_DATA", machine.path("home"))]);
    assert_eq!(Project::open(&linked, &ProjectOptions::default(), &elsewhere).unwrap().id(), other.id());
    git(&work, &["worktree", "move", "../b", "../c"]);
    let moved = machine.open(&machine.path("c")).unwrap();
    assert_eq!(moved.id(), other.id());
    assert_eq!(moved.notices().len(), 1);
    git(&work, &["worktree", "remove", "--force", "../c"]);
    assert_eq!(machine.open(&machine.path("c")).unwrap_err().kind(), ErrorKind::NotFound);
    let orphans = main.prune(false, &Control::silent()).unwrap().orphans;
    assert_eq!(orphans, [(other.id().to_owned(), machine.path("c"))]);
}

#[test]
fn a_linked_worktree_inside_another_is_not_taken_for_it() {
    let machine = Machine::new();
    let work = repository(&machine);
    machine.setup(&work).unwrap();
    git(&work, &["worktree", "add", "-q", "--detach", "inner"]);
    write(&work.join("inner/below/x"), "x");
    let error = machine.open(&work.join("inner/below")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("inner"), "{error}");
    machine.setup(&work.join("inner")).unwrap();
    assert_eq!(machine.open(&work.join("inner/below")).unwrap().root(), work.join("inner"));
}

#[test]
fn a_copy_is_refused_by_name_and_can_be_bound() {
    let machine = Machine::new();
    let work = repository(&machine);
    let (project, _) = machine.setup(&work).unwrap();
    let copy = machine.path("copy");
    assert!(Command::new("cp").args(["-a"]).arg(&work).arg(&copy).status().unwrap().success());
    let error = machine.open(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains("copy of the worktree"), "{error}");
    let (second, _) = machine.setup(&copy).unwrap();
    assert_ne!(second.id(), project.id());
    assert_eq!(machine.open(&work).unwrap().id(), project.id());
    assert_eq!(machine.open(&copy).unwrap().id(), second.id());
}

#[test]
fn a_lost_id_file_is_found_by_the_machine_local_record() {
    let machine = Machine::new();
    let work = repository(&machine);
    let (project, _) = machine.setup(&work).unwrap();
    crate::sys::fs::remove_tree(&work.join(".git")).unwrap();
    git(&work, &["init", "-q"]);
    assert_eq!(machine.open(&work).unwrap().id(), project.id());
}

#[test]
fn a_store_that_was_moved_or_lost_is_named() {
    let (machine, project) = Machine::with_project();
    rename(&machine.path("store"), &machine.path("elsewhere"));
    let error = machine.open(&machine.work()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("store") && error.hint_text().unwrap().contains("--store"), "{error}");
    let options = ProjectOptions { store: Some(machine.path("elsewhere")) };
    let opened = Project::open(&machine.work(), &options, &machine.environment()).unwrap();
    assert_eq!(opened.id(), project.id());
    assert_eq!(machine.open(&machine.work()).unwrap().id(), project.id(), "the new place was recorded");
    rename(&machine.path("elsewhere"), &machine.path("away"));
    crate::store::Store::create(&machine.path("elsewhere")).unwrap();
    let error = machine.open(&machine.work()).unwrap_err();
    assert!(error.message().contains("another store"), "{error}");
}

#[test]
fn a_killed_setup_leaves_a_folder_that_can_be_bound() {
    for step in
        ["setup-intent-written", "setup-branch-forked", "setup-record-written", "setup-configuration-written", "setup-identity-written"]
    {
        let machine = Machine::new();
        assert!(!machine.killed_at("binding::child_setup", step).success(), "{step}");
        let bound = step == "setup-identity-written";
        assert_eq!(machine.open(&machine.work()).is_ok(), bound, "{step}");
        if !bound {
            machine.setup(&machine.work()).unwrap();
        }
        capture(&machine.open(&machine.work()).unwrap(), "first");
        let projects = crate::sys::fs::names(&machine.path("store/projects")).unwrap();
        assert_eq!(projects.iter().filter(|name| name.len() == 26).count(), 1, "{step}: {projects:?}");
    }
}

#[test]
fn a_failed_setup_leaves_nothing() {
    for step in ["setup-intent-written", "setup-record-written", "setup-configuration-written", "setup-identity-written"] {
        let machine = Machine::new();
        let environment = machine.environment_with("FORKLIFT_FAILPOINT", step);
        let failed =
            Project::setup(&machine.work(), &SetupOptions::default(), &ProjectOptions::default(), &environment, &Control::silent());
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io, "{step}");
        assert!(!machine.work().join(".forklift.json").exists(), "{step}");
        assert_eq!(crate::sys::fs::names(&machine.path("store/projects")).unwrap(), ["setup.lock"], "{step}");
        assert_eq!(machine.open(&machine.work()).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
