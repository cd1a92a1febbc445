//! Projects: a worktree bound to a store and to a branch of its own; checkpoints of both at one instant; restore and recovery.
//!
//! Read in this order: `configuration` (.forklift.json), `identity` (worktree to record), `record`, `setup`, `lock` and
//! `token` (who may do what at once), `capture`, `checkpoints` (log, show, diff, forget), `restore` with `journal`, `recover`, `run`, `prune`.

mod capture;
mod checkpoints;
mod configuration;
mod handle;
mod prune;
mod recover;
mod restore;
mod run;
mod setup;
mod status;

pub use capture::{CaptureOptions, CaptureReport};
pub use checkpoints::{CheckpointInfo, PathChange};
pub use configuration::{Configuration, ConnectionForm};
pub use handle::{Project, ProjectOptions};
pub use prune::{ForgetReport, PruneReport};
pub use recover::{RecoverOutcome, RecoverReport};
pub use restore::{RestoreOptions, RestorePlan, RestoreReport};
pub use run::{RunOptions, RunOutcome};
pub use setup::{SetupOptions, SetupReport};
pub use status::StatusReport;
