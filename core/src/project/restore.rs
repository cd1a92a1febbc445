//! Putting a pair back.

use serde::Serialize;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// How to restore.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions {}

/// What a restore would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestorePlan {
    /// The checkpoint.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Every path that would be touched or needs a word: (path, verdict).
    pub paths: Vec<(String, crate::files::Verdict)>,
    /// Paths that stay as they are.
    pub unchanged: u64,
    /// What happens to the database: `none`, `replace`, `unchanged`.
    pub database: String,
    /// Clients that would be cut.
    pub clients: u32,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestoreReport {
    /// The checkpoint that is in place now.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// The checkpoint that holds what was replaced.
    pub safety: String,
    /// Every path that was touched or kept.
    pub paths: Vec<(String, crate::files::Verdict)>,
    /// Paths that stay as they were.
    pub unchanged: u64,
    /// What happened to the database.
    pub database: String,
    /// Milliseconds in which no client could reach the server.
    pub downtime_ms: u64,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Where displaced content that is in no checkpoint was kept.
    pub kept: Option<std::path::PathBuf>,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// What [`Project::restore`] would do; touches nothing.
    pub fn plan_restore(&self, checkpoint: &str, control: &Control) -> Result<RestorePlan> {
        let _ = (checkpoint, control);
        todo!()
    }
    /// Makes the selected paths and the database exactly the checkpoint's; first keeps everything it replaces as a safety
    /// checkpoint. All or nothing: an interrupted one is finished or rolled back by [`Project::recover`].
    pub fn restore(&self, checkpoint: &str, options: &RestoreOptions, control: &Control) -> Result<RestoreReport> {
        let _ = (checkpoint, options, control);
        todo!()
    }
}
