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

    /// Saves what the next capture of this cluster need not read, and lets go of clones beyond the limit. The branch's lock is held
    /// alone. All of that is a cache: what fails costs reads or space, and goes later.
    pub(super) fn keep_for_next(&self, cluster: &str, cache: &ClusterCache) -> Result<()> {
        cache.save(&self.folder.cluster(cluster).cache(), &sys::process::boot_id()?);
        let others = self.clusters().unwrap_or_default().into_iter().filter(|other| other != cluster);
        let replaced = others.map(|other| forget_kept(&self.folder.cluster(&other).kept())).fold(Ok(()), Result::and);
        drop((replaced, evict(&self.shared.root)));
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

/// Removes the clones beyond the limit whose captures were the longest ago, but for those of branches at which somebody is at work.
fn evict(branches: &std::path::Path) -> Result<()> {
    let mut kept = Vec::new();
    for name in sys::fs::names(branches)?.iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")) {
        let branch = super::layout::Folder::new(branches.join(name));
        for cluster in sys::fs::names(&branch.clusters()).unwrap_or_default() {
            let folder = super::layout::ClusterFolder(branch.clusters().join(cluster)).kept();
            if let Ok(used) = std::fs::metadata(&folder).and_then(|metadata| metadata.modified()) {
                kept.push((used, folder, branch.lock()));
            }
        }
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(LIMIT);
    for (_, folder, lock) in kept.into_iter().take(surplus) {
        // Not waited for, so its place in the order of locks does not matter.
        if let Some(_lock) = sys::lock::Lock::attempt_existing(&lock, sys::lock::Mode::Exclusive)? {
            forget_kept(&folder)?;
        }
    }
    Ok(())
}
