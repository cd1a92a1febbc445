//! The files of a worktree: what belongs to it, capturing it, comparing it, and putting it back.
//!
//! Read in this order: `scope`, `scan`, `cache`, `capture`, `plan`, `install`, `diff`.

mod cache;
mod capture;
mod diff;
mod install;
mod plan;
mod scan;
mod scope;

pub use cache::StatCache;
pub use capture::{Captured, capture, moved_since};
pub use diff::{Change, ChangeKind, diff};
pub use install::{InstallReport, InstallRequest, install, stage};
pub use plan::{Plan, PlanItem, Verdict, disk_entries, plan};
pub use scan::{Coverage, LeftOut};
pub use scope::Scope;
