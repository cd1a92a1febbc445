//! The way of packs and index segments from `tmp/` to their places, each durable before the next may rely on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Store;
use super::disk::{Disk, Handle};
use super::index::{Draft, Segment, View, superseded_by_merge};
use super::layout::{Layout, PackId};
use super::pack::{Blob, OpenPack};
use super::parallel::Helpers;
use super::{chunk, pack, packfile::PackFile};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs::Syncs;
use crate::sys::id;

/// Packs, index segments and refs are read-only once they are published.
pub(super) const PUBLISHED: u32 = 0o400;

/// A written pack that is still in `tmp/`.
#[derive(Debug)]
pub(super) struct Sealed {
    id: PackId,
    size: u64,
    blobs: Vec<Blob>,
    temporary: PathBuf,
    /// Open until its content was synced.
    file: Option<Box<dyn Handle>>,
}

impl Sealed {
    /// Closes a pack and writes it, without syncing it.
    pub(super) fn write(layout: &Layout, uuid: &[u8; 16], pack: OpenPack) -> Result<Self> {
        let (id, parts, blobs) = pack.close(uuid);
        let temporary = layout.temporary("pack")?;
        let file = layout.disk().write_unsynced(&temporary, &[&parts[0], &parts[1], &parts[2]], PUBLISHED)?;
        file.start_writeback();
        let size = parts.iter().map(|part| part.len() as u64).sum();
        Ok(Self { id, size, blobs, temporary, file: Some(file) })
    }

    pub(super) fn id(&self) -> PackId {
        self.id
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// The file, to be synced by the caller.
    pub(super) fn take_file(&mut self) -> Option<(Box<dyn Handle>, PathBuf)> {
        self.file.take().map(|file| (file, self.temporary.clone()))
    }

    /// Removes what is left of it in `tmp/`.
    pub(super) fn discard(self, layout: &Layout) {
        layout.disk().discard(&self.temporary);
    }

    fn sync(&self, layout: &Layout, syncs: &Syncs) -> Result<()> {
        match &self.file {
            Some(file) => layout.disk().sync_file(file.as_ref(), &self.temporary, syncs),
            None => Ok(()),
        }
    }

    fn rename(&self, layout: &Layout, syncs: &Syncs) -> Result<()> {
        let (disk, target) = (layout.disk(), layout.pack(&self.id));
        match disk.rename_new(&self.temporary, &target) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = target.parent().unwrap_or(layout.root());
                disk.make_folder(folder, 0o700)?;
                disk.sync_folder(&layout.packs(), syncs)?;
                disk.rename_new(&self.temporary, &target)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if has_name_of(disk, &target, &self.id) {
                    return disk.remove_file(&self.temporary);
                }
                let quarantined = layout.folder("quarantine").join(format!("{}.{}", self.id.file_name(), id::sortable()?));
                disk.rename_new(&target, &quarantined)?;
                disk.rename_new(&self.temporary, &target)
            }
            other => other,
        }
    }
}

/// Whether a file that has the name of a pack also has its content.
fn has_name_of(disk: &dyn Disk, path: &Path, id: &PackId) -> bool {
    disk.read_at_most(path, pack::MAX_BYTES).is_ok_and(|bytes| blake3::hash(&bytes).as_bytes() == &id.0)
}

/// Publishes the sealed packs and an index segment for them and for the packs that had none. Those that were published
/// are taken out of `sealed`.
pub(super) fn packs_and_index(store: &Store, view: &View, sealed: &mut Vec<Sealed>, helpers: &Helpers, syncs: &Syncs) -> Result<()> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    helpers.map(sealed, |pack| pack.sync(layout, syncs))?;
    let mut folders = BTreeSet::new();
    let mut draft = Draft::default();
    while let Some(pack) = sealed.last() {
        pack.rename(layout, syncs)?;
        folders.insert(pack.id.0.first().copied().unwrap_or_default());
        draft.add_pack(pack.id, pack.size, &pack.blobs);
        sealed.pop();
    }
    // Another session may not have synced the folder of its pack yet, or died before it could.
    for (id, segment) in view.loose() {
        if PackFile::open(layout, id).is_ok() {
            folders.insert(id.0.first().copied().unwrap_or_default());
            draft.add_segment(segment, |_| false);
        }
    }
    for first in folders {
        disk.sync_folder(&layout.pack_folder(first), syncs)?;
    }
    if draft.is_empty() {
        return Ok(());
    }
    let superseded = superseded_by_merge(view);
    for (_, segment) in &superseded {
        draft.add_segment(segment, |_| false);
    }
    let name = index_segment(store, draft, view.next_sequence(), syncs)?;
    let old = superseded.iter().map(|(name, _)| name).chain(view.damaged());
    old.filter(|old| **old != name).try_for_each(|old| remove_segment(layout, old))
}

/// Removes a segment that is of no use any more; a folder under such a name is not ours to remove.
pub(super) fn remove_segment(layout: &Layout, name: &str) -> Result<()> {
    let path = layout.index().join(name);
    match layout.disk().remove_file(&path) {
        Err(error) if !layout.put_folder_aside(&path)? => Err(error),
        _ => Ok(()),
    }
}

/// Publishes one index segment and gives its file name.
pub(super) fn index_segment(store: &Store, draft: Draft, sequence: u64, syncs: &Syncs) -> Result<String> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    let bytes = draft.encode(store.uuid_bytes(), sequence);
    let hash = Segment::hash(&bytes).ok_or_else(|| Error::new(ErrorKind::Internal, "an index segment has no hash"))?;
    let name = format!("{}.idx", chunk::hex(hash));
    let temporary = layout.temporary("index")?;
    disk.write_new(&temporary, &[&bytes], PUBLISHED, syncs)?;
    let target = layout.index().join(&name);
    match disk.rename_new(&temporary, &target) {
        // The name is the content, unless it was damaged since.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            layout.put_folder_aside(&target)?;
            disk.rename(&temporary, &target)?;
        }
        Err(error) => {
            disk.discard(&temporary);
            return Err(error);
        }
        Ok(()) => {}
    }
    disk.sync_folder(&layout.index(), syncs)?;
    Ok(name)
}
