//! Removing what no ref needs.
//!
//! Marking runs under the shared lock beside captures. The sweep takes the lock alone, marks what came since, and changes
//! the index before it moves packs, so that an interruption at any step leaves every checkpoint whole.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::index::{Draft, Segment, View};
use super::layout::{Layout, PackId};
use super::manifest::walk;
use super::pack::{BLOB_HEADER, Kind};
use super::packfile::PackFile;
use super::session::PATIENCE;
use super::{ChunkId, Reader, Store, publish, reader};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys::fs::{self, Syncs};
use crate::sys::lock::{Lock, Mode};

/// How long a sweep waits for captures and restores while it keeps new ones out.
const GIVE_WAY: Duration = Duration::from_millis(200);

/// What to prune and whether to do it.
#[derive(Debug, Clone, Default)]
pub struct PruneOptions {
    /// Do it; without, only tell.
    pub apply: bool,
    /// Roots of manifests to keep that no ref names.
    pub extra_roots: Vec<ChunkId>,
    /// Ids of refs that count as removed already. Only for telling: with `apply` such refs keep what they need.
    pub without: Vec<String>,
}

/// What was, or would be, removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Packs in the store.
    pub packs: u64,
    /// Packs of which nothing is needed.
    pub packs_removed: u64,
    /// Bytes of those packs.
    pub bytes_removed: u64,
    /// Bytes that nothing needs in packs that stay.
    pub bytes_unused: u64,
    /// Packs that do not parse, by file name; they are never removed.
    pub packs_unreadable: Vec<String>,
}

pub(super) fn prune(store: &Store, options: &PruneOptions, control: &Control) -> Result<PruneReport> {
    let mut marks = Marks::default();
    let shared = reader::shared(store, control)?;
    let reader = Reader::locked_elsewhere(store, None)?;
    marks.mark(store, &reader, options, control)?;
    let view = store.view(true)?;
    if !options.apply {
        marks.check(&view, store.layout())?;
        return Ok(Sweep::plan(store, &view, &marks, control)?.report);
    }
    drop(shared);
    let layout = store.layout();
    fs::check_writable(&layout.trash())?;
    let gate = Lock::wait(&layout.gate(), Mode::Exclusive, PATIENCE, control)?;
    let lock = Lock::wait(&layout.lock(), Mode::Exclusive, GIVE_WAY, control).map_err(|error| match error.kind() {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, "captures or restores are running in this store; nothing was pruned")
            .with("path", layout.lock().display())
            .hint("try again once they have ended"),
        _ => error,
    })?;
    // From here on nobody else writes or reads under a lock: mark what came since, then look at everything once.
    marks.mark(store, &reader, options, control)?;
    let view = store.view(true)?;
    if marks.check(&view, layout).is_err() {
        // Perhaps a ref that was marked has gone meanwhile, and another prune has taken what only it needed.
        marks = Marks::default();
        marks.mark(store, &reader, options, control)?;
        marks.check(&view, layout)?;
    }
    let sweep = Sweep::plan(store, &view, &marks, control)?;
    let report = sweep.apply(store, &view, control)?;
    drop(lock);
    drop(gate);
    Ok(report)
}

/// Everything that is needed.
#[derive(Debug, Default)]
struct Marks {
    needed: HashSet<[u8; 16]>,
    /// Manifest blocks and nodes below which everything is marked. Apart from `needed`: content may have the same bytes.
    walked: HashSet<ChunkId>,
}

impl Marks {
    /// Marks what every ref needs. A ref that does not parse may need anything: nothing can be removed then.
    fn mark(&mut self, store: &Store, reader: &Reader, options: &PruneOptions, control: &Control) -> Result<()> {
        let (refs, bad) = store.refs()?;
        if let Some(name) = bad.first() {
            let path = store.layout().refs().join(name);
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("ref {} cannot be read, so what it needs is not known; nothing was pruned", path.display()),
            )
            .with("path", path.display())
            .hint("put the ref back from a copy of the store, or remove that checkpoint, and prune again"));
        }
        let roots: Vec<(String, ChunkId)> = refs
            .iter()
            .filter(|found| options.apply || !options.without.contains(&found.id))
            .flat_map(|found| {
                [&found.files, &found.cluster].into_iter().flatten().map(|half| (format!("checkpoint {}", found.id), half.root))
            })
            .chain(options.extra_roots.iter().map(|root| ("a kept manifest".to_owned(), *root)))
            .collect();
        for (done, (what, root)) in roots.iter().enumerate() {
            control.report("mark", done as u64, roots.len() as u64, Unit::Items);
            walk(reader, root, control, &mut |id, kind| {
                if *id != ChunkId::ZERO {
                    self.needed.insert(id.prefix());
                }
                kind == Kind::Data || self.walked.insert(*id)
            })
            .map_err(|error| {
                if error.kind() == ErrorKind::Corrupt { error.while_doing(format!("{what} is damaged, nothing was pruned")) } else { error }
            })?;
        }
        Ok(())
    }

    /// Fails where something needed is in no pack that is there.
    fn check(&self, view: &View, layout: &Layout) -> Result<()> {
        let mut there: HashSet<[u8; 16]> = HashSet::with_capacity(self.needed.len());
        let mut lost: Option<PackId> = None;
        for segment in view.all() {
            let present: Vec<bool> = segment
                .packs()
                .iter()
                .map(|(id, size)| {
                    let present = std::fs::metadata(layout.pack(id)).is_ok_and(|found| found.len() == *size);
                    if !present {
                        lost.get_or_insert(*id);
                    }
                    present
                })
                .collect();
            let rows = segment.rows().filter(|row| present.get(row.pack as usize) == Some(&true) && self.needed.contains(&row.prefix));
            there.extend(rows.map(|row| row.prefix));
        }
        if there.len() == self.needed.len() {
            return Ok(());
        }
        let missing = self.needed.len() - there.len();
        let path = lost.map_or_else(|| layout.packs(), |id| layout.pack(&id));
        Err(Error::new(
            ErrorKind::Corrupt,
            format!("{missing} chunks that checkpoints need are missing (look at {}); nothing was pruned", path.display()),
        )
        .with("path", path.display())
        .hint("put missing packs back from a copy of the store, or remove the damaged checkpoints, and prune again"))
    }
}

