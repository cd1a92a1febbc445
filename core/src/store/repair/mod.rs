//! Putting a damaged store right: copy what is whole, then switch to the copies, and say what each checkpoint lost.
//!
//! Nothing is deleted but index segments, which are caches: damaged packs go to the quarantine. Copies are durable and in the
//! index before an original is moved, so that an interruption at any step loses nothing, and the next repair goes on.

mod salvage;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use salvage::Salvage;

use super::index::View;
use super::layout::{FOLDERS, Layout, PackId};
use super::manifest::{Survey, Surveyor};
use super::pack;
use super::parallel::Helpers;
use super::prune::{Change, Trash, alone, index_without, move_into, new_generation, only_one, retire, sync_moved};
use super::verify::{Examined, Holdings, Loss, Losses, doubts, examine, of_bytes, read_refs};
use super::{ChunkId, ChunkRef, Reader, Ref, Store, reader};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys::fs::Syncs;
use crate::sys::id;

/// How to repair.
#[derive(Debug, Clone)]
pub struct RepairOptions {
    /// Move refs that cannot be read to the quarantine. The next prune then removes what only they needed; without, they stay
    /// where they are, and nothing can be pruned until they are put back or removed.
    pub set_aside_refs: bool,
    /// How often the part that runs alone waits its 100 ms for captures and restores before the repair ends as `Busy`.
    pub attempts: u32,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self { set_aside_refs: false, attempts: 5 }
    }
}

/// What a repair did, and what is lost all the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RepairReport {
    /// Packs that were read.
    pub packs: u64,
    /// Where damaged packs, and refs that were set aside, are now.
    pub quarantined: Vec<String>,
    /// Packs that the index knew and that are nowhere.
    pub packs_missing: Vec<String>,
    /// Packs that went back from the trash to their places.
    pub packs_put_back: u64,
    /// Chunks that were copied out of damaged packs.
    pub chunks_salvaged: u64,
    /// Their plain bytes.
    pub bytes_salvaged: u64,
    /// Index segments that were damaged or wrong and are rebuilt.
    pub segments_rebuilt: u64,
    /// Folders and files of the store that were made anew.
    pub remade: Vec<String>,
    /// Refs that cannot be read, by path.
    pub refs_unreadable: Vec<String>,
    /// What checkpoints lost.
    pub losses: Vec<Loss>,
}

impl RepairReport {
    /// Whether every checkpoint is whole now.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty() && self.refs_unreadable.is_empty()
    }
}

pub(super) fn repair(store: &Store, options: &RepairOptions, control: &Control) -> Result<RepairReport> {
    let layout = store.layout();
    layout.disk().check_writable(layout.root())?;
    let mut report = RepairReport::default();
    folders(store, &mut report)?;
    let only = only_one(layout)?;
    let lock = reader::shared(store, control)?;
    let view = store.view(true)?;
    let packs = layout.list_packs(|_| ())?;
    let doubts = doubts(store, &view, &packs, control)?;
    let distrusted: HashSet<String> = doubts.into_iter().filter_map(|doubt| doubt.segment).collect();
    let mut salvage = Salvage::new(store);
    let damaged = read_all(store, &packs, &mut salvage, &mut report, control)?;
    // What cannot be read may be whole, and was not copied: such packs stay where and as they are.
    let mut unread: BTreeSet<PackId> = damaged.iter().filter(|found| found.unread).map(|found| found.id).collect();
    for found in &damaged {
        control.check()?;
        match layout.disk().read(&layout.pack(&found.id)) {
            Ok(bytes) => salvage.take(&bytes, &found.whole)?,
            // A disk that cannot read a part of it: what it can read is not told apart.
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::NotFound) => drop(unread.insert(found.id)),
            Err(error) => return Err(error),
        }
    }
    let mut bad: BTreeSet<PackId> = damaged.iter().map(|found| found.id).collect();
    let missing = missing_packs(store, &view, &mut report);
    salvage.finish()?;
    recover_missing(store, &mut salvage, &bad, &mut report, control)?;
    bad.retain(|id| !unread.contains(id));
    report.chunks_salvaged = salvage.chunks;
    report.bytes_salvaged = salvage.bytes;
    drop(salvage);
    let syncs = Syncs::new();
    report.segments_rebuilt = (distrusted.len() + view.damaged().len()) as u64;
    let goes = |id: &PackId| bad.contains(id) || missing.contains(id) && !is_there(store, id);
    index_without(store, &Change { goes: &goes, distrusted: &distrusted }, &syncs)?;
    drop(lock);
    if !bad.is_empty() || !missing.is_empty() || report.segments_rebuilt > 0 {
        switch(store, options, &bad, &missing, &distrusted, &mut report, control)?;
    }
    if layout.generation()?.is_none() {
        new_generation(layout, &syncs)?;
        report.remade.push(layout.generation_file().display().to_string());
    }
    look_again(store, options, &mut report, control)?;
    drop(only);
    Ok(report)
}

