//! Doing it: by the steps of a restore, whose target is the tree that the rewind leaves.

use std::time::Instant;

use serde::Serialize;

use super::asked::{Asked, DatabaseChoice};
use super::halves::DatabaseFate;
use super::history::JournalRewind;
use super::plan::{Planned, RewindPlan, RewindPreview};
use super::told::told;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, DiskState, Extent, InstallRequest, PlanItem};
use crate::progress::Control;
use crate::project::checkpoints::files_of;
use crate::project::journal::Journal;
use crate::project::pairing::{millis, millis_between};
use crate::project::restore::{Target, stuck};
use crate::project::work::Work;
use crate::project::{PathVerdict, Project, failpoint};
use crate::store::{EntryKind, Half, Ref, RefKind};
use crate::sys::fs::{self, Syncs};
use crate::timeline::{Rewind, What, records_of};

/// What a rewind did; the JSON shape of every surface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RewindReport {
    /// Id of this rewind; none where there was nothing to do, and nothing was recorded.
    pub id: Option<String>,
    /// What it was, in words.
    pub what: String,
    /// Session.
    pub session: String,
    /// Turns that were taken back (or, by a redo, are in force again), whose messages a host drops (or shows again).
    pub turns: Vec<String>,
    /// The rewind that this redo took back.
    pub undoes: Option<String>,
    /// The checkpoint that holds all that was there before.
    pub safety: Option<String>,
    /// The checkpoint of what is in place now.
    pub checkpoint: Option<String>,
    /// Every path that the turns changed, with what happened to it.
    pub paths: Vec<PathVerdict>,
    /// What happened to the database.
    pub database: DatabaseFate,
    /// Not all of what the turns did was taken back: the database or some paths were kept.
    pub partial: bool,
    /// A short text for the model whose turns they are.
    pub message: String,
    /// Milliseconds in which no client could reach the server.
    pub downtime_ms: u64,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Where displaced content that is in no checkpoint was kept.
    #[serde(serialize_with = "crate::report::optional_path")]
    pub kept: Option<std::path::PathBuf>,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

/// A rewind at work.
pub(in crate::project) struct Rewinding<'p> {
    asked: &'p Asked,
    planned: &'p Planned,
    preview: &'p RewindPreview,
    pub(in crate::project) record: JournalRewind,
    /// Ids of the checkpoints of what was there, and of what will be.
    pub(in crate::project) safety: String,
    pub(in crate::project) result: String,
}

impl RewindPlan<'_> {
    /// Does it, or fails where anything that the plan saw has moved. All that is there is first kept as a safety checkpoint, so it can
    /// be taken back by [`Project::redo`]. Interrupted, it is finished or rolled back by [`Project::recover`]. It cannot be
    /// cancelled after the selection. An edit that somebody makes meanwhile stays: its path is in the report as kept.
    ///
    /// # Errors
    /// `Edited` where it is refused, or where something moved; `Busy` names the turn or managed command that is open;
    /// `NoSpace`, `Corrupt`, `Permission`, `Command` (stop hook), `Cancelled`: everything is as before. `RecoveryNeeded`: it was
    /// selected and could not be put in place whole.
    pub fn apply(&self, control: &Control) -> Result<RewindReport> {
        self.project.apply_rewind(self, control)
    }

    /// As [`RewindPlan::apply`] of an earlier plan with this id: fails where this one saw something else.
    ///
    /// # Errors
    /// As [`RewindPlan::apply`].
    pub fn apply_if(&self, id: &str, control: &Control) -> Result<RewindReport> {
        if self.preview.id == id { self.apply(control) } else { Err(moved(&self.preview.id, None)) }
    }
}

