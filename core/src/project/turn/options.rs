//! What is asked of turns, and what they tell.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::timeline::{CheckpointId, Window, WindowId};

/// The longest name of a session, turn, tool, call or author.
const MAX_NAME: usize = 512;

/// Whether edges capture the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnData {
    /// Where the project has one and its mark says that something was written.
    #[default]
    Auto,
    /// Not at all: such turns can be taken back for files only.
    Never,
}

/// A window to open.
#[derive(Debug, Clone, Default)]
pub struct TurnOptions {
    /// Session: one conversation.
    pub session: String,
    /// Turn: one message of the user in it.
    pub turn: String,
    /// Name of the tool.
    pub tool: Option<String>,
    /// Id of the tool call. With it a begin that is told twice is the same window.
    pub call: Option<String>,
    /// Return at once and let another process of ours capture; [`crate::project::Project::turn_wait`] is the gate then.
    pub background: bool,
    /// Only mark where the turn begins: the window closes as soon as it has its start.
    pub instant: bool,
    /// The process whose death ends the window. Without one the managed command that the caller runs inside of; else only a later turn
    /// of the session ends it.
    pub owner: Option<u32>,
    /// Whether the database is captured.
    pub data: TurnData,
}

/// A window to close.
#[derive(Debug, Clone, Default)]
pub struct TurnEnd {
    /// Session.
    pub session: String,
    /// Turn.
    pub turn: String,
    /// Tool; where not said, whichever is open.
    pub tool: Option<String>,
    /// Id of the tool call; where not said, the oldest window of the turn and tool.
    pub call: Option<String>,
    /// The tool failed. What it changed until then is the turn's all the same.
    pub failed: bool,
    /// Whether the database is captured.
    pub data: TurnData,
}

/// What a begin or an end did; the JSON shape of every surface.
#[derive(Debug, Clone, Serialize)]
pub struct TurnReport {
    /// The window as it is now.
    #[serde(flatten)]
    pub window: Window,
    /// The checkpoint of this edge; absent while it is captured in the background.
    pub checkpoint: Option<CheckpointId>,
    /// It is a new one: something moved since the last edge.
    pub new_checkpoint: bool,
    /// It was told before; nothing was done.
    pub repeated: bool,
    /// `unchanged`, `files`, `online`, `stopped`, `background`.
    pub mode: String,
    /// Windows that nobody had ended, and that this call closed.
    pub interrupted: Vec<WindowId>,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// Milliseconds by part.
    #[serde(serialize_with = "crate::report::parts")]
    pub parts_ms: Vec<(String, u64)>,
    /// Bytes read from files and cluster.
    pub bytes_read: u64,
    /// Bytes that the store did not have.
    pub bytes_new: u64,
    /// Bytes written to the store.
    pub bytes_stored: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Regular files of the worktree that were opened.
    pub files_opened: u64,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

/// What a wait found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitReport {
    /// Windows whose start is captured now, and was not when the wait began.
    pub captured: Vec<WindowId>,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl TurnReport {
    pub(super) fn of(warnings: Vec<String>) -> Self {
        Self {
            window: Window {
                id: String::new(),
                session: String::new(),
                turn: String::new(),
                tool: None,
                call: None,
                start: None,
                end: None,
                state: crate::timeline::WindowState::Open,
                instant: false,
                owner: None,
                boot: String::new(),
                began_ms: 0,
                ended_ms: None,
                opened: 0,
                closed: None,
                overlaps_other_session: false,
                rewound: None,
            },
            checkpoint: None,
            new_checkpoint: false,
            repeated: false,
            mode: String::new(),
            interrupted: Vec::new(),
            total_ms: 0,
            parts_ms: Vec::new(),
            bytes_read: 0,
            bytes_new: 0,
            bytes_stored: 0,
            fsyncs: 0,
            files_opened: 0,
            warnings,
        }
    }
}

/// Checks a name that a host gave.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    let wrong = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > MAX_NAME {
        format!("is longer than {MAX_NAME} bytes")
    } else if name.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, format!("the {what} {wrong}"))
        .with("argument", what.to_owned())
        .hint(format!("name the {what} as the host calls it, in up to {MAX_NAME} bytes")))
}

pub(super) fn check_names(session: &str, turn: &str, tool: Option<&str>, call: Option<&str>) -> Result<()> {
    check_name("session", session)?;
    check_name("turn", turn)?;
    tool.map_or(Ok(()), |tool| check_name("tool", tool))?;
    call.map_or(Ok(()), |call| check_name("call", call))
}
