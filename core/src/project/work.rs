//! A restore up to the selection of its pair.

use std::time::Instant;

use super::configuration::Hooks;
use super::database::{Database, SAFETY_MODE};
use super::journal::{Journal, State, recovery_needed};
use super::pairing::PairRequest;
use super::record::FORMAT;
use super::restore::{Target, app_stopped, stuck};
use super::rewind::Rewinding;
use super::{Project, failpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, InstallRequest, StatCache};
use crate::progress::Control;
use crate::store::{Ref, RefKind, Session};
use crate::sys::fs::{self, Syncs};

/// A restore up to its selection.
pub(super) struct Work<'a> {
    project: &'a Project,
    target: &'a Target,
    database: Option<&'a Database>,
    /// It is a rewind: what is put back is known only when all that is there was kept.
    rewind: Option<&'a Rewinding<'a>>,
    hooks: Hooks,
    /// What the stop hook said, once it was run: whether the app ran and was stopped.
    stopped: Option<bool>,
    pub(super) journal: Journal,
    pub(super) syncs: Syncs,
    pub(super) stored_fsyncs: u64,
    pub(super) warnings: Vec<String>,
    /// When clients were cut, where the server ran.
    pub(super) stopped_at: Option<Instant>,
}

impl<'a> Work<'a> {
    pub(super) fn new(project: &'a Project, target: &'a Target, database: Option<&'a Database>, stopped: Option<bool>) -> Result<Self> {
        let replaces = target.replaces(database)?;
        Self::begin(project, target, database, stopped, replaces)
    }

    /// A rewind, which puts the target's database back where it `replaces` it, and else leaves the database alone.
    pub(super) fn for_rewind(
        project: &'a Project,
        target: &'a Target,
        database: Option<&'a Database>,
        rewind: &'a Rewinding<'a>,
        replaces: bool,
    ) -> Result<Self> {
        let mut work = Self::begin(project, target, database, None, replaces)?;
        work.rewind = Some(rewind);
        work.journal.checkpoint.clone_from(&rewind.result);
        work.journal.name = None;
        work.journal.safety.clone_from(&rewind.safety);
        work.journal.rewind = Some(rewind.record.clone());
        Ok(work)
    }

    fn begin(
        project: &'a Project,
        target: &'a Target,
        database: Option<&'a Database>,
        stopped: Option<bool>,
        replaces_database: bool,
    ) -> Result<Self> {
        let mut warnings = Vec::new();
        // A broken .forklift.json must not keep anyone from restoring a sound one.
        let hooks = match project.configuration() {
            Err(error) if error.kind() == ErrorKind::Config => {
                warnings.push(format!("no hooks were run, since {error}"));
                Hooks::default()
            }
            other => other?.hooks,
        };
        let journal = Journal {
            format: FORMAT,
            id: crate::sys::id::sortable()?,
            state: State::Preparing,
            checkpoint: target.reference.id.clone(),
            name: target.reference.name.clone(),
            started_ms: crate::sys::id::now_ms(),
            pid: std::process::id(),
            replaces_database,
            closes_database: false,
            old_cluster: database.map(Database::current).transpose()?,
            new_cluster: None,
            server_ran: false,
            start_hook: hooks.start.clone().filter(|_| stopped == Some(true)),
            safety: crate::sys::id::sortable()?,
            rewind: None,
        };
        let syncs = Syncs::new();
        let (rewind, stored_fsyncs, stopped_at) = (None, 0, None);
        Ok(Self { project, target, database, rewind, hooks, stopped, journal, syncs, stored_fsyncs, warnings, stopped_at })
    }

    pub(super) fn up_to_selection(&mut self, control: &Control) -> Result<()> {
        self.write(State::Preparing, "journal-written")?;
        self.prepare(control)?;
        self.write(State::Prepared, "prepared")?;
        control.check()?;
        self.stop(control)?;
        let safety = self.keep_what_is_there(control)?;
        if let Some(rewind) = self.rewind {
            self.stored_fsyncs += rewind.settle(self.project, &self.journal, &safety, control)?;
        }
        control.check()?;
        self.project.check_root()?;
        self.project.select(&self.journal, &self.syncs)?;
        self.pass("selected")
    }

