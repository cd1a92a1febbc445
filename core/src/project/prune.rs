//! Forgetting checkpoints and freeing what nothing needs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::database::Database;
use super::record::{Folder, ProjectRecord};
use super::{CheckpointInfo, Project, identity};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::{PruneOptions, Ref, RefKind};
use crate::sys::fs::{self, Syncs};
use crate::timeline::Window;

/// What was, or would be, forgotten.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForgetReport {
    /// It was done.
    pub applied: bool,
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Windows of turns that stand on one of them: they can then not be taken back.
    pub windows: Vec<Window>,
}

/// What was, or would be, removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PruneReport {
    /// It was done.
    pub applied: bool,
    /// Safety checkpoints of this project that go.
    pub safety: Vec<CheckpointInfo>,
    /// Those that stay, since a rewind of turns stands on them: what it took back could not be had again.
    pub kept: Vec<CheckpointInfo>,
    /// Old clusters and leftovers of this project's branch that go.
    pub clusters: Vec<String>,
    /// Bytes on disk of those and of the clusters of orphans, counting blocks that are shared with others in full.
    pub cluster_bytes: u64,
    /// Bytes on disk of the clones that are kept to speed up the next capture, counting blocks that are shared with the cluster in full.
    /// They go; `bytes` has none of them, as mostly the cluster keeps the blocks.
    pub kept_bytes: u64,
    /// Other projects of this store whose worktree was not found. Only those that were named go.
    pub orphans: Vec<PruneOrphan>,
    /// Packs that go: of which nothing is needed, or that are rewritten.
    pub packs: u64,
    /// New packs for what is needed of those that are rewritten.
    pub packs_written: u64,
    /// Bytes that this frees: of packs and clusters that go, less those of new packs. Those of packs lie in the trash until the next prune
    /// unless the disk is short of space.
    pub bytes: u64,
    /// Bytes of the trash of earlier prunes, freed too.
    pub trash_emptied: u64,
}

