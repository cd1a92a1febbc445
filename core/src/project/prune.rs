//! Forgetting checkpoints and freeing what nothing needs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use super::database::Database;
use super::record::{Folder, ProjectRecord};
use super::{CheckpointInfo, Project, identity};
use crate::error::{ErrorKind, Result};
use crate::progress::Control;
use crate::store::{PruneOptions, Ref, RefKind};
use crate::sys::fs::{self, Syncs};

/// What was, or would be, forgotten.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForgetReport {
    /// It was done.
    pub applied: bool,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// What was, or would be, removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PruneReport {
    /// It was done.
    pub applied: bool,
    /// Safety checkpoints of this project that go.
    pub safety: Vec<CheckpointInfo>,
    /// Old clusters and leftovers of this project's branch that go.
    pub clusters: Vec<String>,
    /// Worktrees that are gone, whose state goes: (project id, worktree).
    pub orphans: Vec<(String, std::path::PathBuf)>,
    /// Packs removed. A preview counts only what is unneeded already, not what going checkpoints would free.
    pub packs: u64,
    /// Bytes freed; see `packs`.
    pub bytes: u64,
}

impl Project {
    /// Forgets checkpoints by name or id prefix; without `apply` only tells. One that a branch still stands on (`fork --at`) stays readable there: forks are copies.
    ///
    /// # Errors
    /// As [`Project::show`], and then nothing is forgotten; `Busy`, `RecoveryNeeded`.
    pub fn forget(&self, checkpoints: &[String], apply: bool, control: &Control) -> Result<ForgetReport> {
        let _alone = apply.then(|| self.alone("forget", control)).transpose()?;
        if apply {
            self.check_no_journal()?;
        }
        let mut refs: Vec<Ref> = Vec::new();
        for checkpoint in checkpoints {
            let reference = self.resolve(checkpoint)?;
            if refs.iter().all(|known| known.id != reference.id) {
                refs.push(reference);
            }
        }
        if apply {
            self.remove_refs(&refs)?;
        }
        Ok(ForgetReport { applied: apply, checkpoints: refs.iter().map(CheckpointInfo::of).collect() })
    }

    /// Removes retained copies (safety checkpoints but the newest), leftovers and unneeded packs; without `apply` only tells.
    ///
    /// # Errors
    /// `Busy`, `RecoveryNeeded`; what was removed by then stays removed, and a second run goes on.
    pub fn prune(&self, apply: bool, control: &Control) -> Result<PruneReport> {
        let alone = apply.then(|| self.alone("prune", control)).transpose()?;
        if apply {
            self.check_no_journal()?;
        }
        let (refs, _) = self.refs()?;
        let mut safety: Vec<Ref> = refs.into_iter().filter(|reference| reference.kind == RefKind::Safety).collect();
        safety.pop();
        let database = self.database()?;
        let journal = self.journal()?;
        let clusters = match &database {
            // While a restore is pending its clusters are no leftovers.
            Some(database) if journal.is_none() => database.leftovers()?,
            _ => Vec::new(),
        };
        let orphans = self.orphans()?;
        if apply {
            self.remove_refs(&safety)?;
            if let Some(database) = &database {
                clusters.iter().try_for_each(|cluster| database.discard(cluster))?;
            }
            fs::remove_tree(&self.folder.staging())?;
        }
        // One whose branch others stand on stays, and must not keep the rest from going.
        let removed = orphans.iter().filter(|_| apply).map(|orphan| self.remove_orphan(orphan, control)).fold(Ok(()), Result::and);
        let packs = self.store.prune(&PruneOptions { apply, ..PruneOptions::default() }, control)?;
        drop(alone);
        removed?;
        Ok(PruneReport {
            applied: apply,
            safety: safety.iter().map(CheckpointInfo::of).collect(),
            clusters,
            orphans: orphans.into_iter().map(|record| (record.id, record.root)).collect(),
            packs: packs.packs_removed,
            bytes: packs.bytes_removed,
        })
    }

    fn remove_refs(&self, refs: &[Ref]) -> Result<()> {
        for reference in refs {
            match self.store.remove_ref(&reference.id) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Other projects of this store whose worktree is gone, or is another project's now.
    fn orphans(&self) -> Result<Vec<ProjectRecord>> {
        let mut orphans = Vec::new();
        for name in fs::names(&self.store.projects())? {
            let Some(id) = name.to_str().filter(|id| super::checkpoints::is_id(id) && *id != self.record.id) else { continue };
            let folder = Folder::new(&self.store, id);
            if folder.intent().exists() {
                continue;
            }
            if let Ok(Some(record)) = ProjectRecord::load(&folder)
                && is_gone(&record, &self.environment)
            {
                orphans.push(record);
            }
        }
        Ok(orphans)
    }

    fn remove_orphan(&self, orphan: &ProjectRecord, control: &Control) -> Result<()> {
        let folder = Folder::new(&self.store, &orphan.id);
        if orphan.branch.is_some() {
            Database::remove_of_project(&self.store, &self.environment, &orphan.id, control)?;
        }
        let (refs, _) = self.store.refs()?;
        let theirs: Vec<Ref> = refs.into_iter().filter(|reference| reference.project.as_deref() == Some(&*orphan.id)).collect();
        self.remove_refs(&theirs)?;
        identity::forget_local(&orphan.root, &orphan.id, &self.environment)?;
        // Last, so that a prune that was killed finds it again.
        fs::remove_tree(folder.path())?;
        Syncs::new().folder(&self.store.projects())
    }
}

/// Whether nothing at the recorded place is this project any more. A place on a file system that is not mounted is not gone.
fn is_gone(record: &ProjectRecord, environment: &crate::Environment) -> bool {
    match std::fs::symlink_metadata(&record.root) {
        Ok(_) => match identity::look_up(&record.root, environment) {
            Ok(identity::Lookup::Bound(found)) => found.project != record.id,
            Ok(identity::Lookup::Unbound | identity::Lookup::Recreated(_)) => true,
            Err(_) => false,
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => nearest(&record.root).is_some_and(|dev| dev == record.folder.dev),
        Err(_) => false,
    }
}

/// Device of the nearest folder above that exists.
fn nearest(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|above| std::fs::metadata(above).ok()).map(|metadata| metadata.dev())
}
