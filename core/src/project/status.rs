//! What is going on in a project.

use std::path::PathBuf;

use serde::Serialize;

use super::{CheckpointInfo, Project};
use crate::error::Result;
use crate::progress::Control;

/// The state of a project.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    /// Project id.
    pub id: String,
    /// Worktree.
    pub root: PathBuf,
    /// Store.
    pub store: PathBuf,
    /// Branch name and server state (`stopped`, `running`, `in_transition`), where there is a database.
    pub branch: Option<String>,
    /// See `branch`.
    pub server: Option<String>,
    /// The command that holds the command lock, `pid: command line`.
    pub running: Vec<String>,
    /// An interrupted restore: what it was and that `recover` is next.
    pub pending: Option<String>,
    /// The last checkpoint.
    pub last: Option<CheckpointInfo>,
    /// Paths that differ from the last checkpoint.
    pub changed: u64,
}

impl Project {
    /// Looks; writes nothing.
    pub fn status(&self, control: &Control) -> Result<StatusReport> {
        let _ = control;
        todo!()
    }
}
