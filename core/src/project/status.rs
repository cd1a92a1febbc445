//! What is going on in a project.

use std::path::PathBuf;

use serde::Serialize;

use super::lock::HolderRecord;
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
    /// The commands and captures at work, `pid: command line`.
    pub running: Vec<String>,
    /// An interrupted restore: what it was and that `recover` is next.
    pub pending: Option<String>,
    /// The last checkpoint.
    pub last: Option<CheckpointInfo>,
    /// Paths that differ from the last checkpoint.
    pub changed: u64,
    /// What opening the project found, and refs that cannot be read.
    pub warnings: Vec<String>,
}

impl Project {
    /// Looks; writes nothing.
    ///
    /// # Errors
    /// `Config` where `.forklift.json` is wrong; `Io` and its like.
    pub fn status(&self, control: &Control) -> Result<StatusReport> {
        self.check_root()?;
        self.configuration()?;
        let database = self.database()?;
        let (refs, unreadable) = self.refs()?;
        let last = refs.last();
        let changed = last.map_or(Ok(0), |last| self.changes_on_disk(last, control).map(|changes| changes.len()))?;
        let mut warnings = self.notices().to_vec();
        if !unreadable.is_empty() {
            warnings.push(format!("refs that cannot be read: {}", unreadable.join(", ")));
        }
        Ok(StatusReport {
            id: self.record.id.clone(),
            root: self.root.clone(),
            store: self.store.path().to_owned(),
            branch: database.as_ref().map(|database| database.name().to_owned()),
            server: database.as_ref().map(super::database::Database::state).transpose()?,
            running: self.holders(false)?.iter().map(HolderRecord::describe).collect(),
            pending: self.journal()?.map(|journal| format!("{}; run `forklift project recover`", journal.describe())),
            last: last.map(CheckpointInfo::of),
            changed: u64::try_from(changed).unwrap_or(u64::MAX),
            warnings,
        })
    }
}