/// What is to be removed.
#[derive(Debug, Default)]
struct Sweep {
    report: PruneReport,
    dead: BTreeSet<PackId>,
}

impl Sweep {
    /// Looks at every pack by its own footer, which is what it holds whatever the index says.
    fn plan(store: &Store, view: &View, marks: &Marks, control: &Control) -> Result<Self> {
        let layout = store.layout();
        let mut sweep = Self::default();
        let indexed: HashSet<PackId> = view.all().flat_map(|segment| needed_packs(segment, marks)).collect();
        for id in layout.list_packs(|_| ())? {
            control.check()?;
            sweep.report.packs += 1;
            let blobs = PackFile::open(layout, &id).and_then(|pack| Ok((pack.size(), pack.footer(store.uuid_bytes())?)));
            let (size, blobs) = match blobs {
                Ok(found) => found,
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                    sweep.report.packs_unreadable.push(id.file_name());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let unused = blobs.iter().filter(|blob| !marks.needed.contains(&blob.id.prefix()));
            let (count, bytes) =
                unused.fold((0, 0), |(count, bytes), blob| (count + 1, bytes + u64::from(blob.stored) + BLOB_HEADER as u64));
            if count == blobs.len() && !indexed.contains(&id) {
                sweep.dead.insert(id);
                sweep.report.packs_removed += 1;
                sweep.report.bytes_removed += size;
            } else {
                sweep.report.bytes_unused += bytes;
            }
        }
        Ok(sweep)
    }

    /// Removes: old trash, then index, generation, packs, each durable before the next.
    fn apply(self, store: &Store, view: &View, control: &Control) -> Result<PruneReport> {
        let layout = store.layout();
        let syncs = Syncs::new();
        control.check()?;
        empty_tmp(layout)?;
        let last = layout.generation()?.unwrap_or_default();
        let trashed = fs::names(&layout.trash())?;
        let highest = trashed.iter().filter_map(|name| name.to_str()?.parse().ok()).max().unwrap_or_default();
        for generation in trashed {
            fs::remove_tree(&layout.trash().join(generation))?;
        }
        if self.dead.is_empty() {
            return Ok(self.report);
        }
        replace_index(store, view, &self.dead, &syncs)?;
        let generation = last.max(highest).saturating_add(1);
        let temporary = layout.temporary("generation")?;
        fs::write_new(&temporary, &[format!("{generation}\n").as_bytes()], 0o600, &syncs)?;
        fs::rename(&temporary, &layout.generation_file())?;
        syncs.folder(layout.root())?;
        let trash = layout.trash().join(generation.to_string());
        fs::make_folder(&trash, 0o700)?;
        for id in &self.dead {
            fs::rename(&layout.pack(id), &trash.join(id.file_name()))?;
        }
        syncs.folder(&trash)?;
        syncs.folder(&layout.trash())?;
        let folders: BTreeSet<u8> = self.dead.iter().filter_map(|id| id.0.first().copied()).collect();
        folders.into_iter().try_for_each(|first| syncs.folder(&layout.pack_folder(first)))?;
        Ok(self.report)
    }
}

/// The packs that hold something needed by what a segment says.
fn needed_packs(segment: &Segment, marks: &Marks) -> Vec<PackId> {
    let mut needed = vec![false; segment.packs().len()];
    for row in segment.rows().filter(|row| marks.needed.contains(&row.prefix)) {
        if let Some(slot) = needed.get_mut(row.pack as usize) {
            *slot = true;
        }
    }
    segment.packs().iter().zip(needed).filter_map(|((id, _), needed)| needed.then_some(*id)).collect()
}

/// Publishes one segment for all that segments with dead packs knew of the others, then removes those.
fn replace_index(store: &Store, view: &View, dead: &BTreeSet<PackId>, syncs: &Syncs) -> Result<()> {
    let layout = store.layout();
    let affected: Vec<_> = view.segments().iter().filter(|(_, segment)| segment.packs().iter().any(|(id, _)| dead.contains(id))).collect();
    let mut draft = Draft::default();
    for (_, segment) in &affected {
        draft.add_segment(segment, |id| dead.contains(id));
    }
    for (_, segment) in view.loose() {
        draft.add_segment(segment, |id| dead.contains(id));
    }
    let name = if draft.is_empty() { None } else { Some(publish::index_segment(store, draft, view.next_sequence(), syncs)?) };
    for old in affected.iter().map(|(name, _)| name).chain(view.damaged()) {
        if Some(old) != name.as_ref() {
            fs::remove_file(&layout.index().join(old))?;
        }
    }
    syncs.folder(&layout.index())
}

/// Removes what is in `tmp/`: under the exclusive lock nobody is writing there.
fn empty_tmp(layout: &Layout) -> Result<()> {
    for name in fs::names(&layout.tmp())? {
        let path = layout.tmp().join(name);
        if path.is_dir() { fs::remove_tree(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}
