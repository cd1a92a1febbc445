//! What a rewind of one session's steps would do, path by path: three-way, from manifests, with nothing touched.
//!
//! Read in this order: `history` (what each checkpoint says of a path), `verdicts` (one path, then the tree as a whole),
//! `merge` (the tree that a rewind leaves).

mod history;
mod merge;
mod verdicts;

use std::collections::BTreeMap;

pub(super) use self::history::link_of;
use self::history::{History, View};
use super::Scope;
use super::plan::{PlanItem, Verdict};
use crate::error::Result;
use crate::progress::Control;
use crate::store::{ChunkId, Entry, EntryKind, Reader};

/// The files of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Root block of the manifest.
    pub root: ChunkId,
    /// The scope that the checkpoint carries, with today's root: what it left out is not "not there".
    pub scope: Scope,
}

/// One step of a session: what was there when it began, and what it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When it began.
    pub before: Snapshot,
    /// When it ended.
    pub after: Snapshot,
    /// Another session was at work at the same time: what changed is nobody's, and stays.
    pub shared: bool,
}

/// The worktree as it is.
#[derive(Debug, Clone)]
pub struct DiskState {
    /// In path order.
    pub entries: Vec<Entry>,
    /// What was scanned, with what was left out of it.
    pub scope: Scope,
}

/// What to rewind.
#[derive(Debug)]
pub struct RewindRequest<'a> {
    /// The store.
    pub reader: &'a Reader,
    /// What to go back to.
    pub target: &'a Snapshot,
    /// The steps since, in their order, none overlapping another.
    pub steps: &'a [Step],
    /// Paths that somebody said they edited since the first step began, with what is below them: those stay.
    pub claimed: &'a [Vec<u8>],
    /// What is there.
    pub disk: &'a DiskState,
    /// Only these paths and what is below them; `None` for all.
    pub paths: Option<&'a [Vec<u8>]>,
}

/// What a rewind would do.
#[derive(Debug, Clone)]
pub struct RewindPlan {
    /// Hash of all it saw of the paths that the steps changed.
    pub id: [u8; 32],
    /// Every path that the steps changed, in path order, `unchanged` ones too.
    pub items: Vec<PlanItem>,
    /// What becomes of the paths that are touched; nothing for those that go.
    changes: BTreeMap<Vec<u8>, Option<Entry>>,
    /// The target's entries that are one file with others.
    linked: Vec<Entry>,
}

impl RewindPlan {
    /// How many paths are made, replaced or removed.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.changes.len() as u64
    }

    /// Whether somebody's edit is in the way.
    #[must_use]
    pub fn is_in_conflict(&self) -> bool {
        self.items.iter().any(|item| item.verdict.is_kept())
    }

    /// The entries that a rewind leaves: those of `disk` with the changes of this plan.
    #[must_use]
    pub fn merged(&self, disk: &[Entry]) -> Vec<Entry> {
        merge::merged(disk, &self.changes, &self.linked)
    }
}

/// Plans a rewind: where the disk is what the last step left, the target; where it is the target, nothing; else it stays. The
/// chain from step to step is checked too: a step that does not begin with what the one before it left was edited in between.
///
/// # Errors
/// `Corrupt` where a manifest cannot be read, `Cancelled`, `Io`.
pub fn plan_rewind(request: &RewindRequest<'_>, control: &Control) -> Result<RewindPlan> {
    let history = History::read(request, control)?;
    let disk = View::of_disk(request.disk)?;
    let mut verdicts = verdicts::of_paths(request, &history, &disk)?;
    verdicts::settle(&mut verdicts, request, &history, &disk);
    let mut hash = blake3::Hasher::new();
    let mut changes = BTreeMap::new();
    let mut items = Vec::with_capacity(verdicts.len());
    for (path, verdict) in verdicts {
        let (target, there) = (history.target.entry(&path), disk.entry(&path));
        // What stays may go on being edited.
        let seen = if verdict.is_kept() { None } else { there };
        note(&mut hash, &path, verdict, &[target, history.base(&path), seen]);
        if verdict.touches() {
            changes.insert(path.clone(), target.cloned().filter(|_| verdict != Verdict::Delete));
        }
        items.push(PlanItem { path, verdict });
    }
    let linked = history.linked_with(&changes);
    Ok(RewindPlan { id: *hash.finalize().as_bytes(), items, changes, linked })
}

fn note(hash: &mut blake3::Hasher, path: &[u8], verdict: Verdict, entries: &[Option<&Entry>]) {
    bytes(hash, path);
    bytes(hash, verdict.words().as_bytes());
    for entry in entries {
        let Some(entry) = entry else {
            hash.update(&[0]);
            continue;
        };
        let tag = match &entry.kind {
            EntryKind::File { chunks, size, .. } => {
                hash.update(&size.to_le_bytes());
                hash.update(&(chunks.len() as u64).to_le_bytes());
                for chunk in chunks {
                    hash.update(&chunk.id.0);
                    hash.update(&chunk.len.to_le_bytes());
                }
                1
            }
            EntryKind::Folder => 2,
            EntryKind::Symlink(text) => {
                bytes(hash, text);
                3
            }
            EntryKind::Fifo => 4,
            EntryKind::Socket => 5,
        };
        hash.update(&[tag]);
        hash.update(&entry.mode.to_le_bytes());
        hash.update(&entry.uid.to_le_bytes());
        hash.update(&entry.gid.to_le_bytes());
        for xattr in &entry.xattrs {
            bytes(hash, &xattr.name);
            bytes(hash, &xattr.value);
        }
    }
}

fn bytes(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
