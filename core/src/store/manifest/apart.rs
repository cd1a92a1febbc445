//! What two manifests do not have in common, without reading what they have.

use std::collections::HashSet;

use super::block::Block;
use super::entry::check_chunks;
use super::reader::{descend, open};
use super::{Entry, EntryKind, list};
use crate::error::Result;
use crate::store::{ChunkId, Reader};

/// The entries of the blocks that only the first has, and of those that only the second has, each in path order. An entry that both
/// have may be among them; one that is not is the same in both: paths are unique, so a block that both have has no other place in either.
pub(in crate::store) fn apart(reader: &Reader, first: &ChunkId, second: &ChunkId) -> Result<(Vec<Entry>, Vec<Entry>)> {
    if first == second {
        return Ok((Vec::new(), Vec::new()));
    }
    let (first, second) = (leaves(reader, first)?, leaves(reader, second)?);
    let ids = |blocks: &[ChunkId]| blocks.iter().copied().collect::<HashSet<_>>();
    let (in_first, in_second) = (ids(&first), ids(&second));
    Ok((entries(reader, &first, &in_second)?, entries(reader, &second, &in_first)?))
}

/// The entry of one path; only the blocks on the way to it are read.
pub(in crate::store) fn find(reader: &Reader, root: &ChunkId, path: &[u8]) -> Result<Option<Entry>> {
    let mut block = open(reader, root)?;
    while block.level > 0 {
        let level = block.level;
        let mut holder = None;
        while let Some(child) = block.child().map_err(|why| block.wrong(why))?.filter(|child| child.first.as_slice() <= path) {
            holder = Some(child);
        }
        let Some(child) = holder else { return Ok(None) };
        block = descend(reader, level, &child)?;
    }
    while let Some((mut entry, list)) = block.entry().map_err(|why| block.wrong(why))? {
        if entry.path != path {
            continue;
        }
        if let (Some(list), EntryKind::File { size, chunks, .. }) = (list, &mut entry.kind) {
            *chunks = list::load(reader, &list)?;
            check_chunks(*size, chunks).map_err(|why| block.wrong(why))?;
        }
        return Ok(Some(entry));
    }
    Ok(None)
}

/// The blocks of level 0, in order.
fn leaves(reader: &Reader, root: &ChunkId) -> Result<Vec<ChunkId>> {
    let mut found = Vec::new();
    let mut stack = vec![open(reader, root)?];
    while let Some(block) = stack.last_mut() {
        if block.level == 0 {
            // Only a root: those below are not opened.
            found.push(block.id);
            stack.pop();
            continue;
        }
        let level = block.level;
        match block.child().map_err(|why| block.wrong(why))? {
            Some(child) if level == 1 => found.push(child.id),
            Some(child) => stack.push(descend(reader, level, &child)?),
            None => {
                stack.pop();
            }
        }
    }
    Ok(found)
}

fn entries(reader: &Reader, blocks: &[ChunkId], known: &HashSet<ChunkId>) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for id in blocks.iter().filter(|id| !known.contains(id)) {
        let mut block: Block = open(reader, id)?;
        while let Some((mut entry, list)) = block.entry().map_err(|why| block.wrong(why))? {
            if let (Some(list), EntryKind::File { size, chunks, .. }) = (list, &mut entry.kind) {
                *chunks = list::load(reader, &list)?;
                check_chunks(*size, chunks).map_err(|why| block.wrong(why))?;
            }
            found.push(entry);
        }
    }
    Ok(found)
}
