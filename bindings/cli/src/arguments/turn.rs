//! `forklift project turn`, `forklift project edited`, and what `log` and `show` know of turns.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What can be done with a turn.
#[derive(Debug, Subcommand)]
pub(crate) enum TurnCommand {
    /// Open a window: what changes from now on is this turn's
    Begin(TurnBegin),
    /// Wait until what was there before the session's open windows is captured
    Wait(TurnWait),
    /// Close a window: capture what is there now
    End(TurnEnd),
}

/// Which turn.
#[derive(Debug, Args)]
pub(crate) struct TurnNames {
    /// One conversation with an agent, as its host calls it
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: String,
    /// One message of the user in it, as its host calls it
    #[arg(long, value_name = "TURN")]
    pub(crate) turn: String,
    /// The tool that is called
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Option<String>,
    /// The id of the call: tells parallel calls of one tool apart
    #[arg(long, value_name = "ID")]
    pub(crate) call: Option<String>,
    /// Whether the database is captured
    #[arg(long, value_enum, default_value_t = TurnData::Auto)]
    pub(crate) data: TurnData,
}

/// Whether the database is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TurnData {
    /// Where there is one and something was written to it
    Auto,
    /// Not at all: such turns can be taken back for files only
    Never,
}

/// `project turn begin`.
#[derive(Debug, Args)]
pub(crate) struct TurnBegin {
    #[command(flatten)]
    pub(crate) names: TurnNames,
    /// Return at once and capture beside; `turn wait` is the gate before anything may change
    #[arg(long)]
    pub(crate) background: bool,
    /// Only mark where the turn begins: the window closes by itself
    #[arg(long)]
    pub(crate) instant: bool,
    /// The process whose death closes the window; inside `project run` that command, where not said
    #[arg(long, value_name = "PID")]
    pub(crate) owner: Option<u32>,
}

/// `project turn wait`.
#[derive(Debug, Args)]
pub(crate) struct TurnWait {
    /// One conversation with an agent, as its host calls it
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: String,
    /// The turn, for the caller's sake: all windows of the session are waited for
    #[arg(long, value_name = "TURN")]
    pub(crate) turn: Option<String>,
    /// Whether the database is captured
    #[arg(long, value_enum, default_value_t = TurnData::Auto)]
    pub(crate) data: TurnData,
}

/// `project turn end`.
#[derive(Debug, Args)]
pub(crate) struct TurnEnd {
    #[command(flatten)]
    pub(crate) names: TurnNames,
    /// The tool failed
    #[arg(long)]
    pub(crate) failed: bool,
}

/// `project edited`.
#[derive(Debug, Args)]
pub(crate) struct Edited {
    /// Files, or folders for all that is in them
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Who edited them
    #[arg(long, value_name = "NAME", default_value = "human")]
    pub(crate) author: String,
}

/// `project blame`.
#[derive(Debug, Args)]
pub(crate) struct Blame {
    /// A file of text
    pub(crate) path: PathBuf,
}

/// `project replay`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A turn, for what it left; or the name of a checkpoint, or the start of its id
    #[arg(value_name = "TURN|CHECKPOINT")]
    pub(crate) what: String,
    /// A new or empty folder outside the worktree
    #[arg(value_name = "DIR")]
    pub(crate) into: PathBuf,
    /// The session whose turn it is
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
}

/// `project log`.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// List the turns of agents, with their windows, in place of checkpoints
    #[arg(long)]
    pub(crate) turns: bool,
    /// Those of one session
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// First make the log of turns anew of what the checkpoints know
    #[arg(long, conflicts_with = "session")]
    pub(crate) rebuild: bool,
}

/// `project show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the checkpoint, or the start of its id; or a turn: its name, the start of it, or `#3` for a session's third
    #[arg(value_name = "CHECKPOINT|TURN")]
    pub(crate) what: String,
    /// The session whose turn it is
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
}
