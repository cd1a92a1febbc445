//! Machines on which something is missing or odd: errors that name it, and a pair that is as it was.

use forklift::ErrorKind;

use super::*;
use crate::support::installation;

/// An installation whose programs say that they are another major version.
fn of_another_version(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let other = if installation().version.major == 18 { 17 } else { installation().version.major + 1 };
    for name in ["postgres", "initdb", "pg_ctl"] {
        let path = folder.join(name);
        write(&path, &format!("#!/bin/sh\necho '{name} (PostgreSQL) {other}.1'\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder.to_owned()
}

#[test]
fn without_its_postgres_a_project_says_so_and_nothing_is_touched() {
    if !Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED without_its_postgres_a_project_says_so: user and mount namespaces are not allowed here");
        return;
    }
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    capture(&project, "start");
    edit_stopped(&work, &branch);
    let edited = state(&work, &branch);
    of_another_version(&world.path("other"));
    std::fs::create_dir(world.path("nowhere")).unwrap();

    let child = world.child("refused::child_without_postgres", "");
    let mut command = Command::new("unshare");
    let hide = format!("mount --bind {} {} && exec \"$@\"", world.path("nowhere").display(), installation().bin.display());
    command.args(["-Urm", "sh", "-c", &hide, "sh"]).arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));

    assert_eq!(state(&work, &branch), edited);
    restore(&project, "start");
    assert_eq!(read(&work.join("app.py")), "version = 1\n");
}

/// The programs of this project's Postgres are hidden; the machine may have others, of another version or broken.
#[test]
fn child_without_postgres() {
    let Some(top) = parent() else { return };
    for wrong in [top.join("nowhere"), top.join("other")] {
        let named = wrong.display().to_string();
        let environment = environment_of(&top, &[("FORKLIFT_POSTGRES", &named)]);
        let project = Project::open(&top.join("work"), &ProjectOptions::default(), &environment).unwrap();
        for error in [
            project.capture("x", &CaptureOptions::default(), &silent()).unwrap_err(),
            project.restore("start", &RestoreOptions::default(), &silent()).unwrap_err(),
            project.branch().unwrap().unwrap().start(StartOptions::default(), &silent()).unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::PostgresNotFound | ErrorKind::PostgresMismatch), "{error}");
            let told = format!("{error} {:?} {:?}", error.context(), error.hint_text());
            assert!(told.contains(&named) && error.hint_text().is_some(), "{told}");
        }
        let status = project.status(&silent()).unwrap();
        assert_eq!((status.pending, project.log().unwrap().0.len()), (None, 1));
        assert_eq!(read(&top.join("work/app.py")), "version = 2\n");
    }
}

/// As [`edit`] does, of a project whose server is stopped before and after.
fn edit_stopped(work: &Path, branch: &Branch) {
    branch.start(StartOptions::default(), &silent()).unwrap();
    edit(work, branch);
    branch.stop(&silent()).unwrap();
}

#[test]
fn a_store_on_another_file_system_than_the_worktree() {
    use std::os::unix::fs::MetadataExt;
    let (memory, disk) = (Path::new("/dev/shm"), tempfile::tempdir().unwrap());
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    if !memory.is_dir() || device(memory) == device(disk.path()) {
        println!("SKIPPED a_store_on_another_file_system_than_the_worktree: /dev/shm is no file system of its own");
        return;
    }
    let world = World::below(memory);
    let work = disk.path().canonicalize().unwrap();
    write(&work.join("app.py"), "version = 1\n");
    write(&work.join("lib/util.py"), "one\n");
    let setup = SetupOptions { from: Some("main".to_owned()), ..SetupOptions::default() };
    let (project, _) = Project::setup(&work, &setup, &ProjectOptions::default(), &world.environment(&[]), &silent()).unwrap();
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let start = state(&work, &branch);
    capture(&project, "start");
    edit(&work, &branch);
    let edited = state(&work, &branch);
    let restored = restore(&project, "start");
    assert_eq!(state(&work, &branch), start);
    restore(&project, &restored.safety);
    assert_eq!(state(&work, &branch), edited);
}

#[test]
fn two_captures_at_once_are_two_checkpoints_of_the_same_database() {
    let (world, project) = World::with_project();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    let held = client(&branch);
    let start = state(&work, &branch);
    std::thread::scope(|scope| {
        let project = &project;
        let captures = ["one", "two"].map(|name| scope.spawn(move || project.capture(name, &CaptureOptions::default(), &silent())));
        for capture in captures {
            assert_eq!(capture.join().unwrap().unwrap().downtime_ms, 0);
        }
    });
    drop(held);
    edit(&work, &branch);
    for name in ["one", "two"] {
        restore(&project, name);
        assert_eq!(state(&work, &branch), start, "{name}");
    }
}
