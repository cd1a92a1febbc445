//! How much a store holds, in all and by checkpoint.

use std::collections::HashSet;

use serde::Serialize;

use super::manifest::walk;
use super::pack::{BLOB_HEADER, Kind};
use super::prune::Trash;
use super::{ChunkId, Reader, Store, reader};
use crate::error::Result;
use crate::progress::{Control, Unit};

/// What a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StatsReport {
    /// By checkpoint, oldest first.
    pub checkpoints: Vec<CheckpointStats>,
    /// Refs that cannot be read, by name.
    pub refs_unreadable: Vec<String>,
    /// Plain bytes of all checkpoints, each counted in full.
    pub logical_bytes: u64,
    /// Plain bytes of the different chunks that they need: file content and manifests.
    pub unique_bytes: u64,
    /// Bytes that those chunks take in packs.
    pub stored_bytes: u64,
    /// Different chunks that checkpoints need.
    pub chunks: u64,
    /// Packs.
    pub packs: u64,
    /// Bytes of all packs, with what no checkpoint needs.
    pub pack_bytes: u64,
    /// Index segments.
    pub segments: u64,
    /// Bytes that the index takes in memory.
    pub index_memory: u64,
    /// Bytes that the next prune unlinks.
    pub trash_bytes: u64,
}

/// What one checkpoint holds. What it needs and an older one needs too counts for the older one, so that all of them add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckpointStats {
    /// Its id.
    pub id: String,
    /// Plain bytes of its files and cluster.
    pub logical_bytes: u64,
    /// Plain bytes of chunks that no older checkpoint needs.
    pub unique_bytes: u64,
    /// Bytes that those chunks take in packs.
    pub stored_bytes: u64,
}

pub(super) fn stats(store: &Store, control: &Control) -> Result<StatsReport> {
    let layout = store.layout();
    let reader = Reader::locked_elsewhere(store, reader::shared(store, control)?)?;
    let (refs, bad) = store.refs()?;
    let view = store.view(true)?;
    let mut report = StatsReport { refs_unreadable: bad, segments: view.segments().len() as u64, ..StatsReport::default() };
    let mut needed: HashSet<[u8; 16]> = HashSet::new();
    let mut walked: HashSet<ChunkId> = HashSet::new();
    for (done, reference) in refs.iter().enumerate() {
        control.report("count", done as u64, refs.len() as u64, Unit::Items);
        let mut of = CheckpointStats { id: reference.id.clone(), ..CheckpointStats::default() };
        for half in [&reference.files, &reference.cluster].into_iter().flatten() {
            of.logical_bytes += half.bytes;
            walk(&reader, &half.root, control, &mut |id, kind| {
                if *id != ChunkId::ZERO
                    && needed.insert(id.prefix())
                    && let Some((_, location)) = view.locate(id).next()
                {
                    of.unique_bytes += u64::from(location.plain);
                    of.stored_bytes += u64::from(location.stored) + BLOB_HEADER as u64;
                }
                kind == Kind::Data || walked.insert(*id)
            })?;
        }
        report.logical_bytes += of.logical_bytes;
        report.unique_bytes += of.unique_bytes;
        report.stored_bytes += of.stored_bytes;
        report.checkpoints.push(of);
    }
    report.chunks = needed.len() as u64;
    for id in layout.list_packs(|_| ())? {
        report.packs += 1;
        report.pack_bytes += layout.disk().stat(&layout.pack(&id))?.map_or(0, |found| found.len);
    }
    report.index_memory = view.all().map(|segment| segment.memory() as u64).sum();
    report.trash_bytes = Trash::list(layout)?.bytes;
    Ok(report)
}
