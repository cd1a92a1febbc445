//! Reading one clone: only where its blocks are others than those of the kept clone, else all of it but its holes.

use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::path::Path;

use super::blocks::{compare, covers, holes};
use super::kept::{Kept, KeptFile};
use crate::error::{Error, Result};
use crate::postgres::ClusterCache;
use crate::postgres::cluster_cache::Stat;
use crate::store::{ChunkId, ChunkRef, Cutting, Session};
use crate::sys::extents::blocks_tell;
use crate::sys::fs::{open_regular, read_at};

/// Bytes of a chunk of a relation file.
const PAGE: u64 = 32 << 10;
/// Chunks that are read and stored at once.
const AT_ONCE: usize = 128;
/// Of so many chunks whose blocks did not change one is read all the same.
const SAMPLED: usize = 1024;

/// What is known of a clone's chunks before it is read.
pub(super) struct Plan {
    /// `None` where it has to be read.
    chunks: Vec<Option<ChunkRef>>,
    /// Its blocks could be compared with those of the kept clone.
    pub(super) compared: bool,
    /// There was something to compare with, and it is not to be trusted.
    pub(super) doubted: bool,
    /// Bytes that were read to see whether equal blocks hold what they held.
    pub(super) sampled: u64,
}

/// What looking at the blocks of a clone came to.
pub(super) enum Looked {
    /// It is read like this.
    Plan(Plan),
    /// Blocks that did not change hold something else.
    Lie,
}

/// Looks which chunks of the relation file `clone` need not be read: those in the same blocks as in the kept clone (where `kept` is
/// given), and those that are holes.
pub(super) fn look(clone: &Path, path: &Path, kept: Option<&Kept>, known: &ClusterCache) -> Result<Looked> {
    let file = open_regular(clone)?;
    let metadata = file.metadata().map_err(|source| Error::io("examine", clone, source))?;
    let size = metadata.len();
    let old = kept.filter(|_| blocks_tell(&file)).and_then(|kept| kept.find(known, path));
    if let Some(old) = &old
        && let Some(compared) = compare(&old.file, &file, size).filter(|_| is_untouched(old))
    {
        let chunks = chunks_of(size, &compared.same, old.chunks, &compared.holes);
        return sample(&file, clone, chunks);
    }
    let holes = if crate::sys::tree::stat_open(&file).is_ok_and(|stat| stat.allocated < size) {
        holes(&file, size).map_err(|errno| Error::io("seek in", clone, errno))?
    } else {
        Vec::new()
    };
    Ok(Looked::Plan(Plan { chunks: chunks_of(size, &[], &[], &holes), compared: false, doubted: old.is_some(), sampled: 0 }))
}

/// Reads what the plan does not know. The chunks, and how many bytes were read.
pub(super) fn read(session: &Session, clone: &Path, plan: &Plan) -> Result<(Vec<ChunkRef>, u64)> {
    let file = open_regular(clone)?;
    let (mut found, mut read) = (Vec::with_capacity(plan.chunks.len()), plan.sampled);
    let mut buffer = Vec::new();
    let size = file.metadata().map_err(|source| Error::io("examine", clone, source))?.len();
    while found.len() < plan.chunks.len() {
        let rest = plan.chunks.get(found.len()..).unwrap_or_default();
        if let Some(Some(chunk)) = rest.first() {
            found.push(*chunk);
            continue;
        }
        let unknown = rest.iter().take(AT_ONCE).take_while(|chunk| chunk.is_none()).count();
        let start = found.len() as u64 * PAGE;
        let end = (start + unknown as u64 * PAGE).min(size);
        read_exactly(&file, clone, start..end, &mut buffer)?;
        read += end - start;
        found.extend(session.put_bytes(&buffer, Cutting::Pages)?.chunks);
    }
    Ok((found, read))
}

/// The kept file is still what it was when it was found.
fn is_untouched(old: &KeptFile<'_>) -> bool {
    Stat::of(&old.file, &old.path, Cutting::Pages).is_ok_and(|(stat, _)| stat == old.stat)
}

