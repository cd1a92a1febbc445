//! Where a copy of a cluster goes: the store, or a folder.

use std::path::{Path, PathBuf};

use super::{Mark, SequenceState};
use crate::clone::Method;
use crate::error::Result;
use crate::progress::Control;
use crate::store::Cutting;

/// One file to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub source: PathBuf,
    /// Its path in the copy, relative to the data folder.
    pub path: PathBuf,
    /// The server runs: it may vanish, grow, shrink or change; it is taken as read.
    pub live: bool,
    /// How the store cuts it.
    pub cutting: Cutting,
}

/// The time that a file written now gets on one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileClock {
    /// The file system, by its device number.
    pub device: u64,
    /// ctime, in nanoseconds since 1970.
    pub ctime_ns: i128,
}

/// Receives a cluster. Folders come before what is in them; the order of files is free within one call.
pub trait Sink {
    /// Comes first where the source runs: a live file on this device whose ctime is at least 20 ms older, and whose stat is
    /// the same before and after it is read, has no write under way and may be reused by a later copy. A copy without
    /// barrier has no live file that may.
    fn barrier(&mut self, clock: &FileClock) {
        let _ = clock;
    }
    /// A folder with its 12 mode bits.
    fn folder(&mut self, path: &Path, mode: u32) -> Result<()>;
    /// Many files, copied in parallel. A live file that vanished is left out.
    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()>;
    /// A file made of bytes in memory, such as backup_label.
    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()>;
    /// Bytes copied so far.
    fn copied(&self) -> u64;
}

/// A sink that clones into a new folder, by the cheapest backend.
pub struct TreeSink {}

impl TreeSink {
    /// Into `target`, which is made. `source` is the data folder that will be copied (to probe for reflink).
    pub fn new(source: &Path, target: &Path) -> Result<Self> { let _ = (source, target); todo!() }
    /// Which way it copies.
    #[must_use]
    pub fn method(&self) -> Method { todo!() }
}

impl Sink for TreeSink {
    fn folder(&mut self, path: &Path, mode: u32) -> Result<()> { let _ = (path, mode); todo!() }
    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()> { let _ = (files, control); todo!() }
    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> { let _ = (path, mode, bytes); todo!() }
    fn copied(&self) -> u64 { todo!() }
}

/// What a copy of a cluster holds beside the files.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CopyReport {
    /// `online` or `stopped`.
    pub mode: String,
    /// Mark taken before the copy (online) or of the stopped cluster.
    pub mark: Mark,
    /// Sequences to put back at the first start (online only).
    pub sequences: Vec<SequenceState>,
    /// Unlogged tables that come up empty, as `database.schema.table` (online only).
    pub unlogged: Vec<String>,
    /// Prepared transactions that the copy still holds.
    pub prepared: Vec<String>,
    /// Milliseconds: checkpoint (pg_backup_start), files, WAL, sequences.
    pub parts_ms: Vec<(String, u64)>,
}
