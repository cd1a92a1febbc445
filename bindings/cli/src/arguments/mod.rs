//! The grammar of the command line.

mod branch;
mod hook;
mod pool;
mod postgres;
mod project;
mod rewind;
mod store;
mod turn;

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

pub(crate) use branch::{BranchCommand, Create, ForkMode, Safe, ShortCommand, UrlArguments, UrlForm};
pub(crate) use hook::{HookCommand, HookSettings, HostName};
pub(crate) use pool::{PoolCommand, PoolPath, PoolSystem};
pub(crate) use postgres::PostgresCommand;
pub(crate) use project::{Capture, CaptureMode, Diff, Forget, ProjectCommand, Restore, Setup};
pub(crate) use rewind::{Database, Plan, Redo, Rewind};
pub(crate) use store::{Level, Repair, StoreCommand, StorePrune, Verify};
pub(crate) use turn::{Blame, Edited, Log, Replay, Show, TurnBegin, TurnCommand, TurnData, TurnEnd, TurnWait};

/// Rewinds an agent's work: the files of a worktree and the Postgres database that goes with them.
///
/// Results go to standard output; progress, warnings and hints to standard error.
///
/// Exit codes: 0 done, 1 no (a store is damaged, the doctor found something lacking, a pool is not mounted), 2 usage, 3 failure, 4 busy or locked, 5 refused because of an edit, 130 interrupted.
/// `project run` passes on the exit code of its command.
#[derive(Debug, Parser)]
#[command(name = "forklift", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Work as if started in this folder
    #[arg(short = 'C', long = "project", value_name = "DIR", global = true)]
    pub(crate) folder: Option<PathBuf>,
    /// Store to use; else the project's, else FORKLIFT_STORE, else the one in your data folder
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) store: Option<PathBuf>,
    /// Folder of the Postgres programs to use; else FORKLIFT_POSTGRES, else what is found on this machine
    #[arg(long, value_name = "BIN", global = true)]
    pub(crate) postgres: Option<PathBuf>,
    /// Print the result, or the error, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no progress and no hints
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A worktree with its checkpoints: set up, run, capture, restore
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Named databases: make, fork, start, stop, delete
    #[command(subcommand)]
    Branch(BranchCommand),
    /// Postgres installations on this machine
    #[command(subcommand)]
    Postgres(PostgresCommand),
    /// The store as a whole: verify, repair, prune, count
    #[command(subcommand)]
    Store(StoreCommand),
    /// What agent hosts call: their events open and close turns
    #[command(subcommand)]
    Hook(HookCommand),
    /// A file system that shares blocks, in one file: create, status, grow, remove
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Try everything that a store needs on this machine, and say what was found; changes nothing
    ///
    /// Clones, locks and the like are tried in the store's folder, or in its nearest parent that is there. Exit code 1 where this
    /// machine cannot run what the store needs.
    Doctor,
    #[command(flatten)]
    Short(ShortCommand),
}

/// The grammar itself, for what is made from it: help pages, completions.
#[must_use]
pub fn grammar() -> clap::Command {
    Arguments::command()
}
