//! The trash: packs that a prune took out of use and that the next one unlinks, unless something needs them after all.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::store::disk::Held;
use crate::store::layout::{Layout, PackId};
use crate::sys::fs::Syncs;
use crate::sys::lock::Mode;

/// What lay in the trash at one moment.
#[derive(Debug, Default)]
pub(in crate::store) struct Trash {
    folders: Vec<PathBuf>,
    /// Packs by their path.
    pub(in crate::store) packs: Vec<(PathBuf, PackId)>,
    /// Bytes of all files.
    pub(in crate::store) bytes: u64,
    /// The highest number of a folder.
    pub(in crate::store) highest: u64,
}

impl Trash {
    pub(in crate::store) fn list(layout: &Layout) -> Result<Self> {
        let mut trash = Self::default();
        let disk = layout.disk();
        for name in disk.names(&layout.trash())? {
            let folder = layout.trash().join(&name);
            trash.highest = trash.highest.max(name.to_str().and_then(|name| name.parse().ok()).unwrap_or_default());
            for name in disk.names(&folder).unwrap_or_default() {
                let path = folder.join(&name);
                trash.bytes += disk.stat(&path)?.map_or(0, |found| found.len);
                if let Some(id) = name.to_str().and_then(PackId::of_name) {
                    trash.packs.push((path, id));
                }
            }
            trash.folders.push(folder);
        }
        Ok(trash)
    }

    /// Unlinks all of it, the oldest first. A file that somebody left there goes as well; it must not keep prunes from ending.
    pub(in crate::store) fn empty(&self, layout: &Layout) -> Result<()> {
        let disk = layout.disk();
        self.folders.iter().try_for_each(|path| match disk.remove_tree(path) {
            Err(_) if !disk.is_folder(path)? => disk.remove_file(path),
            other => other,
        })
    }

    /// Undoes a prune for one pack: moves it back to its place, durably. A pack that is there again stays as it is.
    pub(in crate::store) fn put_back(layout: &Layout, path: &Path, id: &PackId, syncs: &Syncs) -> Result<()> {
        let target = layout.pack(id);
        let folder = target.parent().unwrap_or(layout.root());
        layout.disk().make_folder(folder, 0o700)?;
        match layout.disk().rename_new(path, &target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => layout.disk().sync_folder(folder, syncs),
        }
    }
}

/// Held by the one prune or repair of a store: a lock on the folder of the trash, so that nothing has to be written for it.
pub(in crate::store) fn only_one(layout: &Layout) -> Result<Held> {
    layout.disk().try_lock(&layout.trash(), Mode::Exclusive, false)?.ok_or_else(|| {
        Error::new(ErrorKind::Busy, format!("another prune or repair of {} is running", layout.root().display()))
            .with("path", layout.root().display())
            .hint("wait for it to end and try again")
    })
}
