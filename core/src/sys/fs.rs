//! File system calls that name their path when they fail, and count their fsyncs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags};

use crate::error::{Error, Result};

/// Counts the fsyncs of one operation, for its report.
#[derive(Debug, Default)]
pub struct Syncs(AtomicU64);

impl Syncs {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the content of an open file durable. A failure is final: never call it again on the same file and believe it.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn file(&self, file: &File, path: &Path) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        file.sync_all().map_err(|source| Error::io("fsync", path, source))
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// `Io`.
    pub fn folder(&self, path: &Path) -> Result<()> {
        let folder = File::open(path).map_err(|source| Error::io("open", path, source))?;
        self.file(&folder, path)
    }

    /// Makes everything on the file system that holds `path` durable.
    ///
    /// # Errors
    /// `Io`.
    pub fn file_system(&self, path: &Path) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let folder = File::open(path).map_err(|source| Error::io("open", path, source))?;
        rustix::fs::syncfs(&folder).map_err(|errno| Error::io("syncfs", path, errno))
    }
}

/// The whole content of a file.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
#[allow(clippy::disallowed_methods, reason = "this is the wrapper")]
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::io("read", path, source))
}

/// As [`read`], with a file that does not exist as `None`.
///
/// # Errors
/// `Permission`, `Io`.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == crate::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder with this mode (and its missing parents with mode 0700); one that exists is left as it is.
///
/// # Errors
/// `Permission`, `NoSpace`, `Io`.
pub fn make_folder(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_folder(parent, 0o700)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(source) => Err(Error::io("create folder", path, source)),
    }
}

/// Creates a file that must not exist yet, with this mode.
///
/// # Errors
/// `AlreadyExists`, `NoSpace`, `Io`.
pub fn create_new(path: &Path, mode: u32) -> Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path).map_err(|source| Error::io("create", path, source))
}

/// Writes a file that appears whole or not at all, replacing what has its name: temporary file beside it, fsync, rename,
/// fsync of the folder (three steps, two fsyncs).
///
/// # Errors
/// `NoSpace`, `Permission`, `Io`; what was there before is then still there.
pub fn replace(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<()> {
    let temporary = write_beside(path, bytes, mode, syncs)?;
    let renamed = rustix::fs::rename(&temporary, path).map_err(|errno| Error::io("rename to", path, errno));
    finish_beside(renamed, &temporary, path, syncs)
}

/// As [`replace`], and fails where the name is taken.
///
/// # Errors
/// `AlreadyExists`, and as [`replace`].
pub fn publish(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<()> {
    let temporary = write_beside(path, bytes, mode, syncs)?;
    finish_beside(rename_new(&temporary, path), &temporary, path, syncs)
}

/// Renames without replacing.
///
/// # Errors
/// `AlreadyExists`, `Io`.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(|errno| Error::io("rename to", to, errno))
}

/// Removes a file; one that is not there is fine.
///
/// # Errors
/// `Permission`, `Io`.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Removes a folder and all below it, without following links; one that is not there is fine.
///
/// # Errors
/// `Permission`, `Io`.
#[allow(clippy::disallowed_methods, reason = "this is the wrapper")]
pub fn remove_tree(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// The names in a folder, sorted.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
pub fn names(path: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(path).map_err(|source| Error::io("list", path, source))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(|source| Error::io("list", path, source))?.file_name());
    }
    names.sort_unstable();
    Ok(names)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<std::path::PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", crate::sys::id::sortable()?));
    let temporary = path.with_file_name(name);
    let mut file = create_new(&temporary, mode)?;
    let written = file.write_all(bytes).map_err(|source| Error::io("write", &temporary, source)).and_then(|()| syncs.file(&file, &temporary));
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            remove_file(&temporary)?;
            Err(error)
        }
    }
}

fn finish_beside(renamed: Result<()>, temporary: &Path, path: &Path, syncs: &Syncs) -> Result<()> {
    match renamed {
        Ok(()) => syncs.folder(path.parent().unwrap_or(Path::new("/"))),
        Err(error) => {
            remove_file(temporary)?;
            Err(error)
        }
    }
}
