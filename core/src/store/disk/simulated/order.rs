//! What every simulated disk asserts: a ref appears after all it needs is durable, and what a ref needs never goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::crash::certain;
use super::state::{History, Node, State};
use super::{Disk, SimulatedDisk};
use crate::progress::Control;
use crate::store::layout::PackId;
use crate::store::{EntryKind, Store};

/// Where `path` is a ref that has just appeared: a loss of power may take the ref, but nothing that it needs.
pub(super) fn appeared(after: &State, path: &Path) {
    let Some((root, "refs", id)) = place(path) else { return };
    let file = after.find(path).unwrap();
    let Node::File { bytes, synced, .. } = after.node(file) else { panic!("ref {id} is a folder") };
    assert_eq!(*synced, bytes.len(), "ref {id} was renamed into place before its content was durable");
    let durable = with_refs(certain(after), &root, BTreeMap::from([(id.clone(), Arc::clone(bytes))]));
    if let Err(error) = readable(&durable, &root, &id) {
        panic!("ref {id} was renamed into place before what it needs was durable: {error}");
    }
}

/// Where `path` was a pack: every ref that a loss of power may leave was readable without it, if it was with it.
pub(super) fn removed(before: &State, after: &State, path: &Path) {
    let Some((root, top, name)) = place(path) else { return };
    if top != "packs" && top != "trash" {
        return;
    }
    let Some(id) = PackId::of_name(&name) else { return };
    let bytes = before.find(path).and_then(|id| before.bytes(id)).cloned().unwrap_or_default();
    if blake3::hash(&bytes).as_bytes() != &id.0 {
        return;
    }
    let refs = possible_refs(after, &root);
    let (with, without) = (with_refs(certain(before), &root, refs.clone()), with_refs(certain(after), &root, refs.clone()));
    for id in refs.keys() {
        if let Err(error) = readable(&without, &root, id) {
            assert!(readable(&with, &root, id).is_err(), "{} went, and ref {id} needs it: {error}", path.display());
        }
    }
}

/// The store, the folder in it and the name of a path such as `/disk/store/packs/ab/cdef.pack`.
fn place(path: &Path) -> Option<(PathBuf, &'static str, String)> {
    let mut ancestors = path.ancestors().skip(1);
    let (root, top) = ancestors.find_map(|ancestor| {
        let top = ["packs", "trash", "refs"].into_iter().find(|top| ancestor.file_name().is_some_and(|name| name == *top))?;
        Some((ancestor.parent()?.to_owned(), top))
    })?;
    Some((root, top, path.file_name()?.to_str()?.to_owned()))
}

type Refs = BTreeMap<String, Arc<Vec<u8>>>;

/// Every ref that a loss of power may leave.
fn possible_refs(state: &State, root: &Path) -> Refs {
    let Ok(folder) = state.find(&root.join("refs")) else { return Refs::new() };
    let Node::Folder { names, .. } = state.node(folder) else { return Refs::new() };
    let files = names.iter().flat_map(|(name, history)| history.0.iter().filter_map(move |(_, id)| Some((name, (*id)?))));
    files.filter_map(|(name, id)| Some((name.to_str()?.to_owned(), Arc::clone(state.bytes(id).ok()?)))).collect()
}

/// The same disk with exactly these refs.
fn with_refs(mut state: State, root: &Path, refs: Refs) -> Option<State> {
    let folder = state.find(&root.join("refs")).ok()?;
    let mut names = BTreeMap::new();
    for (at, (name, bytes)) in refs.into_iter().enumerate() {
        let id = u64::MAX - at as u64;
        state.nodes.insert(id, Arc::new(Node::File { synced: bytes.len(), bytes, dropped: false, changed: 0 }));
        names.insert(name.into(), History(vec![(0, Some(id))]));
    }
    state.nodes.insert(folder, Arc::new(Node::Folder { names, changed: 0 }));
    Some(state)
}

/// Reads all of a checkpoint.
fn readable(state: &Option<State>, root: &Path, id: &str) -> Result<(), String> {
    let state = state.clone().ok_or("the folder of the refs is not durable")?;
    let disk: Arc<dyn Disk> = SimulatedDisk::with(state, false);
    let read = || -> crate::Result<()> {
        let store = Store::open_on(&disk, root)?;
        let found = store.find_ref(id)?;
        let reader = store.reader(&Control::silent())?;
        for half in [&found.files, &found.cluster].into_iter().flatten() {
            for entry in reader.manifest(&half.root)? {
                if let EntryKind::File { chunks, .. } = entry?.kind {
                    reader.copy(&chunks, &mut std::io::sink())?;
                }
            }
        }
        Ok(())
    };
    read().map_err(|error| error.to_string())
}
