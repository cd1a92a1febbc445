//! Where a captured cluster goes: through a clone of it where the file system shares blocks, else at once.

use super::Branch;
use crate::error::Result;
use crate::postgres::{CloneSink, ClusterCache, Sink, StoreSink, StoredCluster, forget_kept};
use crate::progress::Control;
use crate::store::Session;
use crate::sys;

/// Set to anything: blocks are not compared, and no clone is kept for it.
const NO_EXTENTS: &str = "FORKLIFT_NO_EXTENTS";
/// How many clones are kept in a store, of the clusters that were captured last.
const LIMIT: usize = 8;

/// The sink of one capture.
pub(super) enum Storing<'a> {
    /// Cloned now, read when the copy is over.
    Clone(Box<CloneSink<'a>>),
    /// Read now.
    Direct(Box<StoreSink<'a>>),
}

impl Storing<'_> {
    pub(super) fn as_sink(&mut self) -> &mut dyn Sink {
        match self {
            Self::Clone(sink) => sink.as_mut(),
            Self::Direct(sink) => sink.as_mut(),
        }
    }

    /// Reads what was cloned.
    pub(super) fn store(self, control: &Control) -> Result<StoredCluster> {
        match self {
            Self::Clone(sink) => sink.store(control),
            Self::Direct(sink) => {
                let reads = sink.reads();
                let (half, cache) = sink.finish()?;
                Ok(StoredCluster { half, cache, reads, warnings: Vec::new() })
            }
        }
    }
}

impl Branch {
    /// The sink for a capture of this cluster. The branch's lock is held alone.
    pub(super) fn sink<'a>(&self, session: &'a Session, cluster: &str) -> Result<Storing<'a>> {
        let folder = self.folder.cluster(cluster);
        let boot = sys::process::boot_id()?;
        let known = || ClusterCache::load(&folder.cache(), &boot);
        let compares = self.shared.environment.get(NO_EXTENTS).is_none();
        Ok(match CloneSink::new(session, known(), &folder.data(), &folder.kept(), compares)? {
            Some(sink) => Storing::Clone(Box::new(sink)),
            None => Storing::Direct(Box::new(StoreSink::new(session, known()))),
        })
    }

    /// Saves what the next capture of this cluster need not read, and lets go of clones beyond the limit.
    pub(super) fn keep_for_next(&self, cluster: &str, cache: &ClusterCache) -> Result<()> {
        cache.save(&self.folder.cluster(cluster).cache(), &sys::process::boot_id()?);
        for other in self.clusters()?.iter().filter(|other| *other != cluster) {
            forget_kept(&self.folder.cluster(other).kept())?;
        }
        // One that cannot be removed now goes later.
        let evicted = evict(&self.shared.root);
        drop(evicted);
        Ok(())
    }

    /// Bytes on disk of the clones that are kept of this branch's clusters, counting blocks that are shared with others in full.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        let clusters = self.clusters().unwrap_or_default();
        clusters.iter().map(|cluster| super::layout::bytes_on_disk(&self.folder.cluster(cluster).kept())).sum()
    }

    /// Removes the clones that are kept of this branch's clusters: the next capture reads changed files whole.
    ///
    /// # Errors
    /// `Busy` while another command works on the branch, `Io`.
    pub fn forget_kept(&self) -> Result<()> {
        let forget = || {
            let _lock = self.lock(sys::lock::Mode::Exclusive, &Control::silent())?;
            self.clusters()?.iter().try_for_each(|cluster| forget_kept(&self.folder.cluster(cluster).kept()))
        };
        super::shared::named(&self.record.name, forget())
    }
}

/// Removes the clones beyond the limit whose captures were the longest ago. A capture that is at work there reads whole.
fn evict(branches: &std::path::Path) -> Result<()> {
    let mut kept = Vec::new();
    for branch in sys::fs::names(branches)? {
        let clusters = super::layout::Folder::new(branches.join(branch)).clusters();
        for cluster in sys::fs::names(&clusters).unwrap_or_default() {
            let folder = super::layout::ClusterFolder(clusters.join(cluster)).kept();
            if let Ok(used) = std::fs::metadata(&folder).and_then(|metadata| metadata.modified()) {
                kept.push((used, folder));
            }
        }
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(LIMIT);
    kept.iter().take(surplus).try_for_each(|(_, folder)| forget_kept(folder))
}
