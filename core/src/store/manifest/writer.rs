//! Writing a manifest: entries into blocks, blocks into blocks above them, with one open block a level in memory.

use super::block::{self, Child};
use super::entry::{self, INLINE, MAX_ENTRY};
use super::list;
use super::{Entry, EntryKind};
use crate::error::{Error, ErrorKind, Result};
use crate::store::pack::Kind;
use crate::store::wire::Malformed;
use crate::store::{ChunkId, Session};

/// A block is closed when it has grown to this size.
const FULL: usize = 1 << 20;

/// Where blocks are cut: never below `min` items, then after one in `one_in` by hash, and always at `max`.
struct Cut {
    min: u64,
    one_in: u32,
    max: u64,
}

const ENTRIES: Cut = Cut { min: 256, one_in: 768, max: 4096 };
const CHILDREN: Cut = Cut { min: 64, one_in: 192, max: 1024 };

impl Cut {
    fn after(&self, hash: &[u8; 32], level: &Level) -> bool {
        let [a, b, c, d, ..] = *hash;
        let chosen = level.count >= self.min && u32::from_le_bytes([a, b, c, d]).is_multiple_of(self.one_in);
        chosen || level.count >= self.max || level.body.len() >= FULL
    }
}

/// Writes a manifest; entries must come in strictly ascending order of their path bytes.
#[derive(Debug)]
pub struct ManifestWriter<'a> {
    session: &'a Session,
    levels: Vec<Level>,
}

/// The open block of a level.
#[derive(Debug, Default)]
struct Level {
    body: Vec<u8>,
    count: u64,
    /// Entries in it and below.
    entries: u64,
    first: Vec<u8>,
    /// The path of the last item, also across blocks.
    previous: Vec<u8>,
    /// The last block that was put into it.
    last_child: Option<ChunkId>,
    /// Blocks of this level that were closed.
    closed: u64,
}

impl<'a> ManifestWriter<'a> {
    pub(in crate::store) fn new(session: &'a Session) -> Self {
        Self { session, levels: vec![Level::default()] }
    }

    /// Adds one entry. `InvalidArgument` where the path is not allowed or out of order, the chunks of a file do not add up
    /// to its size, or something is too long; the writer can go on without that entry.
    ///
    /// # Errors
    /// `InvalidArgument`, and as [`Session::put`].
    pub fn push(&mut self, entry: &Entry) -> Result<()> {
        let refused = |why: Malformed| {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            Error::new(ErrorKind::InvalidArgument, format!("{path:?} cannot be kept in a manifest: {why}")).with("path", path)
        };
        entry::check(entry).map_err(refused)?;
        let Some(level) = self.levels.first_mut() else { return Err(Error::new(ErrorKind::Internal, "a manifest has no level")) };
        if entry.path <= level.previous {
            return Err(refused(Malformed("the entry before it comes after it, or is the same")));
        }
        let list = match &entry.kind {
            EntryKind::File { size, chunks, .. } => {
                entry::check_chunks(*size, chunks).map_err(refused)?;
                if chunks.len() as u64 > list::MAX_CHUNKS {
                    return Err(refused(Malformed("it has too many chunks")));
                }
                if chunks.len() > INLINE { Some(list::store(self.session, chunks)?) } else { None }
            }
            _ => None,
        };
        let start = level.body.len();
        // The first path of a block is whole, so that a block can be read alone.
        let previous: &[u8] = if level.count == 0 { b"" } else { &level.previous };
        entry::encode(&mut level.body, previous, entry, list.as_ref());
        if level.body.len() - start > MAX_ENTRY {
            level.body.truncate(start);
            return Err(refused(Malformed("its attributes and holes take too much space")));
        }
        level.added(&entry.path, 1);
        if ENTRIES.after(blake3::hash(&entry.path).as_bytes(), level) { self.close(0) } else { Ok(()) }
    }

    /// Stores the rest and gives the id of the root block.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn finish(mut self) -> Result<ChunkId> {
        let mut at = 0;
        loop {
            let top = at + 1 == self.levels.len();
            let Some(level) = self.levels.get(at) else { return Err(Error::new(ErrorKind::Internal, "a manifest has no root")) };
            match level.last_child {
                // A root above a single block would say nothing.
                Some(child) if top && level.count == 1 && level.closed == 0 => return Ok(child),
                _ if top && level.closed == 0 => {
                    return self.session.put_kind(&block::encode(at as u8, level.count, &level.body), Kind::Metadata);
                }
                _ if level.count > 0 => self.close(at)?,
                _ => {}
            }
            at += 1;
        }
    }

    /// Stores the open block of a level and puts it into the level above, which may close that in turn.
    fn close(&mut self, at: usize) -> Result<()> {
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        let bytes = block::encode(at as u8, level.count, &level.body);
        let id = self.session.put_kind(&bytes, Kind::Metadata)?;
        let child = Child { first: std::mem::take(&mut level.first), id, entries: level.entries };
        level.body.clear();
        (level.count, level.entries) = (0, 0);
        level.closed += 1;
        if self.levels.len() == at + 1 {
            self.levels.push(Level::default());
        }
        let Some(above) = self.levels.get_mut(at + 1) else { return Ok(()) };
        let previous: &[u8] = if above.count == 0 { b"" } else { &above.previous };
        block::put_child(&mut above.body, previous, &child);
        above.last_child = Some(id);
        above.added(&child.first, child.entries);
        if CHILDREN.after(&id.0, above) { self.close(at + 1) } else { Ok(()) }
    }
}

impl Level {
    fn added(&mut self, path: &[u8], entries: u64) {
        if self.count == 0 {
            self.first = path.to_vec();
        }
        self.count += 1;
        self.entries += entries;
        self.previous.clear();
        self.previous.extend_from_slice(path);
    }
}
