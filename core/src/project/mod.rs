//! Projects: a worktree bound to a store and to a branch of its own; checkpoints of both at one instant; restore and recovery.
//!
//! Read in this order: `configuration` (.forklift.json), `git` and `identity` (worktree to record), `record` (what is on
//! disk), `handle`, `setup`, `lock` (who may do what at once), `pairing` and `capture`, `checkpoints` (log, show, diff),
//! `journal`, `restore` with `work` (up to the selection) and `finish`, `rewind`, `recover`, `hooks`, `run`, `status`, `prune`, `turn` (sessions and their turns). `database` is the branch of a project,
//! in a build without Postgres one that never exists; `failpoint` is for tests.

mod capture;
mod checkpoints;
mod configuration;
#[cfg(feature = "postgres")]
mod database;
#[cfg(not(feature = "postgres"))]
#[path = "database_absent.rs"]
mod database;
mod failpoint;
mod finish;
mod git;
mod handle;
mod hooks;
mod identity;
mod journal;
mod lock;
mod pairing;
mod paths;
mod prune;
mod record;
mod recover;
mod restore;
mod rewind;
mod run;
mod setup;
mod status;
mod turn;
mod work;

pub use capture::{CaptureOptions, CaptureReport, ReadsByHalf};
pub use checkpoints::{CheckpointInfo, HalfSize, PathChange};
pub use configuration::{Configuration, ConnectionForm, Hooks};
pub use failpoint::FAILPOINTS;
pub use handle::{Project, ProjectOptions};
pub use prune::{ForgetReport, PruneOrphan, PruneReport};
pub use recover::{RecoverOutcome, RecoverReport};
pub use restore::{PathVerdict, RestoreOptions, RestorePlan, RestoreReport};
pub use rewind::{DatabaseChoice, DatabaseFate, RedoOptions, RewindOptions, RewindPlan, RewindPreview, RewindReport, RewindTo};
pub use run::{RunOptions, RunOutcome};
pub use setup::{SetupOptions, SetupReport};
pub use status::{RunningCommand, StatusReport};
pub use turn::{
    BlameLine, BlameReport, EditedReport, ReplayReport, TimelineReport, TurnData, TurnDetails, TurnEnd, TurnInfo, TurnOptions, TurnPath,
    TurnReport, WaitReport, WindowInfo, background_task,
};

#[cfg(test)]
mod tests;
