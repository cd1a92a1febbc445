//! Finding the cheapest backend by trying it where it is to be used.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::backend::{Copy, Reflink, share};
use super::snapshot::Snapshot;
use super::{Backend, zfs};
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::btrfs;

/// The cheapest backend that really works from files below `source` to files below the folder `target`, found by cloning
/// a probe file made (and removed) in `target`'s file system.
///
/// # Errors
/// `NotFound`, `Permission`, `ReadOnly`, `NoSpace`, `Io` where `target` cannot be written to.
pub fn choose(source: &Path, target: &Path) -> Result<Box<dyn Backend>> {
    let zfs = zfs::is_zfs(target);
    if zfs && zfs::refusal().is_some() {
        return Ok(Box::new(Copy { by_hand: true }));
    }
    let copy = Copy { by_hand: zfs };
    let name = sys::id::sortable()?;
    let from = Probe::new(target.join(format!(".{name}.probe")))?;
    let to = Probe::new(target.join(format!(".{name}.clone")))?;
    // Whole blocks: some file systems inline tiny files and would share nothing.
    (&from.file).write_all(&[7; 16 << 10]).map_err(|error| Error::io("write", &from.path, error))?;
    if zfs {
        zfs::settle(&from.file, &from.path)?;
    }
    if share(&from.file, &from.path, &to.file, &to.path).is_err() {
        return Ok(Box::new(copy));
    }
    // The probe spoke for the target's file system; the source has to be on the same one.
    if device(source)? == device(target)? || same_btrfs(source, target) || shares_from(source, target)? {
        Ok(Box::new(Reflink { zfs }))
    } else {
        Ok(Box::new(copy))
    }
}

/// As [`choose`] for the whole tree `source`, which is to become a new folder in `target`: by a snapshot where it is a
/// subvolume and `target` is on btrfs. One that is refused after all is made file by file, as the report of the copy says.
///
/// # Errors
/// As [`choose`].
pub fn choose_for_tree(source: &Path, target: &Path) -> Result<Box<dyn Backend>> {
    let found = choose(source, target)?;
    if found.shares_blocks() && btrfs::is_subvolume(source) && same_btrfs(source, target) {
        return Ok(Box::new(Snapshot));
    }
    Ok(found)
}

/// Each subvolume has a device number of its own, and yet shares with the others.
fn same_btrfs(source: &Path, target: &Path) -> bool {
    btrfs::identity(source).is_some_and(|identity| btrfs::identity(target) == Some(identity))
}

fn device(path: &Path) -> Result<u64> {
    std::fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::dev(&data)).map_err(|error| Error::io("stat", path, error))
}

fn shares_from(source: &Path, target: &Path) -> Result<bool> {
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(names) = std::fs::read_dir(&folder) else { continue };
        for entry in names.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.metadata().is_ok_and(|data| data.len() > 0) {
                let Ok(from) = File::open(entry.path()) else { continue };
                let to = Probe::new(target.join(format!(".{}.clone", sys::id::sortable()?)))?;
                return Ok(share(&from, &entry.path(), &to.file, &to.path).is_ok());
            }
        }
    }
    Ok(false)
}

/// Whether a name is one of a probe: what a process that was killed while it tried left.
pub(super) fn is_probe(name: &std::ffi::OsStr) -> bool {
    let id =
        || name.to_str()?.strip_prefix('.')?.strip_suffix(".probe").or_else(|| name.to_str()?.strip_prefix('.')?.strip_suffix(".clone"));
    id().is_some_and(|id| id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// A file that is removed when it is dropped.
struct Probe {
    file: File,
    path: PathBuf,
}

impl Probe {
    fn new(path: PathBuf) -> Result<Self> {
        Ok(Self { file: sys::fs::create_new(&path, 0o600)?, path })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _gone = sys::fs::remove_file(&self.path);
    }
}
