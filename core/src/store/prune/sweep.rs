//! The part that runs alone: mark what came since, index, generation, and packs out of their place.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::marks::Marks;
use super::plan::Plan;
use super::{PruneOptions, PruneReport, Trash};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::disk::Held;
use crate::store::index::{Draft, Segment, View};
use crate::store::layout::{Layout, PackId};
use crate::store::packfile::PackFile;
use crate::store::session::PATIENCE;
use crate::store::{Reader, Store, publish};
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::Mode;

/// How long it waits for captures and restores while it keeps new ones out.
const GIVE_WAY: Duration = Duration::from_millis(100);

/// The lock alone, and the gate that keeps others from coming.
#[derive(Debug)]
pub(in crate::store) struct Alone {
    lock: Held,
    gate: Held,
}

impl Alone {
    /// Lets the others in again.
    pub(in crate::store) fn end(self) {
        drop(self.lock);
        drop(self.gate);
    }
}

/// Waits 100 ms for the lock alone, gives way, and comes back, at most `attempts` times.
pub(in crate::store) fn alone(layout: &Layout, attempts: u32, control: &Control) -> Result<Alone> {
    let mut attempt = 0;
    loop {
        let gate = layout.disk().lock(&layout.gate(), Mode::Exclusive, PATIENCE, control)?;
        match layout.disk().lock(&layout.lock(), Mode::Exclusive, GIVE_WAY, control) {
            Ok(lock) => return Ok(Alone { lock, gate }),
            Err(error) if error.kind() == ErrorKind::Busy && attempt + 1 < attempts => {}
            Err(error) if error.kind() == ErrorKind::Busy => {
                return Err(error
                    .while_doing("captures or restores are running")
                    .hint("try again when they have ended; nothing was removed"));
            }
            Err(error) => return Err(error),
        }
        drop(gate);
        attempt += 1;
        // Those that were kept waiting take their turn before the next attempt.
        std::thread::sleep(Duration::from_millis(50 * u64::from(attempt)));
    }
}

/// Takes what goes out of use.
pub(super) fn sweep(store: &Store, marks: &mut Marks, plan: Plan, options: &PruneOptions, control: &Control) -> Result<PruneReport> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    let Plan { mut report, mut going, generation, rewritten, .. } = plan;
    control.check()?;
    if going.is_empty() {
        // Only what died in tmp/ is left to do, and that can wait for another day.
        if let Some(lock) = disk.try_lock(&layout.lock(), Mode::Exclusive, true)? {
            empty_tmp(layout)?;
            drop(lock);
        }
        return Ok(report);
    }
    let locks = alone(layout, options.attempts, control)?;
    // From here on nobody else writes or reads under a lock.
    let control = &control.uncancellable();
    if layout.generation()? != generation {
        return Err(Error::new(ErrorKind::Busy, format!("packs of {} were removed meanwhile", layout.root().display()))
            .with("path", layout.root().display())
            .hint("prune again"));
    }
    let reader = Reader::locked_elsewhere(store, None)?;
    let fresh = marks.mark(store, &reader, options, control)?;
    spare(layout, &fresh, &rewritten, &mut going, &mut report);
    empty_tmp(layout)?;
    if going.is_empty() {
        locks.end();
        return Ok(report);
    }
    let syncs = Syncs::new();
    // A ref that was not marked may be one whose removal a loss of power would undo.
    disk.sync_folder(&layout.refs(), &syncs)?;
    let packs: BTreeSet<PackId> = going.into_keys().collect();
    let retired = retire(store, &Change { goes: &|id| packs.contains(id), distrusted: &HashSet::new() }, &syncs)?;
    let folder = layout.trash().join(retired.generation.to_string());
    match move_into(layout, &packs, &folder) {
        // Not even room for a name: they go at once, after a last look for what is needed.
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            marks.check(&*store.view(true)?, layout, &packs)?;
            packs.iter().try_for_each(|id| disk.remove_file(&layout.pack(id)))?;
            report.unlinked = true;
        }
        other => other?,
    }
    report.unlinked |= retired.full;
    locks.end();
    sync_moved(layout, &packs, &folder, &syncs)?;
    if report.unlinked {
        marks.check(&*store.view(true)?, layout, &packs)?;
        Trash::list(layout)?.empty(layout)?;
        disk.sync_folder(&layout.trash(), &syncs)?;
    }
    if retired.full {
        // With room again the index can be written; if there is none, the next capture does it.
        unless_full(index_without(store, &Change { goes: &|_| false, distrusted: &HashSet::new() }, &syncs))?;
    }
    Ok(report)
}

