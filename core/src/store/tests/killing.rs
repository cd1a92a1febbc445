//! Prune and repair in processes that are killed at any time, beside others that capture.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::Duration;

use super::crash::{acknowledged, child_command, child_input, content, feed};
use super::verifying::verify;
use super::*;
use crate::store::{PruneOptions, RepairOptions, VerifyLevel};
use crate::{Control, ErrorKind};

/// A child that is killed and reaped whatever happens.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn start(test: &str, store: &std::path::Path) -> Killed {
    let mut child = child_command(test).spawn().unwrap();
    feed(&mut child, store);
    Killed(child)
}

fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Whether a checkpoint is one of those that the pruning child removes.
fn goes(id: &str) -> bool {
    !blake3::hash(id.as_bytes()).as_bytes()[0].is_multiple_of(3)
}

#[test]
fn child_that_prunes() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    let options = PruneOptions { apply: true, attempts: 2, ..PruneOptions::default() };
    loop {
        for found in store.refs().unwrap().0.into_iter().filter(|found| goes(&found.id)) {
            store.remove_ref(&found.id).unwrap();
        }
        match store.prune(&options, &Control::silent()) {
            Ok(report) if !say(&format!("PRUNED {} {}", report.packs_removed, report.packs_rewritten)) => return,
            Err(error) if error.kind() != ErrorKind::Busy => panic!("{error}"),
            _ => {}
        }
    }
}

#[test]
fn child_that_repairs() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    loop {
        match store.repair(&RepairOptions { attempts: 2, ..RepairOptions::default() }, &Control::silent()) {
            Ok(report) => {
                assert!(report.is_whole(), "{report:?}");
                if !say("REPAIRED") {
                    return;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
    }
}

/// Lets a killed child's output tell what it acknowledged.
fn reap(mut child: Killed, lines: &mut Vec<String>) {
    let out = child.0.stdout.take().unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let mut rest = String::new();
    BufReader::new(out).read_to_string(&mut rest).unwrap();
    lines.extend(rest.split_inclusive('\n').map(ToOwned::to_owned));
}

fn first_line(child: &mut Killed, with: &str, lines: &mut Vec<String>) {
    let out = child.0.stdout.as_mut().unwrap();
    // Byte by byte, so that nothing stays behind in a buffer.
    loop {
        let mut line = String::new();
        BufReader::with_capacity(1, &mut *out).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the child ended by itself");
        let wanted = line.contains(with);
        lines.push(line);
        if wanted {
            return;
        }
    }
}

fn check(store: &Store, acknowledged_ids: &[String]) {
    for id in acknowledged_ids {
        assert_eq!(restore(store, id).unwrap(), content(id), "{id}");
    }
    let (refs, bad) = store.refs().unwrap();
    assert!(bad.is_empty());
    for found in &refs {
        assert_eq!(restore(store, &found.id).unwrap(), content(&found.id), "{}", found.id);
    }
    let report = verify(store, VerifyLevel::Full);
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn row_1_row_2_row_5_prunes_killed_at_any_time_beside_captures_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    Store::create(&path).unwrap();
    let (mut lines, mut pruned) = (Vec::new(), Vec::new());
    let kept = |lines: &[String]| -> Vec<String> { lines.iter().filter_map(|line| acknowledged(line)).filter(|id| !goes(id)).collect() };
    let mut round = 0_u64;
    // As many as are worth something, however slow the machine is.
    while round < 10 || kept(&lines).len() < 5 {
        let mut committers: Vec<Killed> = (0..2).map(|_| start("crash::child_that_commits", &path)).collect();
        let mut pruner = start("killing::child_that_prunes", &path);
        committers.iter_mut().for_each(|child| first_line(child, "ACK", &mut lines));
        if round.is_multiple_of(2) {
            first_line(&mut pruner, "PRUNED", &mut pruned);
        }
        std::thread::sleep(Duration::from_micros((round * 7919) % 20_000));
        reap(pruner, &mut pruned);
        committers.into_iter().for_each(|child| reap(child, &mut lines));
        round += 1;
    }
    let kept = kept(&lines);
    assert!(pruned.len() >= 5, "{} prunes", pruned.len());
    let store = Store::open(&path).unwrap();
    check(&store, &kept);
    // No lock is left over, and the rest is done by one more.
    let options = PruneOptions { apply: true, attempts: 1, ..PruneOptions::default() };
    store.prune(&options, &Control::silent()).unwrap();
    check(&store, &kept);
    assert!(files_in(&store, "tmp").is_empty());
    let last = store.prune(&options, &Control::silent()).unwrap();
    assert_eq!((last.packs_removed, last.packs_rewritten), (0, 0), "what was left half done is done: {last:?}");
}

/// Damage that loses nothing: in the header or the footer of a pack, or in the index.
fn hurt(store: &Store, round: u64) {
    let packs = files_in(store, "packs");
    let path = &packs[round as usize % packs.len()];
    let mut bytes = sys::fs::read(path).unwrap();
    let at = if round.is_multiple_of(2) { 3 } else { bytes.len() - 5 };
    bytes[at] ^= 1;
    overwrite(path, &bytes);
    if round.is_multiple_of(3) {
        overwrite(&files_in(store, "index")[0], b"rubbish");
    }
}

#[test]
fn row_21_repairs_killed_at_any_time_beside_captures_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::create(&path).unwrap();
    let (mut lines, mut repaired) = (Vec::new(), Vec::new());
    for at in 0..3 {
        let id = format!("first{at}");
        commit(&store, &id, &content(&id));
        lines.push(format!("ACK {id} END\n"));
    }
    for round in 0..10_u64 {
        hurt(&store, round);
        let mut committer = start("crash::child_that_commits", &path);
        let mut repairer = start("killing::child_that_repairs", &path);
        first_line(&mut committer, "ACK", &mut lines);
        if round % 3 == 0 {
            first_line(&mut repairer, "REPAIRED", &mut repaired);
        }
        std::thread::sleep(Duration::from_micros((round * 7919) % 20_000));
        reap(repairer, &mut repaired);
        reap(committer, &mut lines);
    }
    let kept: Vec<String> = lines.iter().filter_map(|line| acknowledged(line)).collect();
    let report = store.repair(&RepairOptions::default(), &Control::silent()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    check(&store, &kept);
    assert!(!files_in(&store, "quarantine").is_empty());
}
