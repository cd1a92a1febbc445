//! What a restore would do, path by path, before anything is touched.

use serde::{Deserialize, Serialize};

use super::{Scope, StatCache};
use crate::error::Result;
use crate::progress::Control;
use crate::store::{ChunkId, Entry, Reader};

/// What happens to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Exists and becomes what the checkpoint has.
    Restore,
    /// Is made.
    Create,
    /// Is removed: the checkpoint's scope covers it and the checkpoint does not have it.
    Delete,
    /// Is already as in the checkpoint.
    Unchanged,
    /// Was not captured (left out by the checkpoint's scope): stays.
    NotCaptured,
    /// Only today's scope has it, not the checkpoint's: stays.
    Outside,
    /// Somebody changed it while the restore ran, or has it open for writing: the content that was displaced is kept beside the result.
    Kept,
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanItem {
    /// Raw bytes relative to the root.
    pub path: Vec<u8>,
    /// What happens.
    pub verdict: Verdict,
}

/// A plan: only paths that are not `unchanged` are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Hash of all it saw.
    pub id: String,
    /// In path order.
    pub items: Vec<PlanItem>,
    /// How many paths stay as they are.
    pub unchanged: u64,
}

/// The entries of a scope as they are on disk now, with chunk ids and without storing anything. Files that `cache` knows are not read.
pub fn disk_entries(scope: &Scope, cache: &mut StatCache, control: &Control) -> Result<Vec<Entry>> {
    let _ = (scope, cache, control);
    todo!()
}

/// Compares the manifest `target`, made under `target_scope` (with today's root), with the disk as today's `scope` and
/// `target_scope` see it.
pub fn plan(reader: &Reader, target: &ChunkId, target_scope: &Scope, scope: &Scope, cache: &mut StatCache, control: &Control) -> Result<Plan> {
    let _ = (reader, target, target_scope, scope, cache, control);
    todo!()
}
