//! Looking at checkpoints: log, show, diff.

use serde::Serialize;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// One checkpoint as `log` and `show` give it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// Id.
    pub id: String,
    /// Name.
    pub name: Option<String>,
    /// RFC 3339.
    pub created: String,
    /// `capture` or `safety`.
    pub kind: String,
    /// Entries and bytes of the files.
    pub files: Option<(u64, u64)>,
    /// Entries and bytes of the cluster.
    pub cluster: Option<(u64, u64)>,
    /// The facts kept with it: mode, coverage, versions, warnings.
    pub facts: serde_json::Value,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathChange {
    /// Relative path; bytes that are not UTF-8 as `\xNN`.
    pub path: String,
    /// How.
    pub kind: crate::files::ChangeKind,
}

impl Project {
    /// Checkpoints of this project, newest first; safety ones too. Also the names of refs that cannot be read.
    pub fn log(&self) -> Result<(Vec<CheckpointInfo>, Vec<String>)> {
        todo!()
    }
    /// One checkpoint, by name or unique prefix of its id. `NotFound` names the nearest ones; an ambiguous prefix lists its matches.
    pub fn show(&self, checkpoint: &str) -> Result<CheckpointInfo> {
        let _ = checkpoint;
        todo!()
    }
    /// Paths that differ from `first` to `second`, or to the disk where `second` is not given.
    pub fn diff(&self, first: &str, second: Option<&str>, control: &Control) -> Result<Vec<PathChange>> {
        let _ = (first, second, control);
        todo!()
    }
}
