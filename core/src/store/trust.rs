//! Which stored copies of chunks a session believes: those that the index names, or only those that it has read.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::index::Location;
use super::pack::Kind;
use super::packfile::PackCache;
use super::{ChunkId, Half, Reader, Store, manifest};
use crate::error::Result;
use crate::progress::Control;

/// What one session has read of the copies it would rely on; each is read once.
#[derive(Debug)]
pub(super) struct Trust {
    /// Whether every copy is read, not only those in packs in which damage was seen.
    every: bool,
    packs: PackCache,
    /// Whether a copy is whole, by segment, pack and offset.
    read: Mutex<HashMap<(usize, u32, u32), bool>>,
}

impl Trust {
    pub(super) fn new(every: bool) -> Self {
        Self { every, packs: PackCache::default(), read: Mutex::default() }
    }

    /// Whether the copy at `location`, of a pack that is there, may stand for the chunk.
    pub(super) fn believes(&self, store: &Store, id: &ChunkId, segment: usize, location: &Location) -> bool {
        if !self.every && !store.is_doubted(&location.pack) {
            return true;
        }
        let key = (segment, location.ordinal, location.offset);
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(whole) = known {
            return whole;
        }
        // Where it cannot be read for whatever reason, storing it once more is never wrong.
        let whole = self.packs.open(store.layout(), &location.pack).and_then(|pack| pack.read(id, location)).is_ok();
        if !whole {
            store.doubt(location.pack);
        }
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(key, whole);
        whole
    }
}

/// Every chunk that a half needs, under a lock that the caller holds; `None` where its manifest cannot be read whole.
pub(super) fn chunks_of(store: &Store, half: &Half, control: &Control) -> Result<Option<Vec<ChunkId>>> {
    let reader = Reader::locked_elsewhere(store, None)?;
    let mut ids = HashSet::new();
    match manifest::walk(&reader, &half.root, control, &mut |id, kind| ids.insert((*id, kind == Kind::Metadata))) {
        Err(error) if manifest::is_damage(&error) => Ok(None),
        other => other.map(|()| Some(ids.into_iter().map(|(id, _)| id).collect())),
    }
}
