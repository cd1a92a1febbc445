//! Reading chunks and manifests; every read checks the hash.

use std::io::Write;

use super::{ChunkId, ChunkRef, ManifestReader};
use crate::error::Result;

/// A reader of one store; shared between threads. Holds the shared lock where the store is writable.
#[derive(Debug)]
pub struct Reader {}

impl Reader {
    /// The plain bytes of one chunk; `Corrupt` (with the pack's path) where they are missing or wrong.
    pub fn chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>> { todo!() }
    /// Whether the chunk is there (not read).
    pub fn has(&self, id: &ChunkId) -> Result<bool> { todo!() }
    /// Writes the content of a chunk list to `out`, holes as zeros.
    pub fn copy(&self, chunks: &[ChunkRef], out: &mut dyn Write) -> Result<()> { todo!() }
    /// The entries of a manifest, in path order.
    pub fn manifest(&self, root: &ChunkId) -> Result<ManifestReader<'_>> { todo!() }
}
