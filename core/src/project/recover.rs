//! After an interrupted restore.

use serde::Serialize;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoverOutcome {
    /// There was nothing to do.
    Clean,
    /// The restore had not selected its pair: the old one is in place.
    RolledBack,
    /// It had: the new one is in place.
    Finished,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoverReport {
    /// What was done.
    pub outcome: RecoverOutcome,
    /// The checkpoint that the restore was to.
    pub checkpoint: Option<String>,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// Rolls back a restore that had not selected its pair, finishes one that had. May itself be interrupted and run again.
    pub fn recover(&self, control: &Control) -> Result<RecoverReport> {
        let _ = control;
        todo!()
    }
}
