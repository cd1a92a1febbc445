//! Tests of the store as a whole; each named `row_<n>` replays a public failure of another store.

mod crash;
mod cutting;
mod damage;
mod distrust;
mod faults;
mod golden;
mod index;
mod killing;
mod layout;
mod limits;
mod manifests;
mod order;
mod packs;
mod pruning;
mod reading;
mod refs;
mod repairing;
mod rewriting;
mod sessions;
mod sharing;
mod simulated;
mod verifying;

use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{ChunkId, Cutting, Entry, EntryKind, Half, Ref, RefKind, Store};
use crate::progress::Control;
use crate::sys;

/// A store in a folder of its own, removed at the end.
fn new_store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    (folder, store)
}

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn reference(id: &str, root: ChunkId) -> Ref {
    Ref {
        id: id.to_owned(),
        name: None,
        created_ms: 1,
        kind: RefKind::Capture,
        project: None,
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files: Some(Half { root, entries: 0, bytes: 0, facts: serde_json::Value::Null }),
        cluster: None,
        facts: serde_json::Value::Null,
        boot_id: "boot".to_owned(),
    }
}

fn file_entry(path: &str, size: u64, chunks: Vec<super::ChunkRef>) -> Entry {
    let kind = EntryKind::File { size, chunks, holes: Vec::new(), link: 0 };
    Entry { path: path.as_bytes().to_vec(), kind, mode: 0o644, uid: 1, gid: 2, mtime_ns: -3, xattrs: Vec::new(), unstable: false }
}

type Tree = BTreeMap<String, Vec<u8>>;

fn tree(files: &[(&str, Vec<u8>)]) -> Tree {
    files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.clone())).collect()
}

/// Stores files under a ref.
fn try_commit(store: &Store, id: &str, files: &Tree) -> crate::Result<super::SessionReport> {
    commit_in(store.session(&Control::silent())?, id, files)
}

fn commit_in(session: super::Session, id: &str, files: &Tree) -> crate::Result<super::SessionReport> {
    let mut manifest = session.manifest();
    for (path, bytes) in files {
        let read = session.put_bytes(bytes, Cutting::Content)?;
        manifest.push(&file_entry(path, read.size, read.chunks))?;
    }
    let root = manifest.finish()?;
    session.commit(&reference(id, root))
}

fn commit(store: &Store, id: &str, files: &Tree) -> super::SessionReport {
    try_commit(store, id, files).unwrap()
}

/// Reads files back by a ref.
fn restore(store: &Store, id: &str) -> crate::Result<Tree> {
    let reader = store.reader(&Control::silent())?;
    let found = store.find_ref(id)?;
    let mut files = Tree::new();
    for entry in reader.manifest(&found.files.unwrap().root)? {
        let entry = entry?;
        if let EntryKind::File { chunks, size, .. } = &entry.kind {
            let mut bytes = Vec::new();
            reader.copy(chunks, &mut bytes)?;
            assert_eq!(bytes.len() as u64, *size);
            files.insert(String::from_utf8(entry.path).unwrap(), bytes);
        }
    }
    Ok(files)
}

/// The files in a folder of the store, below it too.
fn files_in(store: &Store, folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![store.path().join(folder)];
    while let Some(folder) = folders.pop() {
        for name in sys::fs::names(&folder).unwrap() {
            let path = folder.join(name);
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Replaces a published, read-only file.
fn overwrite(path: &std::path::Path, bytes: &[u8]) {
    std::fs::remove_file(path).unwrap();
    drop(sys::fs::write_unsynced(path, &[bytes], 0o600).unwrap());
}
