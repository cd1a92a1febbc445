//! Tablespaces that the user made outside the store.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use forklift::ErrorKind;
use forklift::branch::{Branch, CaptureMode, ForkFrom, ForkOptions, ServerState, StartOptions};

use super::{Place, client, commit, run, silent, start, stop, value};

/// A folder that a server may use whoever it runs as.
fn folder_for_all(place: &Place, name: &str) -> PathBuf {
    let folder = place.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

fn make_tablespace(branch: &Branch, folder: &Path) {
    run(branch, &format!("create tablespace outside location '{}'", folder.display()));
    run(branch, "create table far (x int) tablespace outside; insert into far values (1)");
}

fn link_of(branch: &Branch) -> PathBuf {
    let folder = branch.info().unwrap().data.join("pg_tblspc");
    let links: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(links.len(), 1);
    links[0].clone()
}

#[test]
fn a_branch_with_a_tablespace_outside_starts_is_captured_forked_and_restored() {
    let place = Place::new();
    let outside = folder_for_all(&place, "ts");
    let branch = place.running("main", "select 1");
    make_tablespace(&branch, &outside);
    stop(&branch);
    start(&branch);
    assert_eq!(value(&branch, "select x from far"), "1");

    let mut last = None;
    for mode in [CaptureMode::Online, CaptureMode::Stopped] {
        run(&branch, "update far set x = x + 1");
        let session = place.store.session(&silent()).unwrap();
        let capture = branch.capture(&session, mode, None, &silent()).unwrap();
        assert_eq!(branch.info().unwrap().state, ServerState::Running);
        last = Some(commit(session, &branch, capture.half));
    }
    let last = last.unwrap();
    let (fork, _) = place.branches.fork("fork", &ForkFrom::Branch("main".to_owned()), &ForkOptions::default(), &silent()).unwrap();
    start(&fork);
    run(&fork, "update far set x = 100");
    assert!(link_of(&fork).is_dir() && !link_of(&fork).is_symlink());
    stop(&fork);
    start(&fork);
    assert_eq!((value(&fork, "select x from far"), value(&branch, "select x from far")), ("100".to_owned(), "3".to_owned()));
    assert!(place.branches.delete("fork", &silent()).unwrap().is_empty());

    // A restore leaves the old folder, and says so.
    run(&branch, "update far set x = 7");
    let reader = place.store.reader(&silent()).unwrap();
    let prepared = branch.materialise(&reader, &last.id, last.cluster.as_ref().unwrap(), &silent()).unwrap();
    assert!(prepared.warnings.iter().any(|warning| warning.contains(&outside.display().to_string())), "{:?}", prepared.warnings);
    stop(&branch);
    branch.select(&prepared.id).unwrap();
    start(&branch);
    assert_eq!(value(&branch, "select x from far"), "3");
    stop(&branch);

    // So does the end of the branch: its first cluster still points there.
    let warnings = place.branches.delete("main", &silent()).unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains(&outside.display().to_string()), "{warnings:?}");
    assert!(std::fs::read_dir(&outside).unwrap().count() > 0);
}

#[test]
fn a_tablespace_in_another_branch_is_refused_before_the_server_stops() {
    let place = Place::new();
    let outside = folder_for_all(&place, "ts");
    let other = place.empty("other");
    let branch = place.running("main", "select 1");
    make_tablespace(&branch, &outside);
    let link = link_of(&branch);
    let theirs = other.info().unwrap().data;
    let point = |target: &Path| {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, &link).unwrap();
    };
    point(&theirs.join("base"));

    let session = place.store.session(&silent()).unwrap();
    let pid = branch.info().unwrap().pid;
    let error = branch.capture(&session, CaptureMode::Stopped, None, &silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert!(error.message().contains(&link.display().to_string()), "{error}");
    // It still runs, for everybody.
    assert_eq!(branch.info().unwrap().pid, pid);
    client(&branch);
    // A shutdown writes to it.
    point(&outside);
    stop(&branch);
    point(&theirs.join("base"));
    let error = branch.start(StartOptions::default(), &silent()).unwrap_err();
    assert!(error.message().contains("another branch or cluster"), "{error}");

    // Any other link out of the data is still refused.
    point(&outside);
    let stray = branch.info().unwrap().data.join("stray");
    std::os::unix::fs::symlink("/etc", &stray).unwrap();
    assert_eq!(branch.start(StartOptions::default(), &silent()).unwrap_err().kind(), ErrorKind::PostgresMismatch);
    std::fs::remove_file(&stray).unwrap();
    start(&branch);
    assert_eq!(value(&branch, "select x from far"), "1");
    stop(&branch);
}
