//! The two ways out of a restore: finishing it after its selection, rolling it back before. Each step may have been done
//! already, so that both can be interrupted and run again.

use std::path::PathBuf;
use std::time::Instant;

use super::checkpoints::files_of;
use super::database::Database;
use super::journal::{Journal, State};
use super::restore::PathVerdict;
use super::{Project, failpoint};
use crate::error::{ErrorKind, Result};
use crate::files::{self, InstallRequest, PlanItem, Verdict};
use crate::progress::Control;
use crate::sys::fs::{self, Syncs};

/// What finishing did.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) items: Vec<PlanItem>,
    pub(super) fsyncs: u64,
    pub(super) kept: Option<PathBuf>,
    pub(super) warnings: Vec<String>,
    /// When clients could connect again.
    pub(super) reachable: Option<Instant>,
}

impl Finished {
    /// Paths for a report.
    pub(super) fn listed(items: &[PlanItem]) -> Vec<PathVerdict> {
        items.iter().filter(|item| item.verdict != Verdict::Unchanged).map(PathVerdict::of).collect()
    }
}

impl Project {
    /// Puts the selected pair in place.
    pub(super) fn finish(&self, journal: &mut Journal, control: &Control) -> Result<Finished> {
        let syncs = Syncs::new();
        let mut finished = Finished::default();
        let database = self.database()?.filter(|_| journal.touches_database());
        if journal.state != State::Installed {
            if let (Some(database), Some(cluster)) = (&database, &journal.new_cluster) {
                if database.current()? != *cluster {
                    database.hold(&journal.describe())?;
                    database.stop(control)?;
                    database.select(cluster)?;
                }
                self.pass("branch-selected")?;
            }
            self.install(journal, &mut finished, control)?;
            self.pass("files-installed")?;
            self.record_rewind(journal, &syncs, control)?;
            self.pass("rewind-recorded")?;
            journal.state = State::Installed;
            self.write_journal(journal, &syncs)?;
            self.pass("installed")?;
        }
        if let Some(database) = &database {
            database.release()?;
            self.pass("branch-released")?;
            start_again(database, journal, control, &mut finished.warnings);
            finished.reachable = Some(Instant::now());
            self.pass("server-started")?;
        }
        self.remove_journal(&syncs)?;
        self.pass("journal-removed")?;
        self.clean(database.as_ref(), journal, &mut finished);
        self.pass("cleaned")?;
        finished.fsyncs += syncs.count();
        Ok(finished)
    }

    /// Back to the old pair, of which nothing was touched. Gives warnings.
    pub(super) fn roll_back(&self, journal: &Journal, control: &Control) -> Result<Vec<String>> {
        let syncs = Syncs::new();
        let mut warnings = Vec::new();
        self.pass("rollback-started")?;
        let database = self.database()?.filter(|_| journal.touches_database());
        if let Some(database) = &database {
            // Also what a killed preparation had not told the journal: nobody else makes clusters for this branch meanwhile.
            for cluster in if journal.replaces_database { database.leftovers()? } else { Vec::new() } {
                database.discard(&cluster)?;
            }
        }
        self.pass("rollback-cluster-discarded")?;
        fs::remove_tree(&self.folder.staging())?;
        match self.store.remove_ref(&journal.safety) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => self.pass("rollback-safety-removed")?,
        }
        if journal.rewind.is_some() {
            match self.store.remove_ref(&journal.checkpoint) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => self.pass("rollback-rewind-removed")?,
            }
        }
        if let Some(database) = &database {
            database.release()?;
            self.pass("rollback-branch-released")?;
            start_again(database, journal, control, &mut warnings);
            self.pass("rollback-server-started")?;
        }
        self.remove_journal(&syncs)?;
        Ok(warnings)
    }

    fn install(&self, journal: &Journal, finished: &mut Finished, control: &Control) -> Result<()> {
        let target = self.store.find_ref(&journal.checkpoint)?;
        let safety = self.store.find_ref(&journal.safety)?;
        let half = files_of(&target)?;
        let kept = self.folder.kept(&journal.id);
        fs::make_folder(&kept, 0o700)?;
        let reader = self.store.reader(control)?;
        let request = InstallRequest {
            reader: &reader,
            scope: &self.scope_in(half)?,
            target: half.root,
            safety: files_of(&safety)?.root,
            staging: &self.folder.staging().join(&journal.id),
            kept: &kept,
            extent: if journal.rewind.is_some() { files::Extent::Differences } else { files::Extent::Whole },
        };
        let report = files::install(&request, control)?;
        finished.items = report.items;
        finished.warnings.extend(report.warnings);
        finished.fsyncs += report.fsyncs;
        Ok(())
    }

    /// Removes what is needed no more: the old cluster is in the safety checkpoint. What cannot be removed is a warning.
    fn clean(&self, database: Option<&Database>, journal: &Journal, finished: &mut Finished) {
        let mut warn = |what: &str, result: Result<()>| {
            if let Err(error) = result {
                finished.warnings.push(format!("{what} was not removed, `project prune` does it: {error}"));
            }
        };
        warn("the staging folder", fs::remove_tree(&self.folder.staging()));
        if let (Some(database), Some(old)) = (database, journal.old_cluster.as_deref()) {
            warn("the old cluster", database.discard(old));
        }
        let kept = self.folder.kept(&journal.id);
        if fs::names(&kept).is_ok_and(|names| !names.is_empty()) {
            finished.kept = Some(kept);
        } else {
            drop(fs::remove_tree(&kept));
        }
    }

    fn pass(&self, step: &'static str) -> Result<()> {
        failpoint::pass(&self.environment, step)
    }
}

/// Also publishes a server that runs hidden. The pair is in place whether the server starts or not, so a failure is a warning.
fn start_again(database: &Database, journal: &Journal, control: &Control, warnings: &mut Vec<String>) {
    if !journal.server_ran {
        return;
    }
    let started = if journal.replaces_database { database.start_marked(control) } else { database.start(control) };
    if let Err(error) = started {
        warnings.push(format!("the server did not start again, start it with `forklift branch start {}`: {error}", database.name()));
    }
}
