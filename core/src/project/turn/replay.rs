//! The files of any checkpoint, in a folder of their own.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::Project;
use super::super::checkpoints::files_of;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, InstallRequest, Scope};
use crate::progress::Control;
use crate::timeline::CheckpointId;

/// What was put there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The turn that left it, where one was named.
    pub turn: Option<String>,
    /// The folder.
    #[serde(serialize_with = "crate::report::path")]
    pub folder: PathBuf,
    /// Names in it.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Paths of the worktree that no checkpoint has, such as installed dependencies: they are not there.
    pub left_out: Vec<String>,
    /// fsyncs.
    pub fsyncs: u64,
    /// What is left as it is because this user may not change it.
    pub warnings: Vec<String>,
}

impl Project {
    /// Puts the files that a turn left into `folder`, which is made, or is empty; or those of a checkpoint where no session has such
    /// a turn. The worktree is not touched. Byte by byte as they were, but for what no checkpoint has (`left_out`).
    ///
    /// # Errors
    /// As [`Project::show_turn`] and [`Project::show`]; `NotFound` for a turn that is open or whose checkpoint was forgotten;
    /// `AlreadyExists` for a folder that holds something; `InvalidArgument` for one inside the worktree; `NoSpace`, `Corrupt`, `Cancelled`: what
    /// is in the folder by then stays, and may be removed.
    pub fn replay(&self, session: Option<&str>, what: &str, folder: &Path, control: &Control) -> Result<ReplayReport> {
        let (checkpoint, turn) = self.left_by(session, what)?;
        let reference = self.store.find_ref(&checkpoint).map_err(|error| match turn {
            Some(_) => error.while_doing(format!("what the turn {what} left was forgotten")),
            None => error,
        })?;
        let half = files_of(&reference)?;
        let folder = self.empty_folder(folder)?;
        let scope = Scope::from_facts(&half.facts, &folder, vec![self.store.path().to_owned()])?;
        let id = crate::sys::id::sortable()?;
        let reader = self.store.reader(control)?;
        let request = InstallRequest {
            reader: &reader,
            scope: &scope,
            target: half.root,
            // Nothing was there, so nothing is displaced.
            safety: half.root,
            staging: &self.folder.staging().join(&id),
            kept: &self.folder.kept(&id),
            extent: files::Extent::Whole,
        };
        let report = files::install(&request, control)?;
        let left_out = scope.left_out.iter().filter(|left| left.reason != "git");
        Ok(ReplayReport {
            checkpoint,
            turn,
            entries: half.entries,
            bytes: half.bytes,
            left_out: left_out.map(|left| format!("{} ({})", left.path.display(), left.reason)).collect(),
            folder,
            fsyncs: report.fsyncs,
            warnings: report.warnings,
        })
    }

    /// The checkpoint that a turn left, else the one of that name or id.
    fn left_by(&self, session: Option<&str>, what: &str) -> Result<(CheckpointId, Option<String>)> {
        let (timeline, _) = self.timeline()?;
        let turn = match session {
            Some(session) => timeline.turn(session, what)?,
            None => match super::history::only(&timeline, what) {
                Ok(turn) => turn,
                Err(no_turn) if no_turn.kind() == ErrorKind::NotFound => {
                    let found = self.resolve(what).map(|reference| (reference.id, None));
                    return found.map_err(|error| match error.kind() {
                        ErrorKind::NotFound => error.while_doing(no_turn.message()),
                        _ => error,
                    });
                }
                Err(error) => return Err(error),
            },
        };
        match turn.end {
            Some(end) if turn.state != crate::timeline::WindowState::Open => Ok((end, Some(turn.turn))),
            _ => Err(Error::new(ErrorKind::NotFound, format!("turn {} of session {} has not ended", turn.turn, turn.session))
                .with("turn", &turn.turn)
                .hint("end it with `forklift project turn end`")),
        }
    }

    fn empty_folder(&self, folder: &Path) -> Result<PathBuf> {
        let folder = self.opened.join(folder);
        crate::sys::fs::make_folder(&folder, 0o755)?;
        let folder = folder.canonicalize().map_err(|source| Error::io("open folder", &folder, source))?;
        if folder.starts_with(&self.root) || self.root.starts_with(&folder) || folder.starts_with(self.store.path()) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is part of the worktree or its store", folder.display()))
                .with("path", folder.display())
                .hint("name a new folder elsewhere"));
        }
        if crate::sys::fs::names(&folder)?.is_empty() {
            return Ok(folder);
        }
        Err(Error::new(ErrorKind::AlreadyExists, format!("{} holds something", folder.display()))
            .with("path", folder.display())
            .hint("name a new or empty folder"))
    }
}
