//! Capturing files and database at one instant.

use serde::Serialize;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// How to capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// `auto`, `online` or `stopped`.
    #[cfg(feature = "postgres")]
    pub mode: crate::branch::CaptureMode,
}

/// What was captured; the JSON shape of every surface.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CaptureReport {
    /// Checkpoint id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `files`, `unchanged`, `online`, `stopped`.
    pub mode: String,
    /// Milliseconds in which no client could reach the server.
    pub downtime_ms: u64,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// Milliseconds by part.
    pub parts_ms: Vec<(String, u64)>,
    /// Bytes read from files and cluster.
    pub bytes_read: u64,
    /// Bytes that the store did not have.
    pub bytes_new: u64,
    /// Bytes written to the store.
    pub bytes_stored: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Regular files of the worktree that were opened.
    pub files_opened: u64,
    /// What of the worktree is in it.
    pub coverage: crate::files::Coverage,
    /// Files moved during capture, unstable files, unlogged tables, prepared transactions.
    pub warnings: Vec<String>,
}

impl Project {
    /// Captures under `name`, which must be new in the project. Fails with `AlreadyExists`, `Busy`, `RecoveryNeeded`, `NoSpace` and leaves nothing then.
    pub fn capture(&self, name: &str, options: &CaptureOptions, control: &Control) -> Result<CaptureReport> {
        let _ = (name, options, control);
        todo!()
    }
}
