//! Where a copy of a cluster goes: the store, or a folder.

use std::path::{Path, PathBuf};

use super::{Mark, SequenceState};
use crate::error::{Error, ErrorKind, Result};
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

/// Receives a cluster. Folders come before what is in them, the data folder itself (an empty path) first; the order of files is free within one call.
pub trait Sink {
    /// The source's file system clock, in nanoseconds since 1970, taken before a running cluster's checkpoint (pg_backup_start):
    /// what was written before it has reached its files by the time they are read.
    fn begin(&mut self, c0_ns: i64) {
        let _ = c0_ns;
    }
    /// A folder with its 12 mode bits.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that leaves the copy, `NoSpace`, `Io`.
    fn folder(&mut self, path: &Path, mode: u32) -> Result<()>;
    /// Many files, copied in parallel. A live file that vanished is left out.
    ///
    /// # Errors
    /// `Cancelled`, `NotFound` for a file that is not live, `NoSpace`, `Io`.
    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()>;
    /// A file made of bytes in memory, such as backup_label.
    ///
    /// # Errors
    /// As [`Sink::folder`].
    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()>;
    /// Bytes copied so far.
    fn copied(&self) -> u64;
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

/// Files that one step of a sink takes: progress is reported, and a cancel noticed, between steps at the latest.
pub(super) const STEP: usize = 256;

/// Refuses a path that is not below the copy's root.
pub(super) fn check_path(path: &Path) -> Result<()> {
    let inside = path.is_relative() && path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if inside {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::InvalidArgument, format!("{} is not a path inside the copy", path.display()))
            .with("path", path.display()))
    }
}

/// Opens a file of the source; `None` where it is live and vanished.
pub(super) fn open_source(file: &SourceFile) -> Result<Option<std::fs::File>> {
    match std::fs::File::open(&file.source) {
        Ok(open) => Ok(Some(open)),
        Err(error) if file.live && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("open", &file.source, error)),
    }
}
