//! A pool: a file system that shares blocks, in one file, for hosts whose own does not.
//!
//! A pool is a folder: `pool.json` (the record), `image` (the file system), `mount` (where it is mounted; a store goes below
//! it). Read in this order: this file, `record`, `host` (programs, and how a mount comes back), `image`, `create`, `grow`, `remove`.

mod create;
mod grow;
mod host;
mod image;
mod record;
mod remove;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use create::PoolCreated;
pub use host::PoolHost;
pub use record::{PoolKind, PoolState};
pub use remove::PoolRemoved;

use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::lock::{Lock, Mode};
use crate::sys::mounts::{self, Mount};
use record::Record;

/// The smallest pool: below this the file systems themselves refuse or have hardly any room.
pub const SMALLEST_POOL: u64 = 512 << 20;

/// A pool that is or is to be in a folder. Cheap; looks at nothing until it is asked.
#[derive(Debug, Clone)]
pub struct Pool {
    folder: PathBuf,
    host: PoolHost,
}

/// What a pool is like now; the JSON shape of every surface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolStatus {
    /// Name of the folder, for listings.
    pub name: String,
    /// Its folder.
    #[serde(serialize_with = "crate::report::path")]
    pub folder: PathBuf,
    /// Where it is mounted: a store goes below this.
    #[serde(serialize_with = "crate::report::path")]
    pub mount: PathBuf,
    /// The file that holds it.
    #[serde(serialize_with = "crate::report::path")]
    pub image: PathBuf,
    /// Its file system.
    pub file_system: PoolKind,
    /// Ready, or left half made or half removed.
    pub state: PoolState,
    /// Whether it is mounted now.
    pub mounted: bool,
    /// What brings the mount back after a boot: `systemd` or `fstab`.
    pub comes_back_by: &'static str,
    /// The file that was written for that.
    #[serde(serialize_with = "crate::report::path")]
    pub written: PathBuf,
    /// Whether that file still says so.
    pub comes_back: bool,
    /// Bytes of the image.
    pub size: u64,
    /// Bytes of the host's disk that the image has.
    pub allocated: u64,
    /// Bytes that are free in the pool, where it is mounted.
    pub free: Option<u64>,
    /// Names at its top, where it is mounted.
    pub contents: Vec<String>,
}

impl Pool {
    /// In this folder, which need not be there.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that is not absolute, or that cannot stand in a mount unit or in fstab: blanks, control
    /// characters and the like.
    pub fn at(folder: &Path, host: PoolHost) -> Result<Self> {
        let plain = |text: &str| text.chars().all(|letter| letter.is_alphanumeric() || "/-_.+@=,:~".contains(letter));
        if !folder.is_absolute() || folder.parent().is_none() || !folder.to_str().is_some_and(plain) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} cannot be the folder of a pool", folder.display()))
                .with("path", folder.display())
                .hint("name it by its whole path, of letters, digits and / - _ . + @ = , : ~ only: it has to stand in a mount table"));
        }
        // Without `.` and `..`, as the kernel will name it.
        let folder: PathBuf = folder.components().collect();
        if folder.components().any(|part| part == std::path::Component::ParentDir) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} has a `..` in it", folder.display()))
                .with("path", folder.display())
                .hint("name the folder of the pool without going up"));
        }
        Ok(Self { folder, host })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where it is, or will be, mounted.
    #[must_use]
    pub fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// The file that holds it.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// What it is like now. Needs no privileges.
    ///
    /// # Errors
    /// `NotFound` where there is no pool; `Corrupt`, `UnsupportedFormat` of its record; `Permission`, `Io`.
    pub fn status(&self) -> Result<PoolStatus> {
        let record = self.record()?;
        let mounted = self.mounted()?.is_some();
        let (size, allocated) = image::sizes(&self.image())?;
        let mount = self.mount();
        let free = if mounted { Some(sys::fs::free_bytes(&mount)?) } else { None };
        Ok(PoolStatus {
            name: self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            folder: self.folder.clone(),
            image: self.image(),
            file_system: record.file_system,
            state: record.state,
            mounted,
            comes_back_by: record.comes_back.name(),
            written: record.comes_back.file().to_owned(),
            comes_back: self.host.comes_back(&record.comes_back, &self.image(), &mount)?,
            size,
            allocated,
            free,
            contents: if mounted { contents(&mount)? } else { Vec::new() },
            mount,
        })
    }

    fn record(&self) -> Result<Record> {
        Record::load(&self.folder)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no pool in {}", self.folder.display()))
                .with("path", self.folder.display())
                .hint("make one with `forklift pool create --size 50G`, or name the folder of one")
        })
    }

    /// What is mounted at its place, which must be its image.
    fn mounted(&self) -> Result<Option<Mount>> {
        let Ok(point) = self.mount().canonicalize() else { return Ok(None) };
        let Some(found) = mounts::list()?.into_iter().rfind(|mount| mount.point == point) else { return Ok(None) };
        let Some(backing) = image::backing_file(&found.source)? else { return Ok(Some(found)) };
        let image = self.image();
        if backing == image || image.canonicalize().is_ok_and(|image| backing == image) {
            return Ok(Some(found));
        }
        Err(Error::new(ErrorKind::Busy, format!("{} is mounted at {}, not the pool's image", backing.display(), point.display()))
            .with("path", point.display())
            .hint(format!("unmount it: umount {}", point.display())))
    }

    /// Root, and alone with the folder.
    fn enter(&self, what: &str) -> Result<Lock> {
        require_root(what)?;
        Lock::attempt_existing(&self.folder, Mode::Exclusive)?.ok_or_else(|| {
            Error::new(ErrorKind::Busy, format!("another command works on the pool in {}", self.folder.display()))
                .with("path", self.folder.display())
                .hint("wait for it to end")
        })
    }
}

fn require_root(what: &str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Permission, format!("{what} needs root, who alone may mount")).hint("run it as root (sudo)"))
}

/// Names at the top of a mounted pool that are not the file system's own.
fn contents(mount: &Path) -> Result<Vec<String>> {
    let names = sys::fs::names(mount)?;
    Ok(names.iter().map(|name| name.to_string_lossy().into_owned()).filter(|name| name != "lost+found").collect())
}

/// A size for messages.
fn gib(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) }
}
