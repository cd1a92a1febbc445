//! A full disk, in a child with a mount namespace of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use forklift::ErrorKind;
use forklift::branch::{CaptureMode, CreateOptions, ForkFrom, ForkOptions, Origin, ServerState};

use super::{Place, commit, run, silent, start, value};

/// Tells the child of the test below that it is it, and where the small disk is.
const SMALL: &str = "FORKLIFT_TEST_SMALL_DISK";

#[test]
fn a_full_disk_fails_every_step_and_leaves_what_was() {
    let folder = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=160m tmpfs {0} && exec {1} --exact branch::faults::child_on_a_small_disk",
        folder.path().display(),
        me.display()
    );
    let allowed = Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success());
    if !allowed {
        println!("SKIPPED a_full_disk_fails_every_step_and_leaves_what_was: user and mount namespaces are not allowed here");
        return;
    }
    let output = Command::new("unshare").args(["-Urm", "sh", "-c", &script]).env(SMALL, folder.path()).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test above tells its child the folder so")]
fn child_on_a_small_disk() {
    let Some(disk) = std::env::var_os(SMALL).map(PathBuf::from) else { return };
    let place = Place::below(&disk);
    let main = place.running("main", "create table t as select 1 as x");
    let session = place.store.session(&silent()).unwrap();
    let capture = main.capture(&session, CaptureMode::Auto, None, &silent()).unwrap();
    let checkpoint = commit(session, &main, capture.half);
    run(&main, "insert into t values (2)");
    let cluster = main.clusters().unwrap();

    for left_mib in [24, 3, 1] {
        let filler = fill(&disk, left_mib);
        let full = |what: &str, error: &forklift::Error| {
            // initdb and the server say it in their own words.
            let told = error.kind() == ErrorKind::NoSpace || format!("{error} {:?}", error.context()).contains("No space left");
            assert!(told, "{what} with {left_mib} MiB left: {error} {:?}", error.context());
        };
        full("create", &place.branches.create("new", &Origin::Empty, &CreateOptions::default(), &silent()).unwrap_err());
        full("fork", &place.branches.fork("new", &ForkFrom::Branch("main".to_owned()), &ForkOptions::default(), &silent()).unwrap_err());
        full(
            "fork",
            &place.branches.fork("new", &ForkFrom::Checkpoint(checkpoint.id.clone()), &ForkOptions::default(), &silent()).unwrap_err(),
        );
        let reader = place.store.reader(&silent()).unwrap();
        full("materialise", &main.materialise(&reader, &checkpoint.id, checkpoint.cluster.as_ref().unwrap(), &silent()).unwrap_err());
        drop(reader);
        std::fs::remove_file(filler).unwrap();
        assert_eq!((place.names(), place.leftovers()), (vec!["main".to_owned()], Vec::new()));
        assert_eq!(main.clusters().unwrap(), cluster);
        let names: Vec<_> = std::fs::read_dir(main.info().unwrap().data.ancestors().nth(2).unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(main.info().unwrap().state, ServerState::Running);
        assert_eq!(value(&main, "select count(*) from t"), "2");
    }
    place.branches.fork("new", &ForkFrom::Branch("main".to_owned()), &ForkOptions::default(), &silent()).unwrap();
    start(&place.branches.find("new").unwrap());
}

/// Leaves so much room.
fn fill(disk: &Path, left_mib: u64) -> PathBuf {
    let filler = disk.join("filler");
    let stat = rustix::fs::statvfs(disk).unwrap();
    let bytes = (stat.f_bavail * stat.f_frsize).saturating_sub(left_mib << 20);
    let status = Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&filler).status().unwrap();
    assert!(status.success());
    filler
}