impl Project {
    fn apply_rewind(&self, plan: &RewindPlan<'_>, control: &Control) -> Result<RewindReport> {
        let RewindPlan { asked, planned, preview, .. } = plan;
        let start = Instant::now();
        self.check_root()?;
        plan.check()?;
        let alone = self.alone(&preview.what, control)?;
        self.check_no_journal()?;
        self.check_no_open_turn()?;
        let (past, half) = Planned::frame(self, asked)?;
        if !planned.stands(&past, &half) {
            return Err(moved(&preview.id, None));
        }
        let nothing = plan.is_nothing();
        if nothing || half.fate == DatabaseFate::Replace {
            // The files are looked at once more when they are kept; a cluster is not made ready for a plan that does not stand.
            check(&planned.files, &Planned::make(self, asked, control)?.files, &preview.id)?;
        }
        if nothing {
            return Ok(nothing_done(preview, &planned.past.record, start));
        }
        let rewinding = Rewinding::new(self, asked, planned, preview)?;
        let database = self.database()?;
        let reference = rewinding.planned.past.target.clone();
        let half = files_of(&reference)?.clone();
        let target = Target { scope: self.scope_in(&half)?, files: half, reference };
        let replaces = rewinding.planned.replaces_database(database.as_ref());
        let mut work = Work::for_rewind(self, &target, database.as_ref(), &rewinding, replaces)?;
        if let Err(error) = work.up_to_selection(control) {
            return Err(work.give_up(error, control));
        }
        let finished = self.finish(&mut work.journal, &control.uncancellable()).map_err(|error| stuck(self, &work.journal, error))?;
        let journal = work.journal;
        let reachable = finished.reachable.unwrap_or_else(Instant::now);
        let downtime_ms = work.stopped_at.map_or(0, |stopped| millis_between(stopped, reachable));
        let fsyncs = work.syncs.count() + work.stored_fsyncs + finished.fsyncs;
        drop(alone);
        let mut warnings = [&preview.warnings, &work.warnings, &finished.warnings].map(Vec::as_slice).concat();
        self.start_app(&journal, &mut warnings);
        let items = done(&rewinding.planned.files.items, &finished.items);
        let paths: Vec<PathVerdict> = items.iter().map(PathVerdict::of).collect();
        let partial = preview.partial || items.iter().any(|item| item.verdict.is_kept());
        Ok(RewindReport {
            message: told(&rewinding.record, &paths, preview.database),
            id: Some(journal.id),
            what: preview.what.clone(),
            session: preview.session.clone(),
            turns: preview.turns.clone(),
            undoes: rewinding.record.undoes,
            safety: Some(rewinding.safety),
            checkpoint: Some(rewinding.result),
            paths,
            database: preview.database,
            partial,
            downtime_ms,
            total_ms: millis(start),
            fsyncs,
            kept: finished.kept,
            warnings,
        })
    }

    /// Fails while a turn is open: its tool may be changing files now.
    pub(in crate::project) fn check_no_open_turn(&self) -> Result<()> {
        let (timeline, _) = self.timeline()?;
        let Some(open) = timeline.open_windows().next() else { return Ok(()) };
        Err(Error::new(ErrorKind::Busy, format!("turn {} of session {} is open", open.turn, open.session))
            .with("session", &open.session)
            .with("turn", &open.turn)
            .hint("end it with `forklift project turn end`, or wait for its tool"))
    }

    /// Adds a rewind to the timeline, once it is in place; one that is there already is left.
    pub(in crate::project) fn record_rewind(&self, journal: &Journal, syncs: &Syncs, control: &Control) -> Result<()> {
        let Some(rewind) = &journal.rewind else { return Ok(()) };
        let mut log = self.timeline_log(&mut Vec::new(), control)?;
        if log.timeline().rewinds().any(|known| known.id == journal.id) {
            return Ok(());
        }
        let carried = self.store.find_ref(&journal.checkpoint).map(|reference| records_of(&reference)).unwrap_or_default();
        let next = log.timeline().last_number() + 1;
        match carried.into_iter().next_back().filter(|record| record.n == next) {
            Some(record) => log.append_record(record, Some(syncs)),
            None => log.append_synced(What::Rewound(event(journal, rewind)), syncs),
        }
    }
}

impl<'p> Rewinding<'p> {
    fn new(project: &Project, asked: &'p Asked, planned: &'p Planned, preview: &'p RewindPreview) -> Result<Self> {
        let timeline = project.timeline()?.0;
        let safety = crate::sys::id::sortable_after(timeline.newest_checkpoint().map(String::as_str))?;
        let result = crate::sys::id::sortable_after(Some(&safety))?;
        let mut record = planned.past.record.clone();
        let mut facts = serde_json::json!({ "plan": preview.id, "database": preview.database, "partial": preview.partial });
        if let (Some(all), Some(more)) = (facts.as_object_mut(), record.facts.as_object()) {
            all.extend(more.clone());
        }
        record.facts = facts;
        Ok(Self { asked, planned, preview, record, safety, result })
    }

    /// The checkpoint whose rows must be there still, where those of others are not to be discarded.
    pub(in crate::project) fn last_rows(&self) -> Option<&Ref> {
        let past = &self.planned.past;
        let last = past.steps.last().map_or(&past.target, |step| &step.after);
        (self.asked.database() != DatabaseChoice::Discard).then_some(last)
    }

