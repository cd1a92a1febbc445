//! `forklift project`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::turn::{Blame, Edited, Log, Replay, Show, TurnCommand};

/// What can be done with a project.
#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// Bind a worktree to a store, and to a branch of its own
    Setup(Setup),
    /// Show what is going on
    Status,
    /// Run a command with the project's database
    Run(Run),
    /// Save files and database at one instant
    Capture(Capture),
    /// Make files and database exactly as they were; what they replace is kept as a checkpoint
    Restore(Restore),
    /// Take back what a session's turns did, and nothing else; refused where somebody's edit would be lost
    Rewind(super::Rewind),
    /// Take the last rewind back; where all were, the last redo
    Redo(super::Redo),
    /// Roll back or finish an interrupted restore or rewind
    Recover,
    /// List the checkpoints, or the turns of agents, newest first
    Log(Log),
    /// Show one checkpoint, or one turn with the paths that changed in it
    Show(Show),
    /// List the paths that differ between two checkpoints, or a checkpoint and the disk
    Diff(Diff),
    /// Tell whose a change is: what was there before and after a tool call
    #[command(subcommand)]
    Turn(TurnCommand),
    /// Say that somebody edited paths by hand, so that no rewind takes that for an agent's
    Edited(Edited),
    /// Tell who wrote each line of a file: turn and tool, somebody by name, or nobody known
    Blame(Blame),
    /// Put the files that a turn left into a folder
    Replay(Replay),
    /// Forget checkpoints
    Forget(Forget),
    /// Free what nothing needs: safety checkpoints but the newest, replaced clusters
    Prune(Prune),
}

/// `project setup`.
#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// The worktree; the current folder where not said
    #[arg(value_name = "DIR")]
    pub(crate) worktree: Option<PathBuf>,
    /// Fork the worktree's own branch from this one; a running one is not interrupted
    #[arg(long, value_name = "BRANCH", conflicts_with = "files_only")]
    pub(crate) from: Option<String>,
    /// Name of the worktree's own branch; made of the folder's name where not said
    #[arg(long, value_name = "NAME", conflicts_with = "files_only")]
    pub(crate) branch: Option<String>,
    /// No database
    #[arg(long)]
    pub(crate) files_only: bool,
}

/// `project run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Program and arguments, or the name of one of the commands in .forklift.json
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `project capture`.
#[derive(Debug, Args)]
pub(crate) struct Capture {
    /// Name of the new checkpoint
    pub(crate) name: String,
    /// How to take a running database
    #[arg(long, value_enum, default_value_t = CaptureMode::Auto)]
    pub(crate) mode: CaptureMode,
    /// Read changed files of the database whole, and keep no clone of them to compare blocks with (as FORKLIFT_NO_EXTENTS=1 does)
    #[arg(long)]
    pub(crate) no_extents: bool,
}

/// How to take a running database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureMode {
    /// Online where it has clients, else by a short stop
    Auto,
    /// Without stopping it
    Online,
    /// By a clean stop, which cuts clients; keeps unlogged tables
    Stopped,
}

/// `project restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Name of the checkpoint, or the start of its id
    pub(crate) checkpoint: String,
    /// Only tell what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `project diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Name of the first checkpoint, or the start of its id
    pub(crate) first: String,
    /// The second; the disk where not said
    pub(crate) second: Option<String>,
}

/// `project forget`.
#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Names of the checkpoints, or the starts of their ids
    #[arg(required = true, value_name = "CHECKPOINT")]
    pub(crate) checkpoints: Vec<String>,
    /// Do it; without, only tell
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `project prune`.
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Do it; without, only tell
    #[arg(long)]
    pub(crate) yes: bool,
    /// Remove this project of the store as well, whose worktree is gone for good: its branch and all its checkpoints
    #[arg(long = "orphan", value_name = "ID")]
    pub(crate) orphans: Vec<String>,
}
