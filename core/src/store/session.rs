//! Writing: a session gathers chunks into packs and ends with one commit.

use std::fs::File;
use std::path::Path;

use super::{ChunkId, ChunkRef, Cutting, ManifestWriter, Ref};
use crate::error::Result;

/// One writing session. Shared between threads (`&self`); holds the store's shared lock until it is dropped or committed.
#[derive(Debug)]
pub struct Session {}

/// What reading one file into the session found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// The chunks, in order; their lengths add up to the bytes that were read.
    pub chunks: Vec<ChunkRef>,
    /// Bytes read.
    pub size: u64,
}

/// The byte counts of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionReport {
    /// Plain bytes given to the session.
    pub bytes_read: u64,
    /// Plain bytes that the store did not have.
    pub bytes_new: u64,
    /// Bytes written to packs.
    pub bytes_stored: u64,
    /// fsyncs of packs, index and ref.
    pub fsyncs: u64,
}

impl Session {
    /// Stores one chunk unless the store has it. At most 4 MiB.
    pub fn put(&self, bytes: &[u8]) -> Result<ChunkId> { todo!() }
    /// Reads `file` from its current position to its end, cuts and stores it.
    pub fn put_file(&self, file: &File, path: &Path, cutting: Cutting) -> Result<FileRead> { todo!() }
    /// Cuts and stores bytes in memory.
    pub fn put_bytes(&self, bytes: &[u8], cutting: Cutting) -> Result<FileRead> { todo!() }
    /// Whether the store, or this session, has the chunk: a cached chunk list is reusable only if it has every one.
    pub fn has(&self, id: &ChunkId) -> Result<bool> { todo!() }
    /// A manifest that is written entry by entry, in path order.
    pub fn manifest(&self) -> ManifestWriter<'_> { todo!() }
    /// Counts so far.
    pub fn report(&self) -> SessionReport { todo!() }
    /// Makes all packs and the index durable, then publishes `reference`: the commit point. Fails with `AlreadyExists`
    /// where the id is taken; on any failure no ref exists.
    pub fn commit(self, reference: &Ref) -> Result<SessionReport> { todo!() }
}