/// Keeps the packs that hold something that is needed since the plan was made.
fn spare(layout: &Layout, fresh: &[[u8; 16]], rewritten: &[PackId], going: &mut BTreeMap<PackId, Vec<[u8; 16]>>, report: &mut PruneReport) {
    let fresh: HashSet<&[u8; 16]> = fresh.iter().collect();
    going.retain(|id, prefixes| {
        let stays = prefixes.iter().any(|prefix| fresh.contains(prefix));
        if stays {
            let size = layout.disk().stat(&layout.pack(id)).ok().flatten().map_or(0, |found| found.len);
            let (packs, bytes) = if rewritten.contains(id) {
                (&mut report.packs_rewritten, &mut report.bytes_rewritten)
            } else {
                (&mut report.packs_removed, &mut report.bytes_removed)
            };
            *packs = packs.saturating_sub(1);
            *bytes = bytes.saturating_sub(size);
        }
        !stays
    });
}

/// How the index changes.
pub(in crate::store) struct Change<'a> {
    /// Packs that it is to know no more.
    pub(in crate::store) goes: &'a dyn Fn(&PackId) -> bool,
    /// Segments, by file name, that say something else than the footers of their packs: read anew from those.
    pub(in crate::store) distrusted: &'a HashSet<String>,
}

/// What taking packs out of use came to.
#[derive(Debug)]
pub(in crate::store) struct Retired {
    /// The generation from now on.
    pub(in crate::store) generation: u64,
    /// The disk was full: the new segment was left out, and its packs are found by their footers.
    pub(in crate::store) full: bool,
}

/// Takes packs out of the index and raises the generation, each durable before the next; then they may be moved. Alone.
pub(in crate::store) fn retire(store: &Store, change: &Change<'_>, syncs: &Syncs) -> Result<Retired> {
    let view = store.view(true)?;
    // Not only in the index, where a full disk is forgiven: what goes may be in them alone from now on.
    settle_loose(store, &view, syncs)?;
    let old: Vec<String> = affected(&view, change).map(|(name, _)| name.clone()).chain(view.damaged().iter().cloned()).collect();
    let published = index_without(store, change, syncs);
    let full = matches!(&published, Err(error) if error.kind() == ErrorKind::NoSpace);
    let new = unless_full(published)?.flatten();
    // A segment is a cache: what it alone knew is read from the footers where there is no room for another.
    old.iter().filter(|old| new.as_ref() != Some(old)).try_for_each(|old| publish::remove_segment(store.layout(), old))?;
    store.layout().disk().sync_folder(&store.layout().index(), syncs)?;
    let generation = new_generation(store.layout(), syncs)?;
    Ok(Retired { generation, full })
}

/// Makes the names of packs without a segment durable: whoever published them may have died before. Packs in a segment are.
fn settle_loose(store: &Store, view: &View, syncs: &Syncs) -> Result<()> {
    let folders: BTreeSet<u8> = view.loose().iter().filter_map(|(id, _)| id.0.first().copied()).collect();
    folders.into_iter().try_for_each(|first| store.layout().disk().sync_folder(&store.layout().pack_folder(first), syncs))
}

fn affected<'a>(view: &'a View, change: &'a Change<'_>) -> impl Iterator<Item = &'a (String, Arc<Segment>)> {
    view.segments()
        .iter()
        .filter(|(name, segment)| change.distrusted.contains(name) || segment.packs().iter().any(|(id, _)| (change.goes)(id)))
}

