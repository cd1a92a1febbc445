//! A maker that is killed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use forklift::branch::{Branches, CreateOptions, Origin};
use forklift::store::Store;

use super::super::support::wait_for;
use super::{Place, environment, silent};

/// Tells the child of the test below which store it works in.
const FOLDER: &str = "FORKLIFT_TEST_MAKER";

#[test]
fn a_maker_killed_in_the_middle_leaves_no_branch() {
    let place = Place::new();
    let mut maker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "branch::crash::maker"])
        .env(FOLDER, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the seed of the other process", || place.path().join("seeding").exists());
    // A living maker's is left alone, by opening and by name.
    assert_eq!(place.reopen().list().unwrap().len(), 0);
    assert_eq!(place.leftovers().len(), 1);
    maker.kill().unwrap();
    maker.wait().unwrap();
    // Its keeper stops the server; then the next open removes all of it.
    wait_for("the leftovers to be swept", || {
        place.reopen();
        place.leftovers().is_empty()
    });
    assert_eq!(place.names(), Vec::<String>::new());
    let sockets = place.store.path().join("sockets");
    assert_eq!(std::fs::read_dir(sockets).unwrap().count(), 0);
    place.empty("main");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test above tells its child the folder so")]
fn maker() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = Store::open(&folder.join("store")).unwrap();
    let branches = Branches::open(&store, &environment()).unwrap();
    // Ends by itself once its parent is gone.
    let script = "touch seeding; while kill -0 $PPID 2>/dev/null && [ $(ps -o ppid= -p $$) -ne 1 ]; do sleep 0.05; done";
    let command = ["/bin/sh", "-c", script].into_iter().map(Into::into).collect();
    branches.create("main", &Origin::Seed { command, folder }, &CreateOptions::default(), &silent()).unwrap();
}
