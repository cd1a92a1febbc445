//! Making a store: under a lock on its folder, `FORMAT` last, so that a kill at any step can be taken up again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::format::Format;
use super::layout::{FOLDERS, Layout};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::{self, Syncs};
use crate::sys::id;
use crate::sys::lock::{Lock, Mode};

/// Made first and removed last: a folder that holds it was being made into a store.
const MARKER: &str = "creating";

/// Makes a store in a folder that is absent, empty, or was left unfinished. `AlreadyExists` for any other.
pub(super) fn create(path: &Path) -> Result<()> {
    let path = std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))?;
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is not a folder", existing.display()))
            .with("path", existing.display())
            .hint("name an absent or empty folder for the store"));
    }
    refuse_network(existing, &path)?;
    let parent = existing.to_owned();
    // Servers of root run under other accounts, which must be able to come to their own folders; everything else below is 0700.
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
        fs::make_folder(folder, mode)?;
    }
    let lock = Lock::wait_folder(&path, Mode::Exclusive, Duration::from_secs(60), &Control::silent())?;
    let names = fs::names(&path)?;
    if !names.is_empty() && (names.iter().any(|name| name == "FORMAT") || !names.iter().any(|name| name == MARKER)) {
        let what = if names.iter().any(|name| name == "FORMAT") { "holds a store already" } else { "is neither a store nor empty" };
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} {what}", path.display()))
            .with("path", path.display())
            .hint("name an absent or empty folder for a new store"));
    }
    fill(&Layout::new(path), &parent)?;
    drop(lock);
    Ok(())
}

fn fill(layout: &Layout, parent: &Path) -> Result<()> {
    let syncs = Syncs::new();
    let marker = layout.root().join(MARKER);
    touch(&marker, b"", &syncs)?;
    for name in FOLDERS {
        fs::make_folder(&layout.folder(name), 0o700)?;
    }
    for first in 0..=u8::MAX {
        fs::make_folder(&layout.pack_folder(first), 0o700)?;
    }
    touch(&layout.lock(), b"", &syncs)?;
    touch(&layout.gate(), b"", &syncs)?;
    fs::remove_file(&layout.generation_file())?;
    touch(&layout.generation_file(), b"0\n", &syncs)?;
    // Everything is there before FORMAT says so. Not syncfs, which would wait for what others write on this file system.
    syncs.folder(&layout.packs())?;
    syncs.folder(layout.root())?;
    let temporary = layout.temporary("format")?;
    fs::write_new(&temporary, &[&Format::new(&id::random()?).encode()?], 0o600, &syncs)?;
    fs::rename_new(&temporary, &layout.format())?;
    syncs.folder(layout.root())?;
    fs::remove_file(&marker)?;
    syncs.folder(layout.root())?;
    for ancestor in layout.root().ancestors().skip(1) {
        syncs.folder(ancestor)?;
        if ancestor == parent {
            break;
        }
    }
    Ok(())
}

/// Makes a file unless it is there.
fn touch(path: &Path, bytes: &[u8], syncs: &Syncs) -> Result<()> {
    let made = if bytes.is_empty() { fs::create_new(path, 0o600).map(drop) } else { fs::write_new(path, &[bytes], 0o600, syncs) };
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Locks and folder syncs mean something else on these.
fn refuse_network(existing: &Path, path: &Path) -> Result<()> {
    match fs::network_file_system(existing)? {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Unsupported, format!("{} is on a network file system ({name})", path.display()))
            .with("path", PathBuf::from(path).display())
            .hint("name a store on a local disk with --store: locks and durability do not hold on this one")),
    }
}
