//! A block: many entries (level 0), or many blocks of the level below.

use super::Entry;
use super::entry::{self, List};
use crate::error::{Error, ErrorKind};
use crate::store::ChunkId;
use crate::store::wire::{Cursor, Malformed, Parsed, put_varint};

const MAGIC: &[u8; 4] = b"FLKM";
const VERSION: u8 = 1;
/// The highest level; more entries than there are atoms need fewer.
const MAX_LEVEL: u8 = 8;

/// One block that another names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    /// The first path in it.
    pub(super) first: Vec<u8>,
    pub(super) id: ChunkId,
    /// Entries in it and below.
    pub(super) entries: u64,
}

/// The bytes of a block.
pub(super) fn encode(level: u8, count: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 16);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[VERSION, level]);
    put_varint(&mut out, count);
    out.extend_from_slice(body);
    out
}

/// Appends a child to the body of a block.
pub(super) fn put_child(out: &mut Vec<u8>, previous: &[u8], child: &Child) {
    entry::put_path(out, previous, &child.first);
    out.extend_from_slice(&child.id.0);
    put_varint(out, child.entries);
}

/// A block being read, item by item.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: ChunkId,
    pub(super) level: u8,
    /// Items not read yet.
    pub(super) left: u64,
    bytes: Vec<u8>,
    at: usize,
    previous: Vec<u8>,
}

impl Block {
    pub(super) fn parse(id: ChunkId, bytes: Vec<u8>) -> Parsed<Self> {
        let mut cursor = Cursor::new(&bytes);
        cursor.expect(MAGIC, "it is not a manifest block")?;
        cursor.expect(&[VERSION], "it has another version")?;
        let level = cursor.u8()?;
        let left = cursor.varint()?;
        if level > MAX_LEVEL || (level > 0 && left == 0) || left > bytes.len() as u64 {
            return Err(Malformed("its level or count is impossible"));
        }
        let at = bytes.len() - cursor.rest().len();
        Ok(Self { id, level, left, at, previous: Vec::new(), bytes })
    }

    /// The next entry of a block of level 0, with its chunk list where that is stored apart.
    pub(super) fn entry(&mut self) -> Parsed<Option<(Entry, Option<List>)>> {
        self.item(entry::decode, |(entry, _)| &entry.path)
    }

    /// The next block of a block of a higher level.
    pub(super) fn child(&mut self) -> Parsed<Option<Child>> {
        let take = |cursor: &mut Cursor<'_>, previous: &[u8]| {
            let first = entry::take_path(cursor, previous)?;
            Ok(Child { first, id: ChunkId(cursor.array()?), entries: cursor.varint()? })
        };
        self.item(take, |child| &child.first)
    }

    /// The path that comes next: at the start, the first of the block.
    pub(super) fn first(&self) -> Parsed<Vec<u8>> {
        entry::take_path(&mut Cursor::new(self.bytes.get(self.at..).unwrap_or_default()), &self.previous)
    }

    fn item<T>(
        &mut self,
        take: impl Fn(&mut Cursor<'_>, &[u8]) -> Parsed<T>,
        path: impl for<'a> Fn(&'a T) -> &'a Vec<u8>,
    ) -> Parsed<Option<T>> {
        let mut cursor = Cursor::new(self.bytes.get(self.at..).unwrap_or_default());
        if self.left == 0 {
            cursor.end()?;
            return Ok(None);
        }
        let item = take(&mut cursor, &self.previous)?;
        if *path(&item) <= self.previous {
            return Err(Malformed("its paths are not in ascending order"));
        }
        self.left -= 1;
        self.at = self.bytes.len() - cursor.rest().len();
        self.previous.clone_from(path(&item));
        Ok(Some(item))
    }

    /// The error for what is wrong in this block.
    pub(super) fn wrong(&self, why: Malformed) -> Error {
        wrong(&self.id, why)
    }
}

/// The error for what is wrong in a block or node of a manifest.
pub(super) fn wrong(id: &ChunkId, why: Malformed) -> Error {
    Error::new(ErrorKind::Corrupt, format!("manifest block {id}: {why}"))
        .with("chunk", id)
        .hint("this checkpoint cannot be read whole; others are not affected")
}

/// Reads a block to its end or to what is wrong in it: whatever parses is allowed in a manifest, and is read again as it is
/// when it is written.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn check_any(mut block: Block) {
    let (mut body, mut previous, mut entries, mut children) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while block.level == 0
        && let Ok(Some((found, list))) = block.entry()
    {
        entry::encode(&mut body, &previous, &found, list.as_ref());
        previous.clone_from(&found.path);
        assert!(entry::check(&found).is_ok(), "what is read may be written");
        entries.push((found, list));
    }
    while block.level > 0
        && let Ok(Some(child)) = block.child()
    {
        put_child(&mut body, &previous, &child);
        previous.clone_from(&child.first);
        children.push(child);
        assert!(body.len() <= block.bytes.len(), "nothing is written that was not there");
    }
    let count = entries.len().max(children.len()) as u64;
    if count == 0 {
        return;
    }
    let again = Block::parse(block.id, encode(block.level, count, &body));
    assert!(again.is_ok(), "what is written is read");
    let Ok(mut again) = again else { return };
    entries.into_iter().for_each(|one| assert_eq!(again.entry(), Ok(Some(one))));
    children.into_iter().for_each(|one| assert_eq!(again.child(), Ok(Some(one))));
}
