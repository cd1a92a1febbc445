//! The files of a worktree: what belongs to it, capturing it, comparing it, and putting it back.
//!
//! Read in this order: `scope`, `ignores` and `scan` (which names), `content` and `cache` (what is in them), `capture`,
//! `diff`, `compare` and `plan` (what a restore would do), `rewind` (what a rewind would do), `temporary` and `install` (doing it).

mod cache;
mod capture;
mod compare;
mod content;
mod diff;
mod ignores;
mod install;
mod plan;
mod rewind;
mod scan;
mod scope;
mod temporary;

#[cfg(test)]
mod tests;

pub use cache::StatCache;
pub use capture::{Captured, capture, disk_entries, disk_state, moved_since};
pub use diff::{Change, ChangeKind, diff};
pub use install::{Extent, InstallReport, InstallRequest, install, stage};
pub use plan::{Plan, PlanItem, Verdict, plan};
pub use rewind::{DiskState, RewindPlan, RewindRequest, Snapshot, Step, plan_rewind};
pub use scan::{Coverage, LeftOut};
pub use scope::Scope;
