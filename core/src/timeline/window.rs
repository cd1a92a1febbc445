//! Windows, turns and events, as the log tells them.

use serde::{Deserialize, Serialize};

use super::record::{Edited, Owner, Rewind};

/// Id of a checkpoint: its ref.
pub type CheckpointId = String;
/// Id of a window; sorts by the time at which it began.
pub type WindowId = String;
/// Id of a rewind.
pub type RewindId = String;

/// How far a window has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// The tool may be changing files now.
    Open,
    /// It came to its end.
    Ended,
    /// It came to its end, which was a failure.
    Failed,
    /// Nobody ended it: its owner died, or a later turn of the session began. Its end is what was there when that was noticed.
    Interrupted,
}

/// Who changed a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "author")]
pub enum Author {
    /// A turn: in its window, and in nobody else's.
    Agent {
        /// Session.
        session: String,
        /// Turn.
        turn: String,
        /// Tools that were at work.
        tools: Vec<String>,
    },
    /// Somebody who said so by an event, such as `human`.
    Named {
        /// What the event called them.
        name: String,
    },
    /// Nobody's window was open, or those of two sessions were.
    Unknown,
}

/// The time of one tool call, between two checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Id.
    pub id: WindowId,
    /// Session.
    pub session: String,
    /// Turn in that session.
    pub turn: String,
    /// Name of the tool.
    pub tool: Option<String>,
    /// Id of the call, as the host gave it.
    pub call: Option<String>,
    /// The files before. `None` while a capture in the background is at work, and for ever where that was broken off.
    pub start: Option<CheckpointId>,
    /// The files after. `None` while it is open.
    pub end: Option<CheckpointId>,
    /// State.
    pub state: WindowState,
    /// It only marks where a turn began: it has no width, and nothing is attributed to it.
    pub instant: bool,
    /// The process whose death ends it.
    pub owner: Option<Owner>,
    /// The boot in which it opened, whose end ends it too.
    pub boot: String,
    /// Milliseconds since 1970: for people.
    pub began_ms: u64,
    /// The same.
    pub ended_ms: Option<u64>,
    /// Number of the record that opened it: this orders windows.
    pub opened: u64,
    /// Number of the record that closed it.
    pub closed: Option<u64>,
    /// While it was open, a window of another session was: what changed is nobody's.
    pub overlaps_other_session: bool,
    /// The rewind that took it back, and that no redo has undone.
    pub rewound: Option<RewindId>,
}

impl Window {
    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == WindowState::Open
    }

    /// Whether its owner is gone, or the machine was started since it opened, so that nobody will end it.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let gone = || match &self.owner {
            Some(owner) => !owner.is_alive(),
            None => crate::sys::process::boot_id().is_ok_and(|boot| boot != self.boot),
        };
        self.is_open() && gone()
    }
}

/// One step of a session: all windows of one name, in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turn {
    /// Session.
    pub session: String,
    /// Its name: what the host calls the user's message.
    pub turn: String,
    /// Its place in the session, from 1.
    pub number: u64,
    /// `Open` while a window is, else the worst of its windows.
    pub state: WindowState,
    /// Milliseconds since 1970 at its first begin.
    pub began_ms: u64,
    /// At its last end.
    pub ended_ms: Option<u64>,
    /// The files before its first window.
    pub start: Option<CheckpointId>,
    /// The files after its last.
    pub end: Option<CheckpointId>,
    /// Its windows.
    pub windows: Vec<WindowId>,
    /// Some of it overlapped with another session.
    pub overlaps_other_session: bool,
    /// The last rewind that took all of it back.
    pub rewound: Option<RewindId>,
}

/// Something that happened beside windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Number of its record.
    pub n: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Somebody said that they edited these paths.
    Edited(Edited),
    /// Turns were taken back, or a rewind was.
    Rewound(Rewind),
}
