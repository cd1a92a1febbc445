//! Where mechanisms are tried: a folder of our own in the store, or in its nearest parent.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::lock::{Lock, Mode};

/// Start of the name of a doctor's folder; the folder itself is locked while its doctor lives.
const NAME: &str = ".forklift-doctor-";

/// A store's place, with a folder to try things in.
pub(super) struct Place {
    /// The store: where its sockets would be is asked of it.
    #[cfg(feature = "postgres")]
    pub(super) store: PathBuf,
    /// What is there of it.
    pub(super) folder: PathBuf,
    /// Our own folder in that, or why it cannot be made.
    pub(super) work: Result<Work>,
}

/// A folder that is removed when it is dropped.
pub(super) struct Work {
    path: PathBuf,
    _lock: Lock,
}

impl Place {
    pub(super) fn of(store: &Path) -> Result<Self> {
        if !store.is_absolute() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is not an absolute path", store.display()))
                .with("path", store.display())
                .hint("name the store by its whole path"));
        }
        let branches = store.join("branches");
        let nearest = std::iter::once(branches.as_path()).chain(store.ancestors()).find(|folder| folder.is_dir());
        let folder = nearest.unwrap_or(Path::new("/")).to_owned();
        let work = Work::make(&folder);
        Ok(Self {
            #[cfg(feature = "postgres")]
            store: store.to_owned(),
            folder,
            work,
        })
    }

    /// Our own folder, or why there is none.
    pub(super) fn work(&self) -> Result<&Path, String> {
        match &self.work {
            Ok(work) => Ok(&work.path),
            Err(error) => Err(error.message().to_owned()),
        }
    }
}

impl Work {
    fn make(folder: &Path) -> Result<Self> {
        remove_dead(folder);
        loop {
            let path = folder.join(format!("{NAME}{}", sys::id::sortable()?));
            std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|source| Error::io("make a folder in", folder, source))?;
            match Lock::attempt_existing(&path, Mode::Exclusive) {
                Ok(Some(lock)) if path.is_dir() => return Ok(Self { path, _lock: lock }),
                // Another doctor took it for that of a dead one, in the moment before it was locked.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let removed = sys::fs::remove_tree(&path);
                    drop(removed);
                    return Err(error);
                }
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes what doctors left that were killed. Anything that is not surely that stays.
fn remove_dead(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.strip_prefix(NAME).is_some_and(|id| id.len() == 26));
        if ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            if let Ok(Some(_lock)) = Lock::attempt_existing(&path, Mode::Exclusive) {
                remove(&path);
            }
        }
    }
}

fn remove(path: &Path) {
    // A subvolume that a trial left goes in one step, where it can.
    for name in sys::fs::names(path).unwrap_or_default() {
        let inner = path.join(name);
        if inner.is_dir() {
            let removed = clone::remove_tree(&inner);
            drop(removed);
        }
    }
    let removed = sys::fs::remove_tree(path);
    drop(removed);
}
