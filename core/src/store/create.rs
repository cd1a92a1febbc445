//! Making a store: under a lock on its folder, `FORMAT` last, so that a kill at any step can be taken up again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::format::Format;
use super::layout::{FOLDERS, Layout};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::Syncs;
use crate::sys::lock::Mode;

/// Made first and removed last: a folder that holds it was being made into a store.
const MARKER: &str = "creating";

/// Makes a store in a folder that is absent, empty, or was left unfinished. `AlreadyExists` for any other.
pub(super) fn create(disk: &Arc<dyn Disk>, path: &Path) -> Result<()> {
    let path = std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))?;
    let mut existing = Path::new("/");
    for ancestor in path.ancestors() {
        if disk.stat(ancestor)?.is_some() {
            existing = ancestor;
            break;
        }
    }
    if !disk.is_folder(existing)? {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is not a folder", existing.display()))
            .with("path", existing.display())
            .hint("name an absent or empty folder for the store"));
    }
    refuse_network(disk.as_ref(), existing, &path)?;
    if let Some(outer) = path.parent().and_then(|parent| enclosing(disk.as_ref(), parent)) {
        return Err(inside(&path, &outer).hint("name a folder outside of it for another store"));
    }
    // Servers of root run under other accounts, which must be able to come to their own folders; everything else below is 0700.
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    let mut missing: Vec<&Path> = path.ancestors().take_while(|folder| *folder != existing).collect();
    missing.push(&path);
    for folder in missing.into_iter().rev() {
        disk.make_folder(folder, mode)?;
    }
    let lock = disk.lock_existing(&path, Mode::Exclusive, Duration::from_secs(60), &Control::silent())?;
    let names = disk.names(&path)?;
    let layout = Layout::new(Arc::clone(disk), path.clone());
    if !names.is_empty() && !is_unfinished(&layout, &names)? {
        let what = if names.iter().any(|name| name == "FORMAT") { "holds a store already" } else { "is neither a store nor empty" };
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} {what}", path.display()))
            .with("path", path.display())
            .hint("name an absent or empty folder for a new store"));
    }
    fill(&layout)?;
    drop(lock);
    Ok(())
}

/// The store that `path` is, or lies in. What cannot be looked at is none.
pub(super) fn enclosing(disk: &dyn Disk, path: &Path) -> Option<PathBuf> {
    let is_folder = |path: &Path| disk.is_folder(path).unwrap_or(false);
    let is_store = |folder: &&Path| {
        let format = disk.stat(&folder.join("FORMAT")).ok().flatten();
        format.is_some_and(|found| !found.folder) && is_folder(&folder.join("packs")) && is_folder(&folder.join("refs"))
    };
    path.ancestors().find(is_store).map(Path::to_owned)
}

/// Something lies where only a store's own files may lie.
pub(super) fn inside(path: &Path, store: &Path) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{} lies in the store {}", path.display(), store.display())).with("path", path.display())
}

/// Whether a folder with these names was left by somebody who was making a store: the marker, which is empty, and nothing
/// that a store does not have before it holds something.
fn is_unfinished(layout: &Layout, names: &[OsString]) -> Result<bool> {
    let disk = layout.disk();
    let ours = |name: &OsString| FOLDERS.iter().chain(&[MARKER, "lock", "gate", "gc_generation"]).any(|known| name == known);
    let marker = disk.stat(&layout.root().join(MARKER))?;
    if marker.is_none_or(|found| found.folder || found.len > 0) || !names.iter().all(ours) {
        return Ok(false);
    }
    let strange = |folder: &str| folder != "packs" && folder != "tmp";
    for folder in FOLDERS.into_iter().filter(|folder| strange(folder) && names.iter().any(|name| name == folder)) {
        if !disk.is_folder(&layout.folder(folder))? || !disk.names(&layout.folder(folder))?.is_empty() {
            return Ok(false);
        }
    }
    let mut strays = 0;
    Ok(layout.list_packs(|_| strays += 1)?.is_empty() && strays == 0)
}

fn fill(layout: &Layout) -> Result<()> {
    let (disk, syncs) = (layout.disk(), Syncs::new());
    let marker = layout.root().join(MARKER);
    touch(disk, &marker, b"", &syncs)?;
    // Before anything else: a folder that holds something and no marker is taken for somebody else's.
    disk.sync_folder(layout.root(), &syncs)?;
    for name in FOLDERS {
        disk.make_folder(&layout.folder(name), 0o700)?;
    }
    for first in 0..=u8::MAX {
        disk.make_folder(&layout.pack_folder(first), 0o700)?;
    }
    touch(disk, &layout.lock(), b"", &syncs)?;
    touch(disk, &layout.gate(), b"", &syncs)?;
    disk.remove_file(&layout.generation_file())?;
    touch(disk, &layout.generation_file(), b"0\n", &syncs)?;
    // Everything is there before FORMAT says so. Not syncfs, which would wait for what others write on this file system.
    disk.sync_folder(&layout.packs(), &syncs)?;
    disk.sync_folder(layout.root(), &syncs)?;
    let temporary = layout.temporary("format")?;
    disk.write_new(&temporary, &[&Format::new(&disk.new_uuid()?).encode()?], 0o600, &syncs)?;
    disk.rename_new(&temporary, &layout.format())?;
    finish(layout)
}

/// Makes the names of the store and of every folder above it durable, then removes the marker. For the maker, and for whoever
/// is about to rely on a store whose maker was killed between.
pub(super) fn finish(layout: &Layout) -> Result<()> {
    let (disk, syncs) = (layout.disk(), Syncs::new());
    let marker = layout.root().join(MARKER);
    if disk.stat(&marker)?.is_none() {
        return Ok(());
    }
    disk.sync_folder(layout.root(), &syncs)?;
    // Which of them are new is not known any more.
    for ancestor in layout.root().ancestors().skip(1) {
        match disk.sync_folder(ancestor, &syncs) {
            // One that we may not read, or that cannot be synced, was not made by us.
            Err(error)
                if matches!(error.kind(), ErrorKind::Permission | ErrorKind::ReadOnly | ErrorKind::Unsupported)
                    || error.os() == Some(libc::EINVAL) => {}
            other => other?,
        }
    }
    disk.remove_file(&marker)
}

/// Makes a file unless it is there.
fn touch(disk: &dyn Disk, path: &Path, bytes: &[u8], syncs: &Syncs) -> Result<()> {
    let made = if bytes.is_empty() { disk.create_new(path, 0o600).map(drop) } else { disk.write_new(path, &[bytes], 0o600, syncs) };
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Locks and folder syncs mean something else on these.
fn refuse_network(disk: &dyn Disk, existing: &Path, path: &Path) -> Result<()> {
    match disk.network_file_system(existing)? {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Unsupported, format!("{} is on a network file system ({name})", path.display()))
            .with("path", PathBuf::from(path).display())
            .hint("name a store on a local disk with --store: locks and durability do not hold on this one")),
    }
}
