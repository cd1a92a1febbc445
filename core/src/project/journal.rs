//! The journal of a restore, and `current.json`, whose rename selects the pair.

use serde::{Deserialize, Serialize};

use super::Project;
use super::record::{FORMAT, read_json, remove_durably, write_json};
use super::rewind::JournalRewind;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs::Syncs;

/// How far a restore has come. Each state is durable before the work that it announces begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// New content is made beside the old; nothing of the old is touched.
    Preparing,
    /// All of it is there and verified.
    Prepared,
    /// The app and the server are being stopped, the safety checkpoint is being made. The pair is selected when
    /// `current.json` names this journal.
    Stopping,
    /// Selected, and the files are installed.
    Installed,
}

/// `journal.json`: there while a restore is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub(super) format: u32,
    /// Id of this restore.
    pub(super) id: String,
    pub(super) state: State,
    /// Id and name of the checkpoint to put back.
    pub(super) checkpoint: String,
    pub(super) name: Option<String>,
    pub(super) started_ms: u64,
    /// The process that began it, for people.
    pub(super) pid: u32,
    /// The database is replaced.
    pub(super) replaces_database: bool,
    /// The database is left alone: its branch is held, and its socket hidden, until the files are in place.
    #[serde(default)]
    pub(super) closes_database: bool,
    /// The cluster that was current, and the one that will be.
    pub(super) old_cluster: Option<String>,
    pub(super) new_cluster: Option<String>,
    /// The server ran, so it is started again.
    pub(super) server_ran: bool,
    /// The start hook, where the stop hook said that the app ran.
    pub(super) start_hook: Option<Vec<String>>,
    /// Id of the safety checkpoint; it may not exist yet.
    pub(super) safety: String,
    /// It is a rewind: only what it changes is installed, and the checkpoint is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rewind: Option<JournalRewind>,
}

/// `current.json`: the pair that was selected last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Current {
    pub(super) format: u32,
    /// The restore that selected it.
    pub(super) journal: String,
    pub(super) checkpoint: String,
    pub(super) cluster: Option<String>,
    pub(super) safety: String,
    pub(super) selected_ms: u64,
}

impl Journal {
    /// The branch may be held and its server stopped or hidden.
    pub(super) fn touches_database(&self) -> bool {
        self.replaces_database || self.closes_database
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        let what = match (&self.rewind, &self.name) {
            (Some(rewind), _) => rewind.what.clone(),
            (None, Some(name)) => format!("restore of {} ({name})", self.checkpoint),
            (None, None) => format!("restore of {}", self.checkpoint),
        };
        format!("{what}, begun {} by process {}", crate::sys::id::rfc3339(self.started_ms), self.pid)
    }
}

impl Project {
    pub(super) fn journal(&self) -> Result<Option<Journal>> {
        read_json(&self.folder.journal())
    }

    pub(super) fn write_journal(&self, journal: &Journal, syncs: &Syncs) -> Result<()> {
        write_json(&self.folder.journal(), journal, syncs)
    }

    pub(super) fn remove_journal(&self, syncs: &Syncs) -> Result<()> {
        remove_durably(&self.folder.journal(), syncs)
    }

    /// Whether this restore has selected its pair: the one point that decides between rolling back and finishing.
    ///
    /// `current.json` is there from [`Project::begin_selection`] on. Where it is gone all the same, nobody knows; what is sure
    /// then is that the safety checkpoint has all that was there before it, so that finishing loses nothing.
    pub(super) fn is_selected(&self, journal: &Journal) -> Result<bool> {
        let current: Option<Current> = read_json(&self.folder.current())?;
        match current {
            Some(current) => Ok(current.journal == journal.id),
            None => Ok(matches!(journal.state, State::Stopping | State::Installed) && self.store.find_ref(&journal.safety).is_ok()),
        }
    }

    /// Sees to it that there is a `current.json` before a restore may select: without, a lost one could not be told from one
    /// that was never written.
    pub(super) fn begin_selection(&self, syncs: &Syncs) -> Result<()> {
        if read_json::<Current>(&self.folder.current())?.is_some() {
            return Ok(());
        }
        let nothing = Current {
            format: FORMAT,
            journal: String::new(),
            checkpoint: String::new(),
            cluster: None,
            safety: String::new(),
            selected_ms: 0,
        };
        write_json(&self.folder.current(), &nothing, syncs)
    }

    /// Selects the pair.
    pub(super) fn select(&self, journal: &Journal, syncs: &Syncs) -> Result<()> {
        let current = Current {
            format: FORMAT,
            journal: journal.id.clone(),
            checkpoint: journal.checkpoint.clone(),
            cluster: journal.new_cluster.clone(),
            safety: journal.safety.clone(),
            selected_ms: crate::sys::id::now_ms(),
        };
        write_json(&self.folder.current(), &current, syncs)
    }

    /// Fails with `RecoveryNeeded` while a restore is not over.
    pub(super) fn check_no_journal(&self) -> Result<()> {
        match self.journal()? {
            None => Ok(()),
            Some(journal) => Err(recovery_needed(&format!("interrupted {}", journal.describe()), &self.root)),
        }
    }
}

/// The error that sends people to `recover`.
pub(super) fn recovery_needed(what: &str, root: &std::path::Path) -> Error {
    Error::new(ErrorKind::RecoveryNeeded, format!("{}: {what}", root.display()))
        .with("path", root.display())
        .hint("run `forklift project recover` in the worktree")
}
