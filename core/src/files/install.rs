//! Putting a captured tree back, so that no byte that was there is lost.

use std::path::Path;

use super::{PlanItem, Scope};
use crate::error::Result;
use crate::progress::Control;
use crate::store::{ChunkId, Reader};

/// What to install and where.
#[derive(Debug)]
pub struct InstallRequest<'a> {
    /// The store.
    pub reader: &'a Reader,
    /// The checkpoint's scope, with today's root.
    pub scope: &'a Scope,
    /// The manifest to install.
    pub target: ChunkId,
    /// The manifest of what was there before: a displaced file that is not in it (by path and content) is somebody's edit
    /// made meanwhile and is moved into `kept` and reported instead of removed.
    pub safety: ChunkId,
    /// Where [`stage`] put the content, or an empty or absent folder (then content comes from the store).
    pub staging: &'a Path,
    /// Where displaced files that are in no checkpoint go, by their relative path.
    pub kept: &'a Path,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// Every path that was touched or kept, in path order.
    pub items: Vec<PlanItem>,
    /// fsyncs.
    pub fsyncs: u64,
}

/// Writes and verifies the content of every file that `install` will write into the folder `staging`, synced, so that a
/// full disk or a damaged chunk is found before anything is touched. Gives the bytes written.
pub fn stage(request: &InstallRequest<'_>, control: &Control) -> Result<u64> {
    let _ = (request, control);
    todo!()
}

/// Makes the tree below the scope exactly the target: per file write beside, fsync, mode before content is visible,
/// RENAME_EXCHANGE, check what came out; creation with RENAME_NOREPLACE; deletion renames away and checks; folders last,
/// children first. Paths are resolved beneath the root without following links. Files that do not differ are not touched.
/// Read back and compared at the end. Idempotent: run again after a crash it finishes the work.
pub fn install(request: &InstallRequest<'_>, control: &Control) -> Result<InstallReport> {
    let _ = (request, control);
    todo!()
}