    /// Makes everything new beside the old, so that a full disk or a damaged chunk is found while nothing is touched.
    fn prepare(&mut self, control: &Control) -> Result<()> {
        self.prepare_cluster(control)?;
        if self.rewind.is_some() {
            return Ok(());
        }
        let reader = self.project.store.reader(control)?;
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
            extent: files::Extent::Whole,
        };
        files::stage(&request, control)?;
        self.pass("files-staged")
    }

    fn prepare_cluster(&mut self, control: &Control) -> Result<()> {
        if let (Some(database), Some(half), true) = (self.database, &self.target.reference.cluster, self.journal.replaces_database) {
            let reader = self.project.store.reader(control)?;
            let (cluster, warnings) = database.materialise(&reader, &self.target.reference.id, half, control)?;
            self.journal.new_cluster = Some(cluster);
            self.warnings.extend(warnings);
        }
        self.pass("cluster-prepared")
    }

    fn stop(&mut self, control: &Control) -> Result<()> {
        if let Some(command) = self.hooks.stop.as_ref().filter(|_| self.stopped.is_none()) {
            let stopped = self.project.run_stop_hook(command)?;
            self.stopped = Some(stopped);
            self.journal.start_hook = self.hooks.start.clone().filter(|_| stopped);
            self.pass("app-stopped")?;
        }
        let Some(database) = self.database.filter(|_| self.rewind.is_none() || self.journal.replaces_database) else {
            return self.write(State::Stopping, "stopping");
        };
        if !self.journal.replaces_database && !self.close(database)? {
            // Somebody came or wrote since it was looked at first.
            self.journal.replaces_database = true;
            self.write(State::Preparing, "journal-written")?;
            self.open_again(database, control)?;
            self.prepare_cluster(control)?;
            self.write(State::Prepared, "prepared")?;
            control.check()?;
        }
        if !self.journal.replaces_database {
            return Ok(());
        }
        self.hold(database)?;
        if let Some(last) = self.rewind.and_then(Rewinding::last_rows)
            && !database.shut_out(last, self.journal.server_ran)?
        {
            return Err(Error::new(ErrorKind::Edited, "nothing was rewound: rows were changed since it was planned").hint("plan it again"));
        }
        database.stop(control)?;
        self.pass("server-stopped")
    }

    /// Nobody starts the branch from here on but this restore, or its recovery.
    fn hold(&mut self, database: &Database) -> Result<()> {
        self.journal.server_ran = database.is_running()?;
        self.write(State::Stopping, "stopping")?;
        database.hold(&self.journal.describe())?;
        self.pass("branch-held")?;
        if self.journal.server_ran {
            self.stopped_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Closes the branch to everybody until the files are in place; whether its database can be left as it is.
    fn close(&mut self, database: &Database) -> Result<bool> {
        self.journal.closes_database = true;
        self.hold(database)?;
        let closed = database.close_at(&self.target.reference, self.journal.server_ran)?;
        self.pass("branch-closed")?;
        Ok(closed)
    }

    /// Clients may connect while a cluster is made ready after all.
    fn open_again(&mut self, database: &Database, control: &Control) -> Result<()> {
        database.release()?;
        if self.journal.server_ran {
            database.start(&control.uncancellable())?;
        }
        self.stopped_at = None;
        Ok(())
    }

    /// The safety checkpoint: all that the checkpoint's scope covers, and the cluster.
    fn keep_what_is_there(&mut self, control: &Control) -> Result<Ref> {
        let project = self.project;
        let refs = if self.database.is_some() { project.refs()?.0 } else { Vec::new() };
        let newest = refs.iter().rev().find(|reference| reference.cluster.is_some());
        let replaces = self.journal.replaces_database || self.rewind.is_some();
        let previous = if replaces { newest } else { Some(&self.target.reference) };
        let scope = self.target.fresh_scope(project);
        // What goes away must be readable, not only indexed.
        let session = project.store.verifying_session(control)?;
        let previous = if replaces { readable(previous, &session)? } else { previous };
        let mut cache = StatCache::load(&project.folder.stat_cache());
        let existing = scope.existing();
        let request = PairRequest { scope: &existing, database: self.database, mode: SAFETY_MODE, previous, check_moves: false };
        let mut pair = request.take(&session, &mut cache, control)?;
        // A selected path that is gone is gone, not out of its scope.
        if let Some(recorded) = pair.files.half.facts.get_mut("scope") {
            recorded["source"] = serde_json::json!(scope.source);
        }
        if !replaces && pair.cluster.as_ref().is_some_and(|cluster| cluster.mode != "unchanged") {
            return Err(
                Error::new(ErrorKind::Busy, "a client wrote to the database while the restore was being prepared").hint("try again")
            );
        }
        let mut facts = pair.facts();
        if let Some(facts) = facts.as_object_mut() {
            let (what, of) = match self.rewind {
                Some(rewind) => ("before", &rewind.record.what),
                None => ("before_restore_of", &self.target.reference.id),
            };
            facts.insert(what.to_owned(), serde_json::json!(of));
        }
        let reference = project.reference(RefKind::Safety, self.journal.safety.clone(), None, &pair, facts)?;
        self.stored_fsyncs = session.commit(&reference)?.fsyncs;
        project.save_cache(&cache, &mut self.warnings);
        self.pass("safety-captured")?;
        Ok(reference)
    }

    /// After a failure: back to what was there, unless the pair was selected after all.
    pub(super) fn give_up(&self, error: Error, control: &Control) -> Error {
        let rolled_back = match self.project.is_selected(&self.journal) {
            Ok(true) => return stuck(self.project, &self.journal, error),
            Ok(false) => self.project.roll_back(&self.journal, &control.uncancellable()),
            Err(unknown) => Err(unknown),
        };
        match rolled_back {
            Ok(_) => app_stopped(error, self.stopped == Some(true)),
            Err(second) => recovery_needed(&format!("{error}; then rolling back failed: {second}"), &self.project.root).because(error),
        }
    }

    fn write(&mut self, state: State, step: &'static str) -> Result<()> {
        self.journal.state = state;
        if state == State::Stopping {
            self.project.begin_selection(&self.syncs)?;
        }
        self.project.write_journal(&self.journal, &self.syncs)?;
        self.pass(step)
    }

    fn pass(&self, step: &'static str) -> Result<()> {
        failpoint::pass(&self.project.environment, step)
    }
}

/// The checkpoint, if its cluster can be read whole and so may stand for the one that goes away.
fn readable<'a>(reference: Option<&'a Ref>, session: &Session) -> Result<Option<&'a Ref>> {
    let Some(half) = reference.and_then(|reference| reference.cluster.as_ref()) else { return Ok(None) };
    Ok(if session.has_all(half)? { reference } else { None })
}
