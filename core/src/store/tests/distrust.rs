//! Damaged copies of unchanged size: the index names them, and sessions that know or ask do not count them as stored.

use super::verifying::verify;
use super::*;
use crate::store::{RepairOptions, VerifyLevel};

const LEN: usize = 200_000;

/// A store with one checkpoint, in whose pack a byte of the file was flipped.
fn damaged() -> (TempDir, Store, Tree) {
    let (folder, store) = new_store();
    let files = tree(&[("f", noise(1, LEN)), ("g", b"text ".repeat(20))]);
    commit(&store, "a", &files);
    flip(&store, LEN / 2);
    (folder, Store::open(store.path()).unwrap(), files)
}

fn flip(store: &Store, at: usize) {
    let pack = files_in(store, "packs").remove(0);
    let mut bytes = sys::fs::read(&pack).unwrap();
    bytes[at] ^= 1;
    overwrite(&pack, &bytes);
}

fn commit_verifying(store: &Store, id: &str, files: &Tree) -> crate::store::SessionReport {
    commit_in(store.verifying_session(&Control::silent()).unwrap(), id, files).unwrap()
}

#[test]
fn a_verifying_session_stores_a_damaged_chunk_anew() {
    let (_folder, store, files) = damaged();
    assert_eq!(commit(&store, "believing", &files).bytes_new, 0, "captures do not read what is stored");
    restore(&Store::open(store.path()).unwrap(), "a").unwrap_err();
    let report = commit_verifying(&store, "b", &files);
    assert_eq!(report.bytes_new, LEN as u64, "the damaged chunk only");
    for id in ["a", "believing", "b"] {
        assert_eq!(restore(&Store::open(store.path()).unwrap(), id).unwrap(), files, "{id}");
    }
    assert_eq!(commit_verifying(&store, "c", &files).bytes_new, 0, "the whole copy is found beside the damaged one");
    // Also once the segments are merged, and after the damaged pack has gone.
    for turn in 0..20 {
        commit(&store, &format!("turn-{turn}"), &tree(&[("h", noise(100 + turn, 5000))]));
    }
    let fresh = Store::open(store.path()).unwrap();
    assert_eq!(restore(&fresh, "b").unwrap(), files);
    assert_eq!(commit_verifying(&fresh, "d", &files).bytes_new, 0);
    assert!(fresh.repair(&RepairOptions::default(), &Control::silent()).unwrap().is_whole());
    assert!(verify(&fresh, VerifyLevel::Full).is_whole());
    assert_eq!(restore(&fresh, "a").unwrap(), files);
}

#[test]
fn a_pack_that_comes_out_the_same_takes_the_place_of_the_damaged_one() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 40))]);
    commit(&store, "a", &files);
    let name = files_in(&store, "packs");
    let bytes = sys::fs::read(&name[0]).unwrap();
    // Every chunk of it.
    let mut zeros = bytes.clone();
    zeros[16..bytes.len() - 100].fill(7);
    overwrite(&name[0], &zeros);
    let store = Store::open(store.path()).unwrap();
    commit_verifying(&store, "b", &files);
    assert_eq!(files_in(&store, "packs"), name);
    assert_eq!(sys::fs::read(&name[0]).unwrap(), bytes);
    assert_eq!(files_in(&store, "quarantine").len(), 1);
    assert_eq!(restore(&store, "b").unwrap(), files);
}

#[test]
fn a_cached_list_is_read_again_where_its_copy_is_damaged() {
    let (_folder, store, files) = damaged();
    let half = store.find_ref("a").unwrap().files.unwrap();
    let session = store.session(&Control::silent()).unwrap();
    let chunks = session.put_bytes(&files["f"], Cutting::Content).unwrap().chunks;
    let not_there = |session: &crate::store::Session| chunks.iter().filter(|chunk| !session.has(&chunk.id).unwrap()).count();
    assert_eq!(not_there(&session), 0);
    assert!(session.has_all(&half).unwrap());
    drop(session);
    let session = store.verifying_session(&Control::silent()).unwrap();
    assert_eq!(not_there(&session), 1);
    assert!(!session.has_all(&half).unwrap());
    session.put_bytes(&files["f"], Cutting::Content).unwrap();
    assert_eq!(not_there(&session), 0, "this session has it now");
    assert!(session.has_all(&half).unwrap());
}

#[test]
fn damage_that_a_reader_met_is_stored_again_by_any_session() {
    let (_folder, store, files) = damaged();
    restore(&store, "a").unwrap_err();
    let report = commit(&store, "b", &files);
    assert_eq!(report.bytes_new, LEN as u64);
    assert_eq!(restore(&Store::open(store.path()).unwrap(), "a").unwrap(), files);
    assert_eq!(commit(&store, "c", &files).bytes_new, 0);
}

#[test]
fn damage_that_verify_found_is_stored_again_by_any_session() {
    for level in [VerifyLevel::Packs, VerifyLevel::Full] {
        let (_folder, store, files) = damaged();
        assert!(!verify(&store, level).is_whole());
        assert!(commit(&store, "b", &files).bytes_new > 0, "{level:?}");
        assert_eq!(restore(&Store::open(store.path()).unwrap(), "a").unwrap(), files);
    }
}
