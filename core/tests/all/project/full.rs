//! A full disk in the database half of captures and restores, in a child with a small file system of its own.

use forklift::ErrorKind;
use forklift::branch::CaptureMode;
use forklift::project::RecoverOutcome;

use super::*;

#[test]
fn a_full_disk_leaves_the_old_pair_or_the_new_one() {
    if !Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED a_full_disk_leaves_the_old_pair_or_the_new_one: user and mount namespaces are not allowed here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size=300m tmpfs {} && exec \"$@\"", folder.path().display());
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "project::full::child_on_a_small_disk"]).env(CHILD, folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("DONE"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn child_on_a_small_disk() {
    let Some(disk) = parent() else { return };
    let (world, project) = World::below(&disk).bound();
    let work = world.path("work");
    let branch = project.branch().unwrap().unwrap();
    branch.start(StartOptions::default(), &silent()).unwrap();
    run(&branch, NOISE);
    capture(&project, "start");
    let start = state(&work, &branch);
    let full = |error: &forklift::Error| {
        // The server says it in its own words.
        error.kind() == ErrorKind::NoSpace || format!("{error} {:?}", error.context()).contains("No space left")
    };
    let (mut captures, mut restores) = (0, 0);
    for left_mib in [90, 55, 20, 4, 1, 0] {
        edit(&work, &branch);
        run(&branch, NOISE);
        let edited = state(&work, &branch);
        let log = project.log().unwrap().0.len();
        let filler = fill(&disk, left_mib);
        for mode in [CaptureMode::Online, CaptureMode::Stopped] {
            if let Err(error) = project.capture(&format!("{mode:?}-{left_mib}"), &CaptureOptions { mode }, &silent()) {
                captures += 1;
                assert!(full(&error), "{mode:?} with {left_mib} MiB left: {error} {:?}", error.context());
                assert_eq!(branch.info().unwrap().state, ServerState::Running, "{mode:?} with {left_mib} MiB left");
                assert_eq!(project.log().unwrap().0.len(), log);
            }
        }
        let restored = project.restore("start", &RestoreOptions::default(), &silent());
        std::fs::remove_file(filler).unwrap();
        let expected = match &restored {
            Ok(_) => &start,
            Err(error) if error.kind() == ErrorKind::RecoveryNeeded => {
                let outcome = project.recover(&silent()).unwrap().outcome;
                if outcome == RecoverOutcome::Finished { &start } else { &edited }
            }
            Err(error) => {
                restores += 1;
                assert!(full(error), "a restore with {left_mib} MiB left: {error} {:?}", error.context());
                assert_eq!(branch.clusters().unwrap().len(), 1);
                &edited
            }
        };
        assert_eq!(project.status(&silent()).unwrap().pending, None);
        branch.start(StartOptions::default(), &silent()).unwrap();
        assert_eq!(&state(&work, &branch), expected, "with {left_mib} MiB left: {restored:?}");
        project.prune(true, &silent()).unwrap();
    }
    assert!(captures > 3 && restores > 2, "{captures} captures and {restores} restores failed");
    restore(&project, "start");
    assert_eq!(state(&work, &branch), start);
    println!("DONE");
}

/// Two megabytes that compress badly, others each time.
const NOISE: &str = "CREATE TABLE IF NOT EXISTS noise (v text); TRUNCATE noise; \
                     INSERT INTO noise SELECT md5(random()::text) || md5(random()::text) FROM generate_series(1, 20000)";

/// Leaves so much room.
fn fill(disk: &Path, left_mib: u64) -> PathBuf {
    let filler = disk.join("filler");
    let stat = rustix::fs::statvfs(disk).unwrap();
    let bytes = (stat.f_bavail * stat.f_frsize).saturating_sub(left_mib << 20).max(1);
    let status = Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&filler).status().unwrap();
    assert!(status.success());
    filler
}