/// Publishes a segment for what only the segments know that the change affects, and for packs without one. Gives its name
/// where one was needed.
pub(in crate::store) fn index_without(store: &Store, change: &Change<'_>, syncs: &Syncs) -> Result<Option<String>> {
    let view = store.view(true)?;
    settle_loose(store, &view, syncs)?;
    let gone: HashSet<&str> = affected(&view, change).map(|(name, _)| name.as_str()).collect();
    let staying = view.segments().iter().filter(|(name, _)| !gone.contains(name.as_str()));
    let covered: HashSet<PackId> = staying.flat_map(|(_, segment)| segment.packs()).map(|(id, _)| *id).collect();
    let mut draft = Draft::default();
    for (name, segment) in affected(&view, change) {
        if !change.distrusted.contains(name) {
            draft.add_segment(segment, |id| (change.goes)(id) || covered.contains(id));
            continue;
        }
        for (id, _) in segment.packs().iter().filter(|(id, _)| !(change.goes)(id) && !covered.contains(id)) {
            if let Ok((size, blobs)) =
                PackFile::open_in_place(store.layout(), id).and_then(|pack| Ok((pack.size(), pack.footer(store.uuid_bytes())?)))
            {
                draft.add_pack(*id, size, &blobs);
            }
        }
    }
    for (_, segment) in view.loose() {
        draft.add_segment(segment, |id| (change.goes)(id));
    }
    if draft.is_empty() { Ok(None) } else { publish::index_segment(store, draft, view.next_sequence(), syncs).map(Some) }
}

/// `None` where there was no space.
pub(super) fn unless_full<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(None),
        other => other.map(Some),
    }
}

/// Raises the generation, durably, above all that were.
pub(in crate::store) fn new_generation(layout: &Layout, syncs: &Syncs) -> Result<u64> {
    let disk = layout.disk();
    // Where the number is lost, one that no counting has reached.
    let last = layout.generation()?.unwrap_or_else(sys::id::now_ms);
    let highest = last.max(Trash::list(layout)?.highest);
    // After the last number there is a new beginning: what was made under any other must not be believed.
    let generation = highest.checked_add(1).unwrap_or_else(|| last.checked_add(1).unwrap_or_default().max(sys::id::now_ms()));
    let text = format!("{generation}\n");
    layout.put_folder_aside(&layout.generation_file())?;
    let write = || {
        let temporary = layout.temporary("generation")?;
        disk.write_new(&temporary, &[text.as_bytes()], 0o600, syncs)?;
        disk.rename(&temporary, &layout.generation_file()).inspect_err(|_| disk.discard(&temporary))?;
        disk.sync_folder(layout.root(), syncs)
    };
    if unless_full(write())?.is_none() {
        // Without a number no list of chunks is believed, which is as good; and its block may be what was wanting.
        disk.remove_file(&layout.generation_file())?;
        disk.sync_folder(layout.root(), syncs)?;
        unless_full(write())?;
    }
    Ok(generation)
}

/// Moves packs that nothing uses any more into a folder of the trash or of the quarantine.
pub(in crate::store) fn move_into(layout: &Layout, packs: &BTreeSet<PackId>, folder: &Path) -> Result<()> {
    layout.disk().make_folder(folder, 0o700)?;
    packs.iter().try_for_each(|id| layout.disk().rename(&layout.pack(id), &folder.join(id.file_name())))
}

/// Makes durable that packs are in a folder and no more in their places.
pub(in crate::store) fn sync_moved(layout: &Layout, packs: &BTreeSet<PackId>, folder: &Path, syncs: &Syncs) -> Result<()> {
    let disk = layout.disk();
    if disk.is_folder(folder)? {
        disk.sync_folder(folder, syncs)?;
    }
    disk.sync_folder(folder.parent().unwrap_or(layout.root()), syncs)?;
    let folders: BTreeSet<u8> = packs.iter().filter_map(|id| id.0.first().copied()).collect();
    folders.into_iter().try_for_each(|first| disk.sync_folder(&layout.pack_folder(first), syncs))
}

/// Removes what is in `tmp/`: alone, so that nobody is writing there.
fn empty_tmp(layout: &Layout) -> Result<()> {
    let disk = layout.disk();
    for name in disk.names(&layout.tmp())? {
        let path = layout.tmp().join(name);
        if disk.is_folder(&path)? { disk.remove_tree(&path)? } else { disk.remove_file(&path)? }
    }
    Ok(())
}
