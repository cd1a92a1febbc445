//! `forklift project rewind` and `forklift project redo`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

/// `project rewind`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("how far").required(true).args(["to", "after"])))]
pub(crate) struct Rewind {
    /// The session whose turns are taken back
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: String,
    /// Go back to what was there before this turn began: its name, the start of it, or its place in the session (#3)
    #[arg(long, value_name = "TURN")]
    pub(crate) to: Option<String>,
    /// Go back to what this turn left
    #[arg(long, value_name = "TURN")]
    pub(crate) after: Option<String>,
    /// Only these paths and what is below them; the database stays as it is then
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) plan: Plan,
}

/// `project redo`.
#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// The last rewind of this session; where not said, of the one that rewound or redid last
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) plan: Plan,
}

/// What both take.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Only tell what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do it only if it is still the plan with this id, as --dry-run told it
    #[arg(long, value_name = "ID", conflicts_with = "dry_run")]
    pub(crate) plan: Option<String>,
    /// Where somebody's edits are in the way, keep those and take the rest back
    #[arg(long)]
    pub(crate) keep_edited: bool,
    /// The most paths that may be touched; 500 where not said
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// What happens to rows that others changed, or may have changed
    #[arg(long, value_enum, default_value_t = Database::Refuse)]
    pub(crate) database: Database,
}

/// What happens to rows that others changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    /// Nothing is done at all
    Refuse,
    /// They are taken back with the rest; the safety checkpoint has them
    Discard,
    /// The database stays as it is: a partial rewind, of the files alone
    Keep,
}
