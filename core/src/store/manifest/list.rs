//! Chunk lists of large files: nodes of 128 chunks, and nodes of up to 4,096 nodes above them.

use super::block::wrong;
use super::entry::{INLINE, List, put_chunks, take_chunks};
use crate::error::Result;
use crate::store::pack::Kind;
use crate::store::wire::{Cursor, Malformed, Parsed, put_varint};
use crate::store::{ChunkId, ChunkRef, Reader, Session};

const MAGIC: &[u8; 4] = b"FLKL";
const VERSION: u8 = 1;
const FAN: usize = 4096;
const MAX_LEVEL: u8 = 3;
/// Most chunks of one file: 1 TiB of pages.
pub(super) const MAX_CHUNKS: u64 = 1 << 25;

/// A node: chunks, or nodes of the level below with the number of chunks under each.
pub(super) enum Node {
    Chunks(Vec<ChunkRef>),
    Nodes(Vec<(ChunkId, u64)>),
}

/// Stores a chunk list; the same list always gives the same nodes.
pub(super) fn store(session: &Session, chunks: &[ChunkRef]) -> Result<List> {
    let mut nodes = Vec::with_capacity(chunks.len().div_ceil(INLINE));
    for leaf in chunks.chunks(INLINE) {
        let mut bytes = header(0, leaf.len());
        put_chunks(&mut bytes, leaf);
        nodes.push((session.put_kind(&bytes, Kind::Metadata)?, leaf.len() as u64));
    }
    let mut level = 0;
    loop {
        if let [(root, count)] = *nodes {
            return Ok(List { root, count });
        }
        level += 1;
        let mut above = Vec::with_capacity(nodes.len().div_ceil(FAN));
        for group in nodes.chunks(FAN) {
            let mut bytes = header(level, group.len());
            for (id, count) in group {
                bytes.extend_from_slice(&id.0);
                put_varint(&mut bytes, *count);
            }
            above.push((session.put_kind(&bytes, Kind::Metadata)?, group.iter().map(|(_, count)| count).sum()));
        }
        nodes = above;
    }
}

fn header(level: u8, count: usize) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[VERSION, level]);
    put_varint(&mut out, count as u64);
    out
}

/// The bytes of a node.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn encode(level: u8, node: &Node) -> Vec<u8> {
    match node {
        Node::Chunks(chunks) => {
            let mut bytes = header(level, chunks.len());
            put_chunks(&mut bytes, chunks);
            bytes
        }
        Node::Nodes(nodes) => {
            let mut bytes = header(level, nodes.len());
            for (id, count) in nodes {
                bytes.extend_from_slice(&id.0);
                put_varint(&mut bytes, *count);
            }
            bytes
        }
    }
}

/// Parses a node that must be of a level below `above`.
pub(super) fn parse(bytes: &[u8], above: u8) -> Parsed<(u8, Node)> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(MAGIC, "it is not a node of a chunk list")?;
    cursor.expect(&[VERSION], "it has another version")?;
    let level = cursor.u8()?;
    if level >= above {
        return Err(Malformed("its level is impossible"));
    }
    let node = if level == 0 {
        let count = cursor.at_most(INLINE as u64, "it has too many chunks")?;
        Node::Chunks(take_chunks(&mut cursor, count)?)
    } else {
        let count = cursor.at_most(FAN as u64, "it has too many nodes")?;
        let nodes: Parsed<Vec<_>> = (0..count).map(|_| Ok((ChunkId(cursor.array()?), cursor.varint()?))).collect();
        Node::Nodes(nodes?)
    };
    cursor.end()?;
    Ok((level, node))
}

/// A level above every node's.
pub(super) const TOP: u8 = MAX_LEVEL + 1;

/// Reads a whole chunk list.
pub(super) fn load(reader: &Reader, list: &List) -> Result<Vec<ChunkRef>> {
    if list.count > MAX_CHUNKS {
        return Err(wrong(&list.root, Malformed("it has too many chunks")));
    }
    let mut chunks = Vec::new();
    append(reader, &list.root, list.count, TOP, &mut chunks)?;
    Ok(chunks)
}

fn append(reader: &Reader, id: &ChunkId, count: u64, above: u8, chunks: &mut Vec<ChunkRef>) -> Result<()> {
    let expected = chunks.len() as u64 + count;
    let (level, node) = parse(&reader.blob(id)?, above).map_err(|why| wrong(id, why))?;
    match node {
        Node::Chunks(mut leaf) => chunks.append(&mut leaf),
        Node::Nodes(nodes) => {
            // Counts are checked before anything below is read, so that a small node cannot ask for endless work.
            let sum = nodes.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count).filter(|_| *count > 0));
            if sum != Some(count) {
                return Err(wrong(id, Malformed("its counts do not add up")));
            }
            for (child, count) in nodes {
                append(reader, &child, count, level, chunks)?;
            }
        }
    }
    if chunks.len() as u64 == expected { Ok(()) } else { Err(wrong(id, Malformed("it has another number of chunks"))) }
}
