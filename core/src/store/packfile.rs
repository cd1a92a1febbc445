//! Packs on disk: reading one chunk, listing the chunks of a pack, and the bounded set of open packs.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::ChunkId;
use super::disk::{self, Disk, Handle};
use super::index::Location;
use super::layout::{Layout, PackId};
use super::pack::{self, BLOB_HEADER, Blob, HEADER, MAX_BYTES, TRAILER, Trailer};
use super::wire::Malformed;
use crate::error::{Error, ErrorKind, Result};

/// Packs kept open by one reader.
const OPEN: usize = 64;

thread_local! {
    /// Where a thread reads stored bytes: at most about 4 MiB, since that is the longest chunk.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One open pack.
#[derive(Debug)]
pub(super) struct PackFile {
    file: Box<dyn Handle>,
    path: PathBuf,
    size: u64,
}

impl PackFile {
    /// Opens a pack in its place or, where a prune that this process could not lock out has moved it, in the trash.
    pub(super) fn open(layout: &Layout, id: &PackId) -> Result<Self> {
        let path = layout.pack(id);
        match Self::open_at(layout.disk(), path) {
            // A link to nothing is a missing pack to all who look at its size, and so it is here.
            Err(error) if error.kind() == ErrorKind::NotFound || matches!(layout.disk().stat(&layout.pack(id)), Ok(None)) => {
                for generation in layout.disk().names(&layout.trash()).unwrap_or_default() {
                    let trashed = layout.trash().join(generation).join(id.file_name());
                    if let Ok(found) = Self::open_at(layout.disk(), trashed) {
                        return Ok(found);
                    }
                }
                Err(Error::new(ErrorKind::Corrupt, format!("pack {} is missing", layout.pack(id).display()))
                    .with("path", layout.pack(id).display())
                    .hint("put the pack back from a copy of the store, or capture the same content again; `forklift store verify` tells which checkpoints are hit"))
            }
            other => other,
        }
    }

    /// Opens a pack in its place only; `NotFound` where it is not there.
    pub(super) fn open_in_place(layout: &Layout, id: &PackId) -> Result<Self> {
        Self::open_at(layout.disk(), layout.pack(id))
    }

    fn open_at(disk: &dyn Disk, path: PathBuf) -> Result<Self> {
        let file = disk.open(&path)?;
        let size = file.len().map_err(|source| Error::io("stat", &path, source))?;
        Ok(Self { file, path, size })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The plain bytes of the chunk at `location`, checked in every way.
    pub(super) fn read(&self, id: &ChunkId, location: &Location) -> Result<Vec<u8>> {
        let mut plain = Vec::new();
        self.read_into(id, location, &mut plain)?;
        Ok(plain)
    }

    /// As [`PackFile::read`], into a buffer whose content it replaces; worth nothing where it fails.
    pub(super) fn read_into(&self, id: &ChunkId, location: &Location, plain: &mut Vec<u8>) -> Result<()> {
        let mut stored = STORED.take();
        let result = self.read_by_way_of(&mut stored, id, location, plain);
        STORED.set(stored);
        result
    }

    fn read_by_way_of(&self, stored: &mut Vec<u8>, id: &ChunkId, location: &Location, plain: &mut Vec<u8>) -> Result<()> {
        let damaged = |why: Malformed| damaged(&self.path, &format!("chunk {id}: {why}")).with("chunk", id);
        if self.size != location.pack_size {
            return Err(damaged(Malformed("the pack has another size than the index says")));
        }
        location.codec.check_lengths(location.plain, location.stored).map_err(damaged)?;
        let length = BLOB_HEADER + location.stored as usize;
        if stored.len() < length {
            stored.resize(length, 0);
        }
        let bytes = stored.get_mut(..length).unwrap_or_default();
        self.exact(bytes, u64::from(location.offset))?;
        let blob = Blob::parse(bytes, location.offset).map_err(damaged)?;
        if blob.id != *id || blob.plain != location.plain || blob.stored != location.stored || blob.codec != location.codec {
            return Err(damaged(Malformed("another chunk lies there")));
        }
        pack::check_into(&blob, bytes.get(BLOB_HEADER..).unwrap_or_default(), plain).map_err(damaged)
    }

    /// The stored bytes of a blob that the footer names, whose own header agrees and whose plain bytes have its hash.
    pub(super) fn payload(&self, blob: &Blob) -> Result<Vec<u8>> {
        let id = blob.id;
        let damaged = |why: Malformed| damaged(&self.path, &format!("chunk {id}: {why}")).with("chunk", id);
        let mut bytes = vec![0; BLOB_HEADER + blob.stored as usize];
        self.exact(&mut bytes, u64::from(blob.offset))?;
        if Blob::parse(&bytes, blob.offset).map_err(damaged)? != *blob {
            return Err(damaged(Malformed("another chunk lies there")));
        }
        let payload = bytes.split_off(BLOB_HEADER);
        pack::check(blob, &payload).map_err(damaged)?;
        Ok(payload)
    }

    /// The blobs by the footer; `Corrupt` where header or footer is damaged.
    pub(super) fn footer(&self, uuid: &[u8; 16]) -> Result<Vec<Blob>> {
        let short = self.size < (HEADER + TRAILER) as u64;
        if short || self.size > MAX_BYTES {
            return Err(damaged(&self.path, if short { "it is too short" } else { "it is too long" }));
        }
        let wrong = |why: Malformed| damaged(&self.path, why.0);
        let mut header = [0; HEADER];
        let mut trailer = [0; TRAILER];
        self.exact(&mut header, 0)?;
        self.exact(&mut trailer, self.size - TRAILER as u64)?;
        pack::check_header(&header, uuid).map_err(wrong)?;
        let trailer = Trailer::parse(&trailer, self.size).map_err(wrong)?;
        let mut footer = vec![0; trailer.len as usize];
        self.exact(&mut footer, trailer.offset)?;
        trailer.blobs(&footer).map_err(wrong)
    }

    /// The blobs that are whole in a pack whose footer is damaged.
    pub(super) fn salvage(&self, uuid: &[u8; 16]) -> Result<Vec<Blob>> {
        let mut bytes = vec![0; self.size.min(MAX_BYTES) as usize];
        self.exact(&mut bytes, 0)?;
        pack::check_header(&bytes, uuid).map_err(|why| damaged(&self.path, why.0))?;
        Ok(pack::salvage(&bytes))
    }

    fn exact(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        disk::read_exact_at(self.file.as_ref(), buffer, offset).map_err(|source| Error::io("read", &self.path, source))
    }
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("pack {} is damaged: {why}", path.display()))
        .with("path", path.display())
        .hint("`forklift store verify --level full` tells which checkpoints are hit, `forklift store repair` puts right what can be")
}

/// The packs that a reader has open, most recently used last.
#[derive(Debug, Default)]
pub(super) struct PackCache {
    open: Mutex<Vec<(PackId, Arc<PackFile>)>>,
}

impl PackCache {
    pub(super) fn open(&self, layout: &Layout, id: &PackId) -> Result<Arc<PackFile>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().rposition(|(have, _)| have == id) {
            let entry = open.remove(at);
            let file = Arc::clone(&entry.1);
            open.push(entry);
            return Ok(file);
        }
        let file = Arc::new(PackFile::open(layout, id)?);
        if open.len() >= OPEN {
            open.remove(0);
        }
        open.push((*id, Arc::clone(&file)));
        Ok(file)
    }

    /// Forgets all, so that a pack that was put back is opened anew.
    pub(super) fn clear(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
