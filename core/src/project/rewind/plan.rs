//! What a rewind or a redo would do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use super::apply::RewindReport;
use super::asked::{Asked, DatabaseChoice, RedoOptions, RewindOptions};
use super::halves::{DatabaseFate, Half};
use super::history::Past;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, DiskState, RewindRequest, Scope, StatCache};
use crate::progress::Control;
use crate::project::checkpoints::files_of;
use crate::project::database::Database;
use crate::project::{PathVerdict, Project};
use crate::timeline::Window;

/// What a rewind would do; touches nothing. [`RewindPlan::apply`] does it, unless anything that it saw has moved since.
#[derive(Debug)]
pub struct RewindPlan<'p> {
    pub(super) project: &'p Project,
    pub(super) asked: Asked,
    pub(super) planned: Planned,
    /// What it would do.
    pub preview: RewindPreview,
}

/// What a rewind would do; the JSON shape of every surface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RewindPreview {
    /// Hash of all it saw.
    pub id: String,
    /// What it is, in words.
    pub what: String,
    /// Session.
    pub session: String,
    /// Turns that are taken back (or, by a redo, are in force again), whose messages a host drops (or shows again).
    pub turns: Vec<String>,
    /// The checkpoint to go back to.
    pub target: String,
    /// Every path that the turns changed, with what happens to it.
    pub paths: Vec<PathVerdict>,
    /// How many of them are made, replaced or removed.
    pub touched: u64,
    /// What happens to the database.
    pub database: DatabaseFate,
    /// The database is kept although it may differ, or edited paths are: not all of what the turns did is taken back.
    pub partial: bool,
    /// Why it is refused as it is; empty where it is not.
    pub refused: Vec<String>,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// What taking back a session's turns would do; touches nothing.
    ///
    /// # Errors
    /// `NotFound` names an unknown session or turn, or a forgotten checkpoint; `Busy` a turn that is open; `InvalidArgument` for paths
    /// outside the worktree; `RecoveryNeeded`, `Corrupt`, `Cancelled`, `Io`. That edits are in the way is no error: see
    /// [`RewindPreview::refused`].
    pub fn plan_rewind(&self, options: RewindOptions, control: &Control) -> Result<RewindPlan<'_>> {
        self.plan_asked(Asked::Rewind(options), control)
    }

    /// What taking the last rewind back would do; touches nothing. Where every rewind was taken back, the last redo is.
    ///
    /// # Errors
    /// `NotFound` where there is nothing to take back; as [`Project::plan_rewind`].
    pub fn plan_redo(&self, options: RedoOptions, control: &Control) -> Result<RewindPlan<'_>> {
        self.plan_asked(Asked::Redo(options), control)
    }

    /// Takes the last rewind back.
    ///
    /// # Errors
    /// As [`Project::plan_redo`] and [`RewindPlan::apply`].
    pub fn redo(&self, options: RedoOptions, control: &Control) -> Result<RewindReport> {
        self.plan_redo(options, control)?.apply(control)
    }

    fn plan_asked(&self, asked: Asked, control: &Control) -> Result<RewindPlan<'_>> {
        self.check_root()?;
        self.check_no_journal()?;
        self.close_abandoned_windows(control)?;
        let planned = Planned::make(self, &asked, control)?;
        let preview = planned.preview(&asked, self.notices());
        Ok(RewindPlan { project: self, asked, planned, preview })
    }

    /// Closes windows that nobody will end, where there are any: what they changed is known only then.
    pub(in crate::project) fn close_abandoned_windows(&self, control: &Control) -> Result<()> {
        if self.timeline()?.0.open_windows().any(Window::is_abandoned) {
            self.close_abandoned(control)?;
        }
        Ok(())
    }
}

impl RewindPlan<'_> {
    /// What would let a refused plan through, in words; `None` where it is not refused.
    #[must_use]
    pub fn way_out(&self) -> Option<String> {
        let mut ways = Vec::new();
        if self.edits_refuse() {
            ways.push("--keep-edited rewinds the rest and keeps what was edited");
        }
        if self.preview.touched > self.asked.limit() {
            ways.push("a higher --limit lets it touch so many paths");
        }
        if !self.planned.half.conflicts.is_empty() {
            ways.push(if self.planned.past.target.cluster.is_none() {
                "--database keep rewinds the files alone"
            } else {
                "--database discard takes rows of others back too (the safety checkpoint has them), --database keep rewinds the files alone"
            });
        }
        (!ways.is_empty()).then(|| ways.join("; "))
    }

    fn edits_refuse(&self) -> bool {
        !self.asked.keep_edited() && self.preview.paths.iter().any(|path| path.verdict.is_kept())
    }

    /// Fails where it is refused.
    pub(super) fn check(&self) -> Result<()> {
        let RewindPreview { refused, paths, session, id, .. } = &self.preview;
        let Some(first) = refused.first() else { return Ok(()) };
        let kept: Vec<String> =
            paths.iter().filter(|path| path.verdict.is_kept()).map(|path| format!("{}: {}", path.verdict.words(), path.path)).collect();
        let more = refused.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let error = Error::new(ErrorKind::Edited, format!("nothing was rewound: {first}{more}"))
            .with("session", session)
            .with("plan", id)
            .with("refused", refused.join("; "));
        let hint = format!("look at it with --dry-run; {}", self.way_out().unwrap_or_default());
        Err(if kept.is_empty() { error } else { error.with("kept", kept.join("\n")) }.hint(hint))
    }

    /// Neither a path nor the database would be touched by this rewind. A redo always counts: it puts turns in force again.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(self.asked, Asked::Rewind(_)) && self.preview.touched == 0 && self.preview.database != DatabaseFate::Replace
    }
}

