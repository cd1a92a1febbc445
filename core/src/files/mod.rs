//! The files of a worktree: what belongs to it, capturing it, comparing it, and putting it back.
//!
//! Read in this order: `scope`, `ignores` and `scan` (which names), `content` and `cache` (what is in them), `capture`,
//! `diff`, `compare` and `plan` (what a restore would do), `temporary` and `install` (doing it).

mod cache;
mod capture;
mod compare;
mod content;
mod diff;
mod ignores;
mod install;
mod plan;
mod scan;
mod scope;
mod temporary;

#[cfg(test)]
mod tests;

pub use cache::StatCache;
pub use capture::{Captured, capture, disk_entries, moved_since};
pub use diff::{Change, ChangeKind, diff};
pub use install::{InstallReport, InstallRequest, install, stage};
pub use plan::{Plan, PlanItem, Verdict, plan};
pub use scan::{Coverage, LeftOut};
pub use scope::Scope;
