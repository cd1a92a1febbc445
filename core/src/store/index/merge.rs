//! Putting a new segment together: from new packs, from packs without a segment, and from segments that it replaces.

use std::collections::HashSet;
use std::sync::Arc;

use super::segment::{Row, Segment};
use super::view::View;
use crate::store::layout::PackId;
use crate::store::pack::Blob;

/// More segments than this are merged.
const MAX_SEGMENTS: usize = 16;
/// A merge leaves at most so many of the largest alone.
const KEEP: usize = 8;

/// A segment being put together; each pack is taken once.
#[derive(Debug, Default)]
pub(in crate::store) struct Draft {
    packs: Vec<(PackId, u64)>,
    rows: Vec<Row>,
    have: HashSet<PackId>,
}

impl Draft {
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// Adds a pack that was just written.
    pub(in crate::store) fn add_pack(&mut self, id: PackId, size: u64, blobs: &[Blob]) {
        if self.have.insert(id) {
            let ordinal = self.packs.len() as u32;
            self.packs.push((id, size));
            self.rows.extend(blobs.iter().map(|blob| Row::of(blob, ordinal)));
        }
    }

    /// Adds all of a segment but the packs that `leave_out` names.
    pub(in crate::store) fn add_segment(&mut self, segment: &Segment, leave_out: impl Fn(&PackId) -> bool) {
        let ordinals: Vec<Option<u32>> = segment
            .packs()
            .iter()
            .map(|(id, size)| {
                (!leave_out(id) && self.have.insert(*id)).then(|| {
                    self.packs.push((*id, *size));
                    (self.packs.len() - 1) as u32
                })
            })
            .collect();
        let kept = segment.rows().filter_map(|row| ordinals.get(row.pack as usize).copied().flatten().map(|pack| Row { pack, ..row }));
        self.rows.extend(kept);
    }

    /// The file of the segment.
    pub(in crate::store) fn encode(mut self, uuid: &[u8; 16], sequence: u64) -> Vec<u8> {
        self.rows.sort_unstable();
        Segment::encode(uuid, sequence, &self.packs, &self.rows)
    }
}

/// The segments that the next one should replace: none up to 16, else the smallest, so that each row is rewritten a
/// logarithmic number of times.
pub(in crate::store) fn superseded_by_merge(view: &View) -> Vec<(String, Arc<Segment>)> {
    let mut segments = view.segments().to_vec();
    if segments.len() < MAX_SEGMENTS {
        return Vec::new();
    }
    segments.sort_by_key(|(_, segment)| segment.len());
    let mut merged = 0_usize;
    let mut count = 0;
    for (_, segment) in &segments {
        if segments.len() - count <= KEEP && segment.len() > merged.saturating_mul(2) {
            break;
        }
        merged += segment.len();
        count += 1;
    }
    segments.truncate(count);
    segments
}
