//! What can be asked for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How many paths a rewind touches at most where nothing is said.
const LIMIT: u64 = 500;

/// How far back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindTo {
    /// To what was there before this turn began.
    Before(String),
    /// To what this turn left.
    After(String),
}

/// What happens to rows that others than the session's turns changed, or may have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseChoice {
    /// Nothing is rewound.
    #[default]
    Refuse,
    /// They go with the rest; the safety checkpoint has them.
    Discard,
    /// The database stays as it is: a partial rewind, of the files alone.
    Keep,
}

/// What to rewind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewindOptions {
    /// Session.
    pub session: String,
    /// How far back; turns by name, by the only name that begins so, or by place (`#3`).
    pub to: RewindTo,
    /// Rewind the rest where somebody's edit is in the way of some paths.
    pub keep_edited: bool,
    /// Only these paths and what is below them, relative to the folder that the project was opened from. The database stays as it
    /// is then.
    pub paths: Option<Vec<PathBuf>>,
    /// The most paths that may be touched; 500 where not said.
    pub limit: Option<u64>,
    /// What happens to rows that others changed.
    pub database: DatabaseChoice,
}

impl RewindOptions {
    /// Everything of a session from a turn on, with nothing of others in the way.
    #[must_use]
    pub fn new(session: impl Into<String>, to: RewindTo) -> Self {
        Self { session: session.into(), to, keep_edited: false, paths: None, limit: None, database: DatabaseChoice::default() }
    }
}

/// How to take the last rewind back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedoOptions {
    /// The last rewind of this session; where not said, of the one that rewound or redid last.
    pub session: Option<String>,
    /// As [`RewindOptions::keep_edited`].
    pub keep_edited: bool,
    /// As [`RewindOptions::limit`].
    pub limit: Option<u64>,
    /// As [`RewindOptions::database`].
    pub database: DatabaseChoice,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Rewind(RewindOptions),
    Redo(RedoOptions),
}

impl Asked {
    pub(super) fn keep_edited(&self) -> bool {
        match self {
            Self::Rewind(options) => options.keep_edited,
            Self::Redo(options) => options.keep_edited,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        match self {
            Self::Rewind(options) => options.limit,
            Self::Redo(options) => options.limit,
        }
        .unwrap_or(LIMIT)
    }

    pub(super) fn paths(&self) -> Option<&[PathBuf]> {
        match self {
            Self::Rewind(options) => options.paths.as_deref(),
            Self::Redo(_) => None,
        }
    }

    pub(super) fn database(&self) -> DatabaseChoice {
        match self {
            Self::Rewind(options) => options.database,
            Self::Redo(options) => options.database,
        }
    }
}