/// Makes the folders that every store has.
fn folders(store: &Store, report: &mut RepairReport) -> Result<()> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    // An empty folder in its place would say that no checkpoint was ever there, and the next prune would take everything.
    if !disk.is_folder(&layout.refs())? && !layout.list_packs(|_| ())?.is_empty() {
        let refs = layout.refs();
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("{}, which says what the checkpoints are, is no folder or is missing", refs.display()),
        )
        .with("path", refs.display())
        .hint("put the folder back from where it went or from a copy of the store; make an empty one only if no checkpoint is needed"));
    }
    let all = FOLDERS.iter().map(|name| layout.folder(name)).chain((0..=u8::MAX).map(|first| layout.pack_folder(first)));
    for folder in all {
        if !disk.is_folder(&folder)? {
            disk.make_folder(&folder, 0o700)?;
            disk.sync_folder(folder.parent().unwrap_or(layout.root()), &Syncs::new())?;
            report.remade.push(folder.display().to_string());
        }
    }
    Ok(())
}

/// Reads every pack as a whole; gives the damaged ones.
fn read_all(
    store: &Store,
    packs: &[PackId],
    salvage: &mut Salvage<'_>,
    report: &mut RepairReport,
    control: &Control,
) -> Result<Vec<Examined>> {
    let layout = store.layout();
    let helpers = Helpers::new(layout.disk().limits().helpers);
    let mut damaged = Vec::new();
    for batch in packs.chunks(8) {
        control.check()?;
        control.report("read packs", report.packs, packs.len() as u64, Unit::Items);
        for found in helpers.map(batch, |id| examine(layout, store.uuid_bytes(), id, true))?.into_iter().flatten() {
            report.packs += 1;
            if found.problem.is_some() {
                damaged.push(found);
            } else {
                salvage.have.extend(found.whole.iter().map(|blob| blob.id.prefix()));
            }
        }
    }
    Ok(damaged)
}

fn is_there(store: &Store, id: &PackId) -> bool {
    store.layout().disk().stat(&store.layout().pack(id)).is_ok_and(|found| found.is_some())
}

/// The packs that the index knows and that are not there.
fn missing_packs(store: &Store, view: &View, report: &mut RepairReport) -> BTreeSet<PackId> {
    let known = view.all().flat_map(|segment| segment.packs()).map(|(id, _)| *id);
    let missing: BTreeSet<PackId> = known.filter(|id| !is_there(store, id)).collect();
    report.packs_missing = missing.iter().map(|id| store.layout().pack(id).display().to_string()).collect();
    missing
}

/// Looks for what checkpoints lack in the trash and in the quarantine, as long as that brings something: a manifest block
/// that is found may name more that is missing.
fn recover_missing(
    store: &Store,
    salvage: &mut Salvage<'_>,
    bad: &BTreeSet<PackId>,
    report: &mut RepairReport,
    control: &Control,
) -> Result<()> {
    let layout = store.layout();
    loop {
        let wanted = wanted(store, bad, control)?;
        if wanted.is_empty() {
            return Ok(());
        }
        let before = (salvage.chunks, report.packs_put_back);
        for (path, id) in Trash::list(layout)?.packs {
            control.check()?;
            let Some(bytes) = read_pack(layout, &path)? else { continue };
            let found = of_bytes(&bytes, store.uuid_bytes(), &id, true);
            if !found.whole.iter().any(|blob| wanted.contains(&blob.id)) {
                continue;
            }
            if found.problem.is_none() && !is_there(store, &id) {
                Trash::put_back(layout, &path, &id, &Syncs::new())?;
                salvage.have.extend(found.whole.iter().map(|blob| blob.id.prefix()));
                report.packs_put_back += 1;
            } else {
                take_wanted(salvage, &bytes, &found, &wanted)?;
            }
        }
        for path in quarantined(store)? {
            control.check()?;
            let Some(bytes) = read_pack(layout, &path)? else { continue };
            let found = of_bytes(&bytes, store.uuid_bytes(), &PackId([0; 32]), true);
            take_wanted(salvage, &bytes, &found, &wanted)?;
        }
        salvage.finish()?;
        if (salvage.chunks, report.packs_put_back) == before {
            return Ok(());
        }
    }
}

/// What may be a pack; nothing where it is gone or longer than a pack can be.
fn read_pack(layout: &Layout, path: &Path) -> Result<Option<Vec<u8>>> {
    match layout.disk().read_optional(path, pack::MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        other => other,
    }
}

fn take_wanted(salvage: &mut Salvage<'_>, bytes: &[u8], found: &Examined, wanted: &HashSet<ChunkId>) -> Result<()> {
    let whole: Vec<_> = found.whole.iter().filter(|blob| wanted.contains(&blob.id)).copied().collect();
    salvage.take(bytes, &whole)
}

