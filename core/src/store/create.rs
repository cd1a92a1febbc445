//! Making a store: under a lock on its folder, `FORMAT` last, so that a kill at any step can be taken up again.

use std::fs::File;
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
    fs::make_folder(&path, 0o700)?;
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
    touch(&marker, b"")?;
    for name in FOLDERS {
        fs::make_folder(&layout.folder(name), 0o700)?;
    }
    for first in 0..=u8::MAX {
        fs::make_folder(&layout.pack_folder(first), 0o700)?;
    }
    touch(&layout.lock(), b"")?;
    touch(&layout.gate(), b"")?;
    fs::remove_file(&layout.generation_file())?;
    touch(&layout.generation_file(), b"0\n")?;
    // One call for 256 folders and more; everything is there before FORMAT says so.
    syncs.file_system(layout.root())?;
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

fn touch(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    match fs::create_new(path, 0o600) {
        Ok(mut file) => File::write_all(&mut file, bytes).map_err(|source| Error::io("write", path, source)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
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
