//! Forgetting checkpoints and freeing what nothing needs.

use serde::Serialize;

use super::{CheckpointInfo, Project};
use crate::error::Result;
use crate::progress::Control;

/// What was, or would be, forgotten.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForgetReport {
    /// It was done.
    pub applied: bool,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// What was, or would be, removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PruneReport {
    /// It was done.
    pub applied: bool,
    /// Safety checkpoints of this project that go.
    pub safety: Vec<CheckpointInfo>,
    /// Old clusters and leftovers of this project's branch that go.
    pub clusters: Vec<String>,
    /// Worktrees that are gone, whose state goes: (project id, worktree).
    pub orphans: Vec<(String, std::path::PathBuf)>,
    /// Packs removed.
    pub packs: u64,
    /// Bytes freed.
    pub bytes: u64,
}

impl Project {
    /// Forgets checkpoints by name or id prefix; without `apply` only tells. One that a branch still stands on (`fork --at`) stays readable there: forks are copies.
    pub fn forget(&self, checkpoints: &[String], apply: bool, control: &Control) -> Result<ForgetReport> {
        let _ = (checkpoints, apply, control);
        todo!()
    }
    /// Removes retained copies (safety checkpoints but the newest), leftovers and unneeded packs; without `apply` only tells.
    pub fn prune(&self, apply: bool, control: &Control) -> Result<PruneReport> {
        let _ = (apply, control);
        todo!()
    }
}