/// A plan with what applying it needs.
#[derive(Debug)]
pub(in crate::project) struct Planned {
    pub(super) past: Past,
    pub(super) files: files::RewindPlan,
    pub(super) half: Half,
    /// The paths that were named.
    paths: Option<Vec<Vec<u8>>>,
}

impl Planned {
    pub(super) fn make(project: &Project, asked: &Asked, control: &Control) -> Result<Self> {
        let (past, half) = Self::frame(project, asked)?;
        let scope = Self::scope(project, &past)?;
        let mut cache = StatCache::load(&project.folder.stat_cache());
        let disk = files::disk_state(&scope.existing(), &mut cache, control)?;
        let files = Self::files(project, &past, asked, &disk, control)?;
        Ok(Self { past, files, half, paths: named(project, asked)? })
    }

    /// All but the files.
    pub(super) fn frame(project: &Project, asked: &Asked) -> Result<(Past, Half)> {
        let past = Past::find(project, asked)?;
        let half = Half::of(&past, project.database()?.as_ref(), asked.database(), asked.paths().is_some())?;
        Ok((past, half))
    }

    /// Whether the timeline and the database are what this plan saw.
    pub(super) fn stands(&self, past: &Past, half: &Half) -> bool {
        Self::frame_id(&self.past, &self.half) == Self::frame_id(past, half)
    }

    /// The files again, of a disk that was captured meanwhile.
    pub(super) fn files(project: &Project, past: &Past, asked: &Asked, disk: &DiskState, control: &Control) -> Result<files::RewindPlan> {
        let (target, steps) = past.snapshots(project)?;
        let paths = named(project, asked)?;
        let reader = project.store.reader(control)?;
        let claimed = &past.claimed;
        let request = RewindRequest { reader: &reader, target: &target, steps: &steps, claimed, disk, paths: paths.as_deref() };
        files::plan_rewind(&request, control)
    }

    fn scope(project: &Project, past: &Past) -> Result<Scope> {
        let scope = project.scope_in(files_of(&past.target)?)?;
        Ok(project.scope_with(scope.source, scope.exclude))
    }

    /// A hash of all it saw.
    pub(super) fn id(&self) -> String {
        let mut hash = blake3::Hasher::new();
        hash.update(&Self::frame_id(&self.past, &self.half));
        hash.update(format!("{:?}", self.paths).as_bytes());
        hash.update(&self.files.id);
        hash.finalize().to_hex().to_string()
    }

    fn frame_id(past: &Past, half: &Half) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        let mut text = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        text(&past.record.what);
        text(&past.target.id);
        for edges in &past.steps {
            text(&edges.before.id);
            text(&edges.after.id);
        }
        for window in &past.record.windows {
            text(window);
        }
        for path in &past.claimed {
            text(&crate::report::escape(path));
        }
        text(&format!("{half:?}"));
        *hash.finalize().as_bytes()
    }

    pub(super) fn preview(&self, asked: &Asked, notices: &[String]) -> RewindPreview {
        let record = &self.past.record;
        let touched = self.files.touched();
        let conflict = self.files.is_in_conflict();
        let mut refused = Vec::new();
        let kept = self.files.items.iter().filter(|item| item.verdict.is_kept());
        if !asked.keep_edited() {
            refused.extend(kept.map(|item| format!("{}: {}", crate::report::escape(&item.path), item.verdict.words())));
        }
        if touched > asked.limit() {
            refused.push(format!("{touched} paths would be touched, more than the limit of {}", asked.limit()));
        }
        refused.extend(self.half.conflicts.iter().cloned());
        let mut warnings = [notices, &self.past.warnings].concat();
        if self.half.fate == DatabaseFate::Replace {
            warnings.push("rows are not compared yet: the database counts as changed, since its mark is another one".to_owned());
        }
        if self.half.fate == DatabaseFate::Keep {
            warnings.push("a partial rewind: the database stays as it is".to_owned());
        }
        if let (Some(_), DatabaseChoice::Discard, DatabaseFate::Keep) = (asked.paths(), asked.database(), self.half.fate) {
            warnings.push("--database discard does nothing where paths are named".to_owned());
        }
        for path in self.paths.iter().flatten() {
            let below = |item: &files::PlanItem| Path::new(OsStr::from_bytes(&item.path)).starts_with(OsStr::from_bytes(path));
            if !self.files.items.iter().any(below) {
                warnings.push(format!("the turns changed nothing at or below {}", crate::report::escape(path)));
            }
        }
        RewindPreview {
            id: self.id(),
            what: record.what.clone(),
            session: record.session.clone(),
            turns: record.turns.clone(),
            target: self.past.target.id.clone(),
            paths: self.files.items.iter().map(PathVerdict::of).collect(),
            touched,
            database: self.half.fate,
            partial: self.half.fate == DatabaseFate::Keep || conflict || asked.paths().is_some(),
            refused,
            warnings,
        }
    }

    /// Whether the database is put back.
    pub(in crate::project) fn replaces_database(&self, database: Option<&Database>) -> bool {
        database.is_some() && self.half.fate == DatabaseFate::Replace
    }
}

fn named(project: &Project, asked: &Asked) -> Result<Option<Vec<Vec<u8>>>> {
    asked.paths().map(|paths| paths.iter().map(|path| project.inside_of(path)).collect()).transpose()
}
