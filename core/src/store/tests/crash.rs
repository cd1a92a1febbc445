//! Real processes that commit at once and are killed with a real signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::store::PruneOptions;

/// Set in the process of a child, so that it does nothing when it is run as one test among all.
pub(super) const CHILD: &str = "FORKLIFT_TEST_STORE_CHILD";

/// This test program again, running one test that takes its input from stdin.
pub(super) fn child_command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("store::tests::{test}"), "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What the parent wrote, in a child; `None` where all tests are run.
#[allow(clippy::disallowed_methods, reason = "tells a child from a test that nobody started as one")]
pub(super) fn child_input() -> Option<PathBuf> {
    std::env::var_os(CHILD)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.strip_prefix("store ").map(|path| PathBuf::from(path.trim_end()))
}

pub(super) fn feed(child: &mut Child, store: &std::path::Path) {
    child.stdin.take().unwrap().write_all(format!("store {}\n", store.display()).as_bytes()).unwrap();
}

/// A child that is killed and reaped whatever happens.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a child stores under an id, so that the parent knows it.
pub(super) fn content(id: &str) -> Tree {
    let seed = u64::from_le_bytes(blake3::hash(id.as_bytes()).as_bytes()[..8].try_into().unwrap());
    tree(&[("same", noise(7, 30_000)), ("some", noise(seed % 5, 10_000)), ("own", noise(seed, 5_000)), ("large", noise(seed % 3, 200_000))])
}

#[test]
fn child_that_commits() {
    let Some(path) = child_input() else { return };
    let store = Store::open_or_create(&path).unwrap();
    loop {
        let id = sys::id::sortable().unwrap();
        commit(&store, &id, &content(&id));
        let mut out = std::io::stdout().lock();
        if writeln!(out, "ACK {id} END").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn spawn(store: &std::path::Path) -> (Killed, BufReader<ChildStdout>) {
    let mut child = child_command("crash::child_that_commits").spawn().unwrap();
    feed(&mut child, store);
    let out = BufReader::new(child.stdout.take().unwrap());
    (Killed(child), out)
}

/// The id in a line of a child, if it is a whole acknowledgement.
pub(super) fn acknowledged(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("ACK ")?;
    rest.strip_suffix(" END\n").map(ToOwned::to_owned)
}

fn next(out: &mut BufReader<ChildStdout>) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the child ended by itself");
        if let Some(id) = acknowledged(&line) {
            return id;
        }
    }
}

#[test]
fn row_27_killed_at_any_time_every_acknowledged_ref_restores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut ids = Vec::new();
    for round in 0..16_u64 {
        // Two processes at a time, the first of them making the store.
        let children: Vec<_> = (0..2).map(|_| spawn(&path)).collect();
        for (at, (mut child, mut out)) in children.into_iter().enumerate() {
            if round > 0 {
                ids.push(next(&mut out));
            }
            std::thread::sleep(Duration::from_micros((round * 7919 + at as u64 * 4001) % 9000));
            child.0.kill().unwrap();
            child.0.wait().unwrap();
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            ids.extend(rest.split_inclusive('\n').filter_map(acknowledged));
        }
    }
    assert!(ids.len() >= 30);
    let store = Store::open_or_create(&path).unwrap();
    let (refs, bad) = store.refs().unwrap();
    assert!(bad.is_empty(), "{bad:?}");
    assert!(refs.len() >= ids.len());
    // Those that were not acknowledged are whole too.
    for id in ids.iter().chain(refs.iter().map(|found| &found.id)) {
        assert_eq!(restore(&store, id).unwrap(), content(id), "{id}");
    }
    store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap();
    assert!(files_in(&store, "tmp").is_empty());
    for found in &refs {
        assert_eq!(restore(&store, &found.id).unwrap(), content(&found.id));
    }
}

#[test]
fn several_processes_commit_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut children: Vec<_> = (0..3).map(|_| spawn(&path)).collect();
    let ids: Vec<String> = children.iter_mut().flat_map(|(_, out)| (0..6).map(|_| next(out)).collect::<Vec<_>>()).collect();
    drop(children);
    let store = Store::open(&path).unwrap();
    for id in &ids {
        assert_eq!(restore(&store, id).unwrap(), content(id), "{id}");
    }
}