    /// Once all that is there is in the safety checkpoint: looks whether that is what was planned for, makes the checkpoint of what
    /// will be there, and stages what has to be written. Gives the fsyncs.
    pub(in crate::project) fn settle(&self, project: &Project, journal: &Journal, safety: &Ref, control: &Control) -> Result<u64> {
        let before = files_of(safety)?;
        let disk = {
            let reader = project.store.reader(control)?;
            let entries = reader.manifest(&before.root)?.collect::<Result<Vec<_>>>()?;
            DiskState { entries, scope: project.scope_in(before)? }
        };
        let plan = Planned::files(project, &self.planned.past, self.asked, &disk, control)?;
        check(&self.planned.files, &plan, &self.preview.id)?;
        let session = project.store.session(control)?;
        let half = {
            let mut manifest = session.manifest();
            let (mut entries, mut bytes) = (0, 0);
            for entry in plan.merged(&disk.entries) {
                manifest.push(&entry)?;
                entries += 1;
                if let EntryKind::File { size, .. } = entry.kind {
                    bytes += size;
                }
            }
            Half { root: manifest.finish()?, entries, bytes, facts: before.facts.clone() }
        };
        let root = half.root;
        let log = project.timeline_log(&mut Vec::new(), control)?;
        let record = log.next(What::Rewound(event(journal, &self.record)));
        let cluster = if journal.replaces_database { self.planned.past.target.cluster.clone() } else { safety.cluster.clone() };
        let facts = serde_json::json!({ "rewind": self.record.what, crate::timeline::FACT: log.carried(&record)? });
        let session_name = Some(self.record.session.clone());
        let reference = Ref {
            id: self.result.clone(),
            kind: RefKind::Capture,
            session: session_name,
            files: Some(half),
            cluster,
            facts,
            ..safety.clone()
        };
        let fsyncs = session.commit(&reference)?.fsyncs;
        drop(log);
        failpoint::pass(&project.environment, "rewind-planned")?;
        let staging = project.folder.staging().join(&journal.id);
        fs::make_folder(&staging, 0o700)?;
        let reader = project.store.reader(control)?;
        let kept = project.folder.kept(&journal.id);
        let scope = project.scope_in(before)?;
        let request = InstallRequest {
            reader: &reader,
            scope: &scope,
            target: root,
            safety: before.root,
            staging: &staging,
            kept: &kept,
            extent: Extent::Differences,
        };
        files::stage(&request, control)?;
        failpoint::pass(&project.environment, "rewind-staged")?;
        Ok(fsyncs)
    }
}

/// The report of a rewind that left everything as it is, and no trace.
fn nothing_done(preview: &RewindPreview, record: &JournalRewind, start: Instant) -> RewindReport {
    RewindReport {
        id: None,
        what: preview.what.clone(),
        session: preview.session.clone(),
        turns: preview.turns.clone(),
        undoes: record.undoes.clone(),
        safety: None,
        checkpoint: None,
        paths: preview.paths.clone(),
        database: preview.database,
        partial: preview.partial,
        message: "There was nothing to rewind: the files are as they were.".to_owned(),
        downtime_ms: 0,
        total_ms: millis(start),
        fsyncs: 0,
        kept: None,
        warnings: preview.warnings.clone(),
    }
}

fn event(journal: &Journal, rewind: &JournalRewind) -> Rewind {
    Rewind {
        id: journal.id.clone(),
        session: rewind.session.clone(),
        turns: rewind.turns.clone(),
        windows: rewind.windows.clone(),
        before: journal.safety.clone(),
        after: journal.checkpoint.clone(),
        undoes: rewind.undoes.clone(),
        facts: rewind.facts.clone(),
    }
}

/// What was planned, with what became of it.
fn done(planned: &[PlanItem], installed: &[PlanItem]) -> Vec<PlanItem> {
    let mut items: std::collections::BTreeMap<&[u8], &PlanItem> = planned.iter().map(|item| (item.path.as_slice(), item)).collect();
    items.extend(installed.iter().map(|item| (item.path.as_slice(), item)));
    items.into_values().cloned().collect()
}

/// Fails where the files are not what was planned for.
fn check(planned: &files::RewindPlan, now: &files::RewindPlan, id: &str) -> Result<()> {
    if planned.id == now.id {
        return Ok(());
    }
    let other = now.items.iter().find(|item| !planned.items.contains(item)).or(planned.items.iter().find(|item| !now.items.contains(item)));
    Err(moved(id, other))
}

fn moved(id: &str, other: Option<&PlanItem>) -> Error {
    let other = other.map(|item| format!(", {} for one", crate::report::escape(&item.path))).unwrap_or_default();
    Error::new(ErrorKind::Edited, format!("nothing was rewound: what the plan saw has moved since{other}"))
        .with("plan", id)
        .hint("plan it again")
}