/// Files in the quarantine that may be packs.
fn quarantined(store: &Store) -> Result<Vec<PathBuf>> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    let top = layout.folder("quarantine");
    let mut files = Vec::new();
    for name in disk.names(&top)? {
        let path = top.join(name);
        if disk.is_folder(&path)? {
            files.extend(disk.names(&path)?.into_iter().map(|name| path.join(name)));
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".pack")));
    Ok(files)
}

/// What checkpoints lack, as far as can be seen.
fn wanted(store: &Store, bad: &BTreeSet<PackId>, control: &Control) -> Result<HashSet<ChunkId>> {
    let reader = Reader::locked_elsewhere(store, None)?;
    let mut holdings = Holdings::new(store, store.view(true)?, true);
    holdings.bad_packs.clone_from(bad);
    let mut wants = Wants { holdings: &holdings, missing: HashSet::new() };
    let mut survey = Survey::default();
    let (refs, _) = read_refs(store, control)?;
    for half in refs.iter().flat_map(|found| [&found.files, &found.cluster]).flatten() {
        survey.run(&reader, &half.root, control, &mut wants)?;
    }
    Ok(wants.missing)
}

struct Wants<'a> {
    holdings: &'a Holdings<'a>,
    missing: HashSet<ChunkId>,
}

impl Wants<'_> {
    fn add(&mut self, error: &Error) {
        let chunk = error.context().iter().find(|(key, _)| *key == "chunk").and_then(|(_, id)| id.parse::<ChunkId>().ok());
        self.missing.extend(chunk);
    }
}

impl Surveyor for Wants<'_> {
    fn has(&mut self, chunk: &ChunkRef) -> bool {
        let has = self.holdings.has(&chunk.id, None);
        if !has {
            self.missing.insert(chunk.id);
        }
        has
    }

    fn damaged(&mut self, _path: &[u8], error: Option<&Error>) {
        error.into_iter().for_each(|error| self.add(error));
    }

    fn lost(&mut self, _first: &[u8], _entries: Option<u64>, error: &Error) {
        self.add(error);
    }
}

/// Alone: the index without what is damaged or gone, a new generation, damaged packs to the quarantine.
fn switch(
    store: &Store,
    options: &RepairOptions,
    bad: &BTreeSet<PackId>,
    missing: &BTreeSet<PackId>,
    distrusted: &HashSet<String>,
    report: &mut RepairReport,
    control: &Control,
) -> Result<()> {
    let layout = store.layout();
    let locks = alone(layout, options.attempts, control)?;
    // This repair, or a capture of the same content, may have put a whole pack in the place of a damaged one. One that cannot
    // be read may be whole too: it stays.
    let mut still = BTreeSet::new();
    for id in bad {
        if examine(layout, store.uuid_bytes(), id, true)?.is_some_and(|found| found.problem.is_some() && !found.unread) {
            still.insert(*id);
        }
    }
    let goes = |id: &PackId| still.contains(id) || missing.contains(id) && !is_there(store, id);
    let syncs = Syncs::new();
    let retired = retire(store, &Change { goes: &goes, distrusted }, &syncs)?;
    if !still.is_empty() {
        let folder = layout.folder("quarantine").join(retired.generation.to_string());
        move_into(layout, &still, &folder)?;
        sync_moved(layout, &still, &folder, &syncs)?;
        report.quarantined.extend(still.iter().map(|id| folder.join(id.file_name()).display().to_string()));
    }
    locks.end();
    Ok(())
}

/// What is lost now, and refs that cannot be read.
fn look_again(store: &Store, options: &RepairOptions, report: &mut RepairReport, control: &Control) -> Result<()> {
    let layout = store.layout();
    let lock = reader::shared(store, control)?;
    let reader = Reader::locked_elsewhere(store, lock)?;
    let (refs, bad): (Vec<Ref>, _) = read_refs(store, control)?;
    report.refs_unreadable = bad.into_iter().map(|(path, _)| path).collect();
    let holdings = Holdings::new(store, store.view(true)?, true);
    report.losses = Losses::find(&reader, &holdings, &refs, control)?.losses;
    if options.set_aside_refs && !report.refs_unreadable.is_empty() {
        for path in report.refs_unreadable.iter().map(PathBuf::from) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = layout.folder("quarantine").join(format!("{name}.ref.{}", id::sortable()?));
            layout.disk().rename_new(&path, &target)?;
            report.quarantined.push(target.display().to_string());
        }
        layout.disk().sync_folder(&layout.folder("quarantine"), &Syncs::new())?;
        layout.disk().sync_folder(&layout.refs(), &Syncs::new())?;
    }
    Ok(())
}
