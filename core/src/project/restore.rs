//! Putting a pair back.

use std::time::Instant;

use serde::Serialize;

use super::checkpoints::files_of;
use super::configuration::Hooks;
use super::database::{Database, SAFETY_MODE};
use super::finish::Finished;
use super::journal::{Journal, State, recovery_needed};
use super::pairing::{PairRequest, millis, millis_between};
use super::record::FORMAT;
use super::{Project, failpoint, paths};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, InstallRequest, Scope, StatCache};
use crate::progress::Control;
use crate::store::{Half, Ref, RefKind};
use crate::sys::fs::{self, Syncs};

/// How to restore.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions {}

/// What a restore would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestorePlan {
    /// The checkpoint.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Every path that would be touched or needs a word: (path, verdict).
    pub paths: Vec<(String, crate::files::Verdict)>,
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
    pub paths: Vec<(String, crate::files::Verdict)>,
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
        let clients = database.as_ref().filter(|_| replaces).map_or(Ok(0), Database::clients)?;
        Ok(RestorePlan {
            paths: plan.items.iter().map(|item| (paths::display(&item.path), item.verdict)).collect(),
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
    /// As [`Project::show`]; `Busy` names the managed command in the way; `NoSpace`, `Corrupt`, `PostgresMismatch`, `Command`
    /// (stop hook), `Cancelled`: everything is as before. `RecoveryNeeded`: the pair was selected and could not be put in place whole.
    pub fn restore(&self, checkpoint: &str, options: &RestoreOptions, control: &Control) -> Result<RestoreReport> {
        let RestoreOptions {} = options;
        let start = Instant::now();
        self.check_root()?;
        let alone = self.alone(&format!("restore {checkpoint}"), control)?;
        self.check_no_journal()?;
        let target = Target::of(self, self.resolve(checkpoint)?)?;
        let database = self.database()?;
        let mut work = Work::new(self, &target, database.as_ref())?;
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

    /// Runs the start hook where the app ran before.
    pub(super) fn start_app(&self, journal: &Journal, warnings: &mut Vec<String>) {
        if let Some(Err(error)) = journal.start_hook.as_deref().map(|command| self.run_start_hook(command)) {
            warnings.push(error.to_string());
        }
    }
}

/// The checkpoint to put back.
struct Target {
    reference: Ref,
    files: Half,
    /// The scope it was captured under, with today's root.
    scope: Scope,
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
    fn fresh_scope(&self, project: &Project) -> Scope {
        project.scope_with(self.scope.source.clone(), self.scope.exclude.clone())
    }

    fn replaces(&self, database: Option<&Database>) -> Result<bool> {
        database.map_or(Ok(false), |database| database.is_at(&self.reference).map(|same| !same))
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

fn stuck(project: &Project, journal: &Journal, error: Error) -> Error {
    recovery_needed(&format!("the {} selected its pair and was not finished: {error}", journal.describe()), &project.root).because(error)
}

/// A restore up to its selection.
struct Work<'a> {
    project: &'a Project,
    target: &'a Target,
    database: Option<&'a Database>,
    hooks: Hooks,
    journal: Journal,
    syncs: Syncs,
    stored_fsyncs: u64,
    warnings: Vec<String>,
    /// When clients were cut, where the server ran.
    stopped_at: Option<Instant>,
}

impl<'a> Work<'a> {
    fn new(project: &'a Project, target: &'a Target, database: Option<&'a Database>) -> Result<Self> {
        let mut warnings = Vec::new();
        // A broken .forklift.json must not keep anyone from restoring a sound one.
        let hooks = match project.configuration() {
            Err(error) if error.kind() == ErrorKind::Config => {
                warnings.push(format!("no hooks were run, since {error}"));
                Hooks::default()
            }
            other => other?.hooks,
        };
        let replaces_database = target.replaces(database)?;
        let journal = Journal {
            format: FORMAT,
            id: crate::sys::id::sortable()?,
            state: State::Preparing,
            checkpoint: target.reference.id.clone(),
            name: target.reference.name.clone(),
            started_ms: crate::sys::id::now_ms(),
            pid: std::process::id(),
            replaces_database,
            old_cluster: database.map(Database::current).transpose()?,
            new_cluster: None,
            server_ran: false,
            start_hook: None,
            safety: crate::sys::id::sortable()?,
        };
        Ok(Self { project, target, database, hooks, journal, syncs: Syncs::new(), stored_fsyncs: 0, warnings, stopped_at: None })
    }

    fn up_to_selection(&mut self, control: &Control) -> Result<()> {
        self.write(State::Preparing, "journal-written")?;
        self.prepare(control)?;
        self.write(State::Prepared, "prepared")?;
        control.check()?;
        self.stop(control)?;
        self.keep_what_is_there(control)?;
        control.check()?;
        self.project.check_root()?;
        self.project.select(&self.journal, &self.syncs)?;
        self.pass("selected")
    }

    /// Makes everything new beside the old, so that a full disk or a damaged chunk is found while nothing is touched.
    fn prepare(&mut self, control: &Control) -> Result<()> {
        let reader = self.project.store.reader(control)?;
        if let (Some(database), Some(half), true) = (self.database, &self.target.reference.cluster, self.journal.replaces_database) {
            let (cluster, warnings) = database.materialise(&reader, &self.target.reference.id, half, control)?;
            self.journal.new_cluster = Some(cluster);
            self.warnings.extend(warnings);
        }
        self.pass("cluster-prepared")?;
        let staging = self.project.folder.staging().join(&self.journal.id);
        fs::make_folder(&staging, 0o700)?;
        let request = InstallRequest {
            reader: &reader,
            scope: &self.target.scope,
            target: self.target.files.root,
            // Staging displaces nothing.
            safety: self.target.files.root,
            staging: &staging,
            kept: &self.project.folder.kept(&self.journal.id),
        };
        files::stage(&request, control)?;
        self.pass("files-staged")
    }

    fn stop(&mut self, control: &Control) -> Result<()> {
        if let Some(command) = self.hooks.stop.clone() {
            if self.project.run_stop_hook(&command)? {
                self.journal.start_hook.clone_from(&self.hooks.start);
            }
            self.pass("app-stopped")?;
        }
        let database = self.database.filter(|_| self.journal.replaces_database);
        self.journal.server_ran = database.map_or(Ok(false), Database::is_running)?;
        self.write(State::Stopping, "stopping")?;
        let Some(database) = database else { return Ok(()) };
        database.hold(&self.journal.describe())?;
        self.pass("branch-held")?;
        if self.journal.server_ran {
            self.stopped_at = Some(Instant::now());
        }
        database.stop(control)?;
        self.pass("server-stopped")
    }

    /// The safety checkpoint: all that the checkpoint's scope covers, and the cluster.
    fn keep_what_is_there(&mut self, control: &Control) -> Result<()> {
        let project = self.project;
        let (refs, _) = project.refs()?;
        let newest = refs.iter().rev().find(|reference| reference.cluster.is_some());
        let previous = if self.journal.replaces_database { newest } else { Some(&self.target.reference) };
        let scope = self.target.fresh_scope(project);
        let session = project.store.session(control)?;
        let mut cache = StatCache::load(&project.folder.stat_cache());
        let request = PairRequest { scope: &scope, database: self.database, mode: SAFETY_MODE, previous, check_moves: false };
        let pair = request.take(&session, &mut cache, control)?;
        if !self.journal.replaces_database && pair.cluster.as_ref().is_some_and(|cluster| cluster.mode != "unchanged") {
            return Err(
                Error::new(ErrorKind::Busy, "a client wrote to the database while the restore was being prepared").hint("try again")
            );
        }
        let mut facts = pair.facts();
        if let Some(facts) = facts.as_object_mut() {
            facts.insert("before_restore_of".to_owned(), serde_json::json!(self.target.reference.id));
        }
        let reference = project.reference(RefKind::Safety, self.journal.safety.clone(), None, &pair, facts)?;
        self.stored_fsyncs = session.commit(&reference)?.fsyncs;
        project.save_cache(&cache, &mut self.warnings);
        self.pass("safety-captured")
    }

    /// After a failure: back to what was there, unless the pair was selected after all.
    fn give_up(&self, error: Error, control: &Control) -> Error {
        let rolled_back = match self.project.is_selected(&self.journal) {
            Ok(true) => return stuck(self.project, &self.journal, error),
            Ok(false) => self.project.roll_back(&self.journal, &control.uncancellable()),
            Err(unknown) => Err(unknown),
        };
        match rolled_back {
            Ok(_) if self.journal.start_hook.is_some() => {
                let hint = error.hint_text().map(|hint| format!("{hint}; ")).unwrap_or_default();
                error.hint(format!("{hint}the stop hook had stopped the app: start it yourself"))
            }
            Ok(_) => error,
            Err(second) => recovery_needed(&format!("{error}; then rolling back failed: {second}"), &self.project.root).because(error),
        }
    }

    fn write(&mut self, state: State, step: &'static str) -> Result<()> {
        self.journal.state = state;
        self.project.write_journal(&self.journal, &self.syncs)?;
        self.pass(step)
    }

    fn pass(&self, step: &'static str) -> Result<()> {
        failpoint::pass(&self.project.environment, step)
    }
}
