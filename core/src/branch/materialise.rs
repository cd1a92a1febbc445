//! Turning a checkpoint's cluster half into a cluster of a branch that can be selected.

use super::Branch;
use crate::error::Result;
use crate::progress::Control;
use crate::store::{Half, Reader};

/// A cluster made ready beside the current one: started once in private, verified, stopped cleanly, synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedCluster {
    /// Its id, for [`Branch::select`] and [`Branch::discard`].
    pub id: String,
    /// What may differ (collation versions and the like).
    pub warnings: Vec<String>,
    /// Whether a ready cache was cloned instead of reading the store.
    pub from_cache: bool,
}

impl Branch {
    /// Makes a new cluster of this branch from a checkpoint's half: written (or cloned from its cache), prepared, started in
    /// private (sequences put back, passwords of this branch set, a connect to the database), stopped, synced. The current one is not touched and may be running.
    /// `checkpoint` is the id of the ref: the key of the cache.
    pub fn materialise(&self, reader: &Reader, checkpoint: &str, half: &Half, control: &Control) -> Result<PreparedCluster> {
        let _ = (reader, checkpoint, half, control);
        todo!()
    }
    /// The id of the current cluster.
    pub fn current(&self) -> Result<String> {
        todo!()
    }
    /// Makes a prepared cluster the current one, by renaming `current.json`, durably. The server must be stopped. Idempotent.
    pub fn select(&self, cluster: &str) -> Result<()> {
        let _ = cluster;
        todo!()
    }
    /// Removes a cluster that is not the current one; one that is not there is fine.
    pub fn discard(&self, cluster: &str) -> Result<()> {
        let _ = cluster;
        todo!()
    }
}
