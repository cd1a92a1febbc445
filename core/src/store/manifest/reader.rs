//! Reading a manifest entry by entry, with one block a level in memory.

use super::block::{Block, Child, wrong};
use super::entry::check_chunks;
use super::list;
use super::{Entry, EntryKind};
use crate::error::Result;
use crate::store::wire::Malformed;
use crate::store::{ChunkId, Reader};

/// Iterates over the entries of a manifest with bounded memory. After an error it ends.
#[derive(Debug)]
pub struct ManifestReader<'a> {
    reader: &'a Reader,
    /// The blocks from the root to the one being read.
    stack: Vec<Block>,
    last: Vec<u8>,
}

impl<'a> ManifestReader<'a> {
    pub(in crate::store) fn new(reader: &'a Reader, root: &ChunkId) -> Result<Self> {
        let block = open(reader, root)?;
        Ok(Self { reader, stack: vec![block], last: Vec::new() })
    }

    fn step(&mut self) -> Result<Option<Entry>> {
        while let Some(block) = self.stack.last_mut() {
            if block.level > 0 {
                match block.child().map_err(|why| block.wrong(why))? {
                    Some(child) => {
                        let level = block.level;
                        self.stack.push(descend(self.reader, level, &child)?);
                    }
                    None => {
                        self.stack.pop();
                    }
                }
                continue;
            }
            match block.entry().map_err(|why| block.wrong(why))? {
                Some((mut entry, list)) => {
                    let id = block.id;
                    if entry.path <= self.last {
                        return Err(wrong(&id, Malformed("its paths do not follow those of the block before")));
                    }
                    self.last.clone_from(&entry.path);
                    if let (Some(list), EntryKind::File { size, chunks, .. }) = (list, &mut entry.kind) {
                        *chunks = list::load(self.reader, &list)?;
                        check_chunks(*size, chunks).map_err(|why| wrong(&id, why))?;
                    }
                    return Ok(Some(entry));
                }
                None => {
                    self.stack.pop();
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for ManifestReader<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.stack.clear();
        }
        step.transpose()
    }
}

/// Reads and opens a block.
pub(super) fn open(reader: &Reader, id: &ChunkId) -> Result<Block> {
    Block::parse(*id, reader.blob(id)?).map_err(|why| wrong(id, why))
}

/// Opens a child and checks that it is what its parent, of `level`, says.
pub(super) fn descend(reader: &Reader, level: u8, child: &Child) -> Result<Block> {
    let block = open(reader, &child.id)?;
    let first = block.first().map_err(|why| block.wrong(why))?;
    let counted = if block.level == 0 { block.left == child.entries } else { block.left <= child.entries };
    if block.level + 1 != level || !counted || first != child.first {
        return Err(block.wrong(Malformed("it is not what the block above says")));
    }
    Ok(block)
}
