//! Putting a captured tree back, so that no byte that was there is lost.
//!
//! Read in this order: `work` (what has to be done), `permitted` and `space` (whether it can be), `stage`, `steps` (deleting, folders, files, in this order), `place`
//! (one file), `displaced` (what came out), `put_back` (what came out and was not planned for, in a rewind).

mod displaced;
mod permitted;
mod place;
mod put_back;
mod space;
mod stage;
mod steps;
mod work;

use std::path::Path;

use super::plan::PlanItem;
use super::scope::Scope;
use crate::error::Result;
use crate::progress::Control;
use crate::store::{ChunkId, Reader};

/// How much of the tree becomes the target, and what happens to somebody's edits of the last moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// All of it, as a restore does: what somebody edited meanwhile is moved away into the folder of kept files.
    #[default]
    Whole,
    /// Only the paths at which target and safety differ, as a rewind does: what is not as in the safety manifest any more, or
    /// is open for writing, stays where it is.
    Differences,
}

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
    /// made meanwhile and is moved into `kept` and reported instead of removed. Only paths in it are ever deleted.
    pub safety: ChunkId,
    /// Where [`stage`] put the content, or an empty or absent folder (then content comes from the store).
    pub staging: &'a Path,
    /// Where displaced files that are in no checkpoint go, by their relative path.
    pub kept: &'a Path,
    /// All of the target, or only what it changes.
    pub extent: Extent,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// Every path that was touched or kept, in path order.
    pub items: Vec<PlanItem>,
    /// fsyncs.
    pub fsyncs: u64,
    /// What was left as it is because this user may not change it.
    pub warnings: Vec<String>,
}

/// Writes and verifies the content of every file that `install` will write into the folder `staging`, synced, so that a
/// full disk or a damaged chunk is found before anything is touched. Gives the bytes written. What an earlier call left in
/// `staging` is replaced.
///
/// # Errors
/// `NoSpace` in either place, `Permission` or `ReadOnly` naming what this user may not change, `Corrupt`, `Cancelled`, `Io`;
/// `Edited` where a folder on the way to a path has become something else that
/// the checkpoint does not say what to do with.
pub fn stage(request: &InstallRequest<'_>, control: &Control) -> Result<u64> {
    let work = work::Work::new(request, control)?;
    permitted::check(&work, request)?;
    stage::stage(&work)
}

/// Makes the tree below the scope exactly the target: per file write beside, fsync, mode before content is visible,
/// RENAME_EXCHANGE, check what came out; creation with RENAME_NOREPLACE; deletion renames away and checks; modes of folders
/// last, children first. Paths are resolved beneath the root without following links. Files that do not differ are not touched.
/// Read back and compared at the end. Idempotent: run again after a crash, a full disk or a cancel it finishes the work.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Cancelled`, `Edited`, `Io`: part of the paths is done; run it again.
pub fn install(request: &InstallRequest<'_>, control: &Control) -> Result<InstallReport> {
    let mut work = work::Work::new(request, control)?;
    steps::run(&mut work)?;
    Ok(work.report())
}
