//! Putting a pair back.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Project;
use super::checkpoints::files_of;
use super::database::Database;
use super::finish::Finished;
use super::journal::{Journal, recovery_needed};
use super::lock::{Alone, HolderKind};
use super::pairing::{millis, millis_between};
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, Scope, StatCache};
use crate::progress::Control;
use crate::report;
use crate::store::{Half, Ref};

/// How long a command that the stop hook has stopped may take to end.
const APP_PATIENCE: Duration = Duration::from_secs(10);

/// How to restore.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions {}

/// One path of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathVerdict {
    /// Relative path; a backslash as `\\`, bytes that are not UTF-8 and control characters as `\xNN`.
    pub path: String,
    /// What happens to it.
    pub verdict: files::Verdict,
}

impl PathVerdict {
    pub(super) fn of(item: &files::PlanItem) -> Self {
        Self { path: report::escape(&item.path), verdict: item.verdict }
    }
}

/// What a restore would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestorePlan {
    /// The checkpoint.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Every path that would be touched or needs a word.
    pub paths: Vec<PathVerdict>,
    /// Paths that stay as they are.
    pub unchanged: u64,
    /// What happens to the database: `none`, `replace`, `unchanged`.
    pub database: String,
    /// Clients that would be cut.
    pub clients: u32,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestoreReport {
    /// The checkpoint that is in place now.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// The checkpoint that holds what was replaced.
    pub safety: String,
    /// Every path that was touched or kept.
    pub paths: Vec<PathVerdict>,
    /// Paths that stay as they were.
    pub unchanged: u64,
    /// What happened to the database.
    pub database: String,
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

impl Project {
    /// What [`Project::restore`] would do; touches nothing.
    ///
    /// # Errors
    /// As [`Project::show`]; `RecoveryNeeded`, `Corrupt`.
    pub fn plan_restore(&self, checkpoint: &str, control: &Control) -> Result<RestorePlan> {
        self.check_root()?;
        self.check_no_journal()?;
        let target = Target::of(self, self.resolve(checkpoint)?)?;
        let mut warnings = self.notices().to_vec();
        let today = match self.scope() {
            Err(error) if error.kind() == ErrorKind::Config => {
                warnings.push(format!("the checkpoint's own paths are used, since {error}"));
                target.fresh_scope(self)
            }
            other => other?,
        };
        let reader = self.store.reader(control)?;
        let mut cache = StatCache::load(&self.folder.stat_cache());
        let plan = files::plan(&reader, &target.files.root, &target.scope, &today, &mut cache, control)?;
        let database = self.database()?;
        let replaces = target.replaces(database.as_ref())?;
        let clients = database.as_ref().map_or(Ok(0), Database::clients)?;
        Ok(RestorePlan {
            paths: plan.items.iter().map(PathVerdict::of).collect(),
            unchanged: plan.unchanged,
            database: verdict(database.as_ref(), replaces),
            clients,
            warnings,
            id: target.reference.id,
            name: target.reference.name,
        })
    }

    /// Makes the selected paths and the database exactly the checkpoint's; first keeps everything it replaces as a safety
    /// checkpoint. All or nothing: an interrupted one is finished or rolled back by [`Project::recover`]. It cannot be
    /// cancelled after the pair was selected.
    ///
    /// # Errors
    /// As [`Project::show`]; `Busy` names the managed command in the way, or the turn that is open; `NoSpace`, `Corrupt`, `PostgresMismatch`, `Command`
    /// (stop hook), `Cancelled`: everything is as before. `RecoveryNeeded`: the pair was selected and could not be put in place whole.
    pub fn restore(&self, checkpoint: &str, options: &RestoreOptions, control: &Control) -> Result<RestoreReport> {
        let RestoreOptions {} = options;
        let start = Instant::now();
        self.check_root()?;
        self.close_abandoned_windows(control)?;
        let (alone, stopped) = self.alone_without_app(checkpoint, control)?;
        let prepared = || {
            self.check_no_journal()?;
            self.check_no_open_turn()?;
            let target = Target::of(self, self.resolve(checkpoint)?)?;
            Ok((target, self.database()?))
        };
        let (target, database) = prepared().map_err(|error| app_stopped(error, stopped == Some(true)))?;
        let mut work = Work::new(self, &target, database.as_ref(), stopped).map_err(|error| app_stopped(error, stopped == Some(true)))?;
        if let Err(error) = work.up_to_selection(control) {
            return Err(work.give_up(error, control));
        }
        let finished = self.finish(&mut work.journal, &control.uncancellable()).map_err(|error| stuck(self, &work.journal, error))?;
        let journal = work.journal;
        let reachable = finished.reachable.unwrap_or_else(Instant::now);
        let downtime_ms = work.stopped_at.map_or(0, |stopped| millis_between(stopped, reachable));
        let fsyncs = work.syncs.count() + work.stored_fsyncs + finished.fsyncs;
        drop(alone);
        let mut warnings = [self.notices(), &work.warnings, &finished.warnings].concat();
        self.start_app(&journal, &mut warnings);
        let touched = finished.items.iter().filter(|item| matches!(item.verdict, files::Verdict::Restore | files::Verdict::Create)).count();
        Ok(RestoreReport {
            safety: journal.safety,
            paths: Finished::listed(&finished.items),
            unchanged: target.files.entries.saturating_sub(u64::try_from(touched).unwrap_or(u64::MAX)),
            database: verdict(database.as_ref(), journal.replaces_database),
            downtime_ms,
            total_ms: millis(start),
            fsyncs,
            kept: finished.kept,
            warnings,
            id: target.reference.id,
            name: target.reference.name,
        })
    }

    /// Takes the project alone. Where a managed command holds it and there is a stop hook, that is run first, with no lock held:
    /// what it stops, and what it calls, may need them. The second value is what it said, where it was run.
    fn alone_without_app(&self, checkpoint: &str, control: &Control) -> Result<(Alone, Option<bool>)> {
        let what = format!("restore {checkpoint}");
        let other = match self.try_alone(&what, control)? {
            Ok(alone) => return Ok((alone, None)),
            Err(other) => other,
        };
        let stop = self.configuration().ok().and_then(|configuration| configuration.hooks.stop);
        let Some(stop) = stop.filter(|_| other.kind == HolderKind::Run) else {
            return self.alone(&what, control).map(|alone| (alone, None));
        };
        // Nothing is stopped for a restore that cannot be.
        self.check_no_journal()?;
        self.check_no_open_turn()?;
        Target::of(self, self.resolve(checkpoint)?)?;
        let stopped = self.run_stop_hook(&stop)?;
        let patience = if stopped { APP_PATIENCE } else { Duration::ZERO };
        match self.alone_soon(&what, patience, control) {
            Ok(alone) => Ok((alone, Some(stopped))),
            Err(error) if stopped => Err(app_stopped(error.while_doing("the stop hook was run"), true)),
            Err(error) => Err(error.while_doing("the stop hook was run and says that the app did not run")),
        }
    }

    /// Runs the start hook where the app ran before.
    pub(super) fn start_app(&self, journal: &Journal, warnings: &mut Vec<String>) {
        if let Some(Err(error)) = journal.start_hook.as_deref().map(|command| self.run_start_hook(command)) {
            warnings.push(error.to_string());
        }
    }
}

/// The checkpoint to put back.
pub(super) struct Target {
    pub(super) reference: Ref,
    pub(super) files: Half,
    /// The scope it was captured under, with today's root.
    pub(super) scope: Scope,
}

impl Target {
    fn of(project: &Project, reference: Ref) -> Result<Self> {
        let files = files_of(&reference)?.clone();
        let scope = project.scope_in(&files)?;
        if project.record.branch.is_some() && reference.cluster.is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the checkpoint {} has no database, the project has one", reference.id),
            )
            .hint("restore a checkpoint that was captured with the database"));
        }
        Ok(Self { reference, files, scope })
    }

    /// The same selection without what that capture happened to leave out.
    pub(super) fn fresh_scope(&self, project: &Project) -> Scope {
        project.scope_with(self.scope.source.clone(), self.scope.exclude.clone())
    }

    pub(super) fn replaces(&self, database: Option<&Database>) -> Result<bool> {
        database.map_or(Ok(false), |database| database.can_be_left(&self.reference).map(|left| !left))
    }
}

fn verdict(database: Option<&Database>, replaces: bool) -> String {
    match (database, replaces) {
        (None, _) => "none",
        (Some(_), true) => "replace",
        (Some(_), false) => "unchanged",
    }
    .to_owned()
}

/// Says of a failed restore that its stop hook had stopped the app.
pub(super) fn app_stopped(error: Error, stopped: bool) -> Error {
    if !stopped {
        return error;
    }
    let hint = error.hint_text().map(|hint| format!("{hint}; ")).unwrap_or_default();
    error.hint(format!("{hint}the stop hook had stopped the app: start it yourself"))
}

pub(super) fn stuck(project: &Project, journal: &Journal, error: Error) -> Error {
    recovery_needed(&format!("the {} selected its pair and was not finished: {error}", journal.describe()), &project.root).because(error)
}
