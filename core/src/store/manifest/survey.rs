//! Going through a whole manifest and past what is damaged in it, so that verify and repair can say what a checkpoint lost.

use std::collections::{HashMap, HashSet};

use super::block::wrong;
use super::entry::List;
use super::list::{self, Node, TOP};
use super::reader::{descend, open};
use super::{Entry, EntryKind};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::wire::Malformed;
use crate::store::{ChunkId, ChunkRef, Reader};

/// Who is told what a survey finds.
pub(in crate::store) trait Surveyor {
    /// Whether a chunk of content can be had. Not asked again for what lies below a block or node that was whole before.
    fn has(&mut self, chunk: &ChunkRef) -> bool;

    /// The content of the file at `path` is not whole; `error` where it is its list of chunks that cannot be read.
    fn damaged(&mut self, path: &[u8], error: Option<&Error>);

    /// A block cannot be read: `entries` names (where that is known) from `first` on are lost.
    fn lost(&mut self, first: &[u8], entries: Option<u64>, error: &Error);
}

/// What surveys remember of each other: blocks and nodes below which everything was whole.
#[derive(Debug, Default)]
pub(in crate::store) struct Survey {
    blocks: HashSet<ChunkId>,
    /// Chunks and plain bytes below a node.
    nodes: HashMap<ChunkId, (u64, u64)>,
}

/// Whether an error means that something stored is not whole, rather than that the survey cannot go on.
pub(in crate::store) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::UnsupportedFormat | ErrorKind::NotFound)
}

impl Survey {
    /// Goes through a manifest; whether all of it is whole.
    pub(in crate::store) fn run(
        &mut self,
        reader: &Reader,
        root: &ChunkId,
        control: &Control,
        surveyor: &mut dyn Surveyor,
    ) -> Result<bool> {
        if self.blocks.contains(root) {
            return Ok(true);
        }
        match open(reader, root) {
            Ok(block) => self.block(reader, block, control, surveyor),
            Err(error) if is_damage(&error) => {
                surveyor.lost(b"", None, &error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn block(&mut self, reader: &Reader, mut block: super::block::Block, control: &Control, surveyor: &mut dyn Surveyor) -> Result<bool> {
        control.check()?;
        let id = block.id;
        let mut whole = true;
        // Where a block stops to parse, what it still has is lost.
        let mut last = Vec::new();
        if block.level == 0 {
            loop {
                match block.entry() {
                    Ok(Some((entry, list))) => {
                        whole &= self.entry(reader, &entry, list.as_ref(), surveyor)?;
                        last = entry.path;
                    }
                    Ok(None) => break,
                    Err(why) => {
                        surveyor.lost(&last, Some(block.left), &wrong(&id, why));
                        return Ok(false);
                    }
                }
            }
        } else {
            loop {
                let child = match block.child() {
                    Ok(Some(child)) => child,
                    Ok(None) => break,
                    Err(why) => {
                        surveyor.lost(&last, None, &wrong(&id, why));
                        return Ok(false);
                    }
                };
                if !self.blocks.contains(&child.id) {
                    match descend(reader, block.level, &child) {
                        Ok(below) => whole &= self.block(reader, below, control, surveyor)?,
                        Err(error) if is_damage(&error) => {
                            surveyor.lost(&child.first, Some(child.entries), &error);
                            whole = false;
                        }
                        Err(error) => return Err(error),
                    }
                }
                last = child.first;
            }
        }
        if whole {
            self.blocks.insert(id);
        }
        Ok(whole)
    }

    fn entry(&mut self, reader: &Reader, entry: &Entry, list: Option<&List>, surveyor: &mut dyn Surveyor) -> Result<bool> {
        let EntryKind::File { size, chunks, .. } = &entry.kind else { return Ok(true) };
        let mut whole = true;
        let mut error = None;
        match list {
            None => chunks.iter().filter(|chunk| chunk.id != ChunkId::ZERO).for_each(|chunk| whole &= surveyor.has(chunk)),
            Some(list) => match self.node(reader, &list.root, TOP, surveyor, &mut whole) {
                Ok((count, bytes)) if (count, bytes) == (list.count, *size) => {}
                Ok(_) => error = Some(wrong(&list.root, Malformed("its chunks are not those that the entry says"))),
                Err(found) if is_damage(&found) => error = Some(found),
                Err(found) => return Err(found),
            },
        }
        if !whole || error.is_some() {
            surveyor.damaged(&entry.path, error.as_ref());
            return Ok(false);
        }
        Ok(true)
    }

    fn node(&mut self, reader: &Reader, id: &ChunkId, above: u8, surveyor: &mut dyn Surveyor, whole: &mut bool) -> Result<(u64, u64)> {
        if let Some(found) = self.nodes.get(id) {
            return Ok(*found);
        }
        let (level, node) = list::parse(&reader.blob(id)?, above).map_err(|why| wrong(id, why))?;
        let (mut count, mut bytes, mut all) = (0_u64, 0_u64, true);
        match node {
            Node::Chunks(chunks) => {
                for chunk in chunks {
                    all &= chunk.id == ChunkId::ZERO || surveyor.has(&chunk);
                    count += 1;
                    bytes += u64::from(chunk.len);
                }
            }
            Node::Nodes(nodes) => {
                for (child, expected) in nodes {
                    let (chunks, plain) = self.node(reader, &child, level, surveyor, &mut all)?;
                    if chunks != expected {
                        return Err(wrong(id, Malformed("its counts do not add up")));
                    }
                    count = count.saturating_add(chunks);
                    bytes = bytes.saturating_add(plain);
                }
            }
        }
        if all {
            self.nodes.insert(*id, (count, bytes));
        }
        *whole &= all;
        Ok((count, bytes))
    }
}