/// The chunks of `size` bytes: the old ones where they are as long and all their bytes lie in the same blocks, zeros in holes.
fn chunks_of(size: u64, same: &[Range<u64>], old: &[ChunkRef], holes: &[Range<u64>]) -> Vec<Option<ChunkRef>> {
    let count = usize::try_from(size.div_ceil(PAGE)).unwrap_or(usize::MAX);
    let chunk = |at: usize| {
        let start = at as u64 * PAGE;
        let range = start..(start + PAGE).min(size);
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        if covers(holes, &range) {
            return Some(ChunkRef { id: ChunkId::ZERO, len });
        }
        old.get(at).copied().filter(|old| old.len == len && covers(same, &range))
    };
    (0..count).map(chunk).collect()
}

/// Reads a few of the chunks that need not be read.
fn sample(file: &File, path: &Path, chunks: Vec<Option<ChunkRef>>) -> Result<Looked> {
    let known: Vec<(usize, ChunkRef)> = chunks.iter().enumerate().filter_map(|(at, chunk)| Some((at, (*chunk)?))).collect();
    let (mut sampled, mut buffer) = (0, Vec::new());
    let picks = if known.is_empty() { 0 } else { 1 + known.len() / SAMPLED };
    for _ in 0..picks {
        let Some((at, chunk)) = known.get(random() % known.len()) else { continue };
        let start = *at as u64 * PAGE;
        read_exactly(file, path, start..start + u64::from(chunk.len), &mut buffer)?;
        if ChunkId::of(&buffer) != chunk.id {
            return Ok(Looked::Lie);
        }
        sampled += u64::from(chunk.len);
    }
    Ok(Looked::Plan(Plan { chunks, compared: true, doubted: false, sampled }))
}

/// Reads a range of a file that nobody writes to.
fn read_exactly(file: &File, path: &Path, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.resize(usize::try_from(range.end - range.start).unwrap_or(usize::MAX), 0);
    let got = read_at(file, path, buffer, range.start)?;
    if got == buffer.len() {
        return Ok(());
    }
    Err(Error::new(crate::ErrorKind::Io, format!("{} became shorter while it was read", path.display()))
        .with("path", path.display())
        .hint("nothing but forklift may write to that folder; try again"))
}

/// A number that nobody can foresee.
fn random() -> usize {
    let number = std::collections::hash_map::RandomState::new().build_hasher().finish();
    usize::try_from(number & 0xffff_ffff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_known_where_all_its_bytes_are() {
        let id = |byte| ChunkId([byte; 32]);
        let old = [ChunkRef { id: id(1), len: 32 << 10 }, ChunkRef { id: id(2), len: 32 << 10 }, ChunkRef { id: id(3), len: 100 }];
        let size = 2 * PAGE + 100;
        let ids = |chunks: Vec<Option<ChunkRef>>| chunks.into_iter().map(|chunk| chunk.map(|chunk| chunk.id)).collect::<Vec<_>>();
        let known = |size: u64, same: Range<u64>| ids(chunks_of(size, std::slice::from_ref(&same), &old, &[]));
        assert_eq!(known(size, 0..size), [Some(id(1)), Some(id(2)), Some(id(3))]);
        assert_eq!(known(size, PAGE - 4096..size), [None, Some(id(2)), Some(id(3))]);
        assert_eq!(known(size, 0..size - 1), [Some(id(1)), Some(id(2)), None]);
        // The last chunk has more bytes now, or fewer: it is another one.
        assert_eq!(known(size + 1, 0..size + 1), [Some(id(1)), Some(id(2)), None]);
        assert_eq!(known(PAGE + 100, 0..size), [Some(id(1)), None]);
        let hole = PAGE..3 * PAGE;
        assert_eq!(ids(chunks_of(3 * PAGE, &[], &old, std::slice::from_ref(&hole))), [None, Some(ChunkId::ZERO), Some(ChunkId::ZERO)]);
        assert!(chunks_of(0, &[], &old, &[]).is_empty());
    }
}