/// The state of a project whose worktree was not found at its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PruneOrphan {
    /// Project id.
    pub id: String,
    /// Where the worktree was.
    #[serde(serialize_with = "crate::report::path")]
    pub root: PathBuf,
    /// Name of its branch, where it has one.
    pub branch: Option<String>,
    /// Its checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
    /// It was named, so it goes.
    pub goes: bool,
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
        let (timeline, _) = self.timeline()?;
        let gone = |id: &Option<String>| id.as_ref().is_some_and(|id| refs.iter().any(|reference| reference.id == *id));
        let windows = timeline.windows().iter().filter(|window| gone(&window.start) || gone(&window.end)).cloned().collect();
        if apply {
            self.remove_refs(&refs)?;
        }
        Ok(ForgetReport { applied: apply, checkpoints: refs.iter().map(CheckpointInfo::of).collect(), windows })
    }

    /// Removes retained copies (safety checkpoints but the newest, and but those that rewinds of turns stand on), leftovers, kept clones and
    /// unneeded packs; without `apply` only tells, and the figures are those of an apply now.
    ///
    /// Other projects of the store whose worktree was not found are listed; of these only the ones named by id in `orphans`
    /// go, with their branch and all checkpoints. A worktree that was moved, is not mounted, or belongs to another account
    /// looks the same as one that is gone, so nothing else decides.
    ///
    /// # Errors
    /// `NotFound` where an id in `orphans` is none of those; `Busy`, `RecoveryNeeded`, also of such a project. What was
    /// removed by then stays removed, and a second run goes on.
    pub fn prune(&self, apply: bool, orphans: &[String], control: &Control) -> Result<PruneReport> {
        let alone = apply.then(|| self.alone("prune", control)).transpose()?;
        if apply {
            self.check_no_journal()?;
        }
        let (refs, _) = self.refs()?;
        let mut safety: Vec<Ref> = refs.into_iter().filter(|reference| reference.kind == RefKind::Safety).collect();
        safety.pop();
        let (timeline, _) = self.timeline()?;
        let (kept, safety): (Vec<Ref>, Vec<Ref>) = safety.into_iter().partition(|reference| timeline.needs(&reference.id));
        let database = self.database()?;
        let journal = self.journal()?;
        let clusters = match &database {
            // While a restore is pending its clusters are no leftovers.
            Some(database) if journal.is_none() => database.leftovers()?,
            _ => Vec::new(),
        };
        let found = self.orphans()?;
        if let Some(unknown) = orphans.iter().find(|id| found.iter().all(|orphan| orphan.id != **id)) {
            return Err(Error::new(ErrorKind::NotFound, format!("{unknown} is no project of this store whose worktree is gone"))
                .with("project", unknown)
                .hint("`forklift project prune` lists those that there are"));
        }
        let goes = |orphan: &ProjectRecord| orphans.contains(&orphan.id);
        let described = found.iter().map(|orphan| self.describe_orphan(orphan, goes(orphan))).collect::<Result<Vec<_>>>()?;
        let orphans: Vec<&ProjectRecord> = found.iter().filter(|orphan| goes(orphan)).collect();
        let mut cluster_bytes = 0;
        if let Some(database) = &database {
            cluster_bytes += clusters.iter().map(|cluster| database.cluster_bytes(cluster)).sum::<u64>();
        }
        for orphan in orphans.iter().filter(|orphan| orphan.branch.is_some()) {
            cluster_bytes += Database::bytes_of_project(&self.store, &self.environment, &orphan.id)?;
        }
        let going = safety.iter().map(|reference| reference.id.clone());
        let without = going
            .chain(described.iter().filter(|orphan| orphan.goes).flat_map(|orphan| orphan.checkpoints.iter().map(|info| info.id.clone())))
            .collect();
        let kept_bytes = database.as_ref().map_or(0, Database::kept_bytes);
        if apply {
            self.remove_refs(&safety)?;
            if let Some(database) = &database {
                database.forget_kept()?;
                clusters.iter().try_for_each(|cluster| database.discard(cluster))?;
            }
            fs::remove_tree(&self.folder.staging())?;
        }
        // One whose branch others stand on stays, and must not keep the rest from going.
        let removed = orphans.iter().filter(|_| apply).map(|orphan| self.remove_orphan(orphan, control)).fold(Ok(()), Result::and);
        let packs = self.store.prune(&PruneOptions { apply, without, ..PruneOptions::default() }, control)?;
        drop(alone);
        removed?;
        Ok(PruneReport {
            applied: apply,
            safety: safety.iter().map(CheckpointInfo::of).collect(),
            kept: kept.iter().map(CheckpointInfo::of).collect(),
            clusters,
            cluster_bytes,
            kept_bytes,
            orphans: described,
            packs: packs.packs_removed + packs.packs_rewritten,
            packs_written: packs.packs_written,
            bytes: (packs.bytes_removed + packs.bytes_rewritten + cluster_bytes).saturating_sub(packs.bytes_written),
            trash_emptied: packs.trash_emptied,
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

    fn describe_orphan(&self, orphan: &ProjectRecord, goes: bool) -> Result<PruneOrphan> {
        let branch = orphan.branch.as_deref().map(|branch| Database::open(&self.store, &self.environment, branch));
        let branch = match branch {
            Some(Err(error)) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => None,
            other => other.transpose()?.map(|database| database.name().to_owned()),
        };
        let checkpoints = self.refs_of(&orphan.id)?.iter().map(CheckpointInfo::of).collect();
        Ok(PruneOrphan { id: orphan.id.clone(), root: orphan.root.clone(), branch, checkpoints, goes })
    }

    fn refs_of(&self, project: &str) -> Result<Vec<Ref>> {
        let (mut refs, _) = self.store.refs()?;
        refs.retain(|reference| reference.project.as_deref() == Some(project));
        Ok(refs)
    }

    fn remove_orphan(&self, orphan: &ProjectRecord, control: &Control) -> Result<()> {
        let other = self.without_worktree(orphan)?;
        // Whoever is at work there, or has a restore to finish, has a worktree.
        let _alone = other.alone("prune", control)?;
        other.check_no_journal()?;
        let folder = &other.folder;
        if orphan.branch.is_some() {
            Database::remove_of_project(&self.store, &self.environment, &orphan.id, control)?;
        }
        self.remove_refs(&self.refs_of(&orphan.id)?)?;
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
