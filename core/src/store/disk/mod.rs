//! Every file system call of the store, behind one trait: the real disk, and in test builds a simulated one.
//!
//! Read `Disk` and `Handle` (the primitives, each a point at which the simulated disk may fail or lose power), then the
//! provided methods, which are the same code on both, then `real` and `simulated`.

mod real;
#[cfg(test)]
pub(in crate::store) mod simulated;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(in crate::store) use real::RealDisk;

use super::pack;
use super::parallel;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::Syncs;
use crate::sys::id;
use crate::sys::lock::{self, Lock, Mode};

/// What a path leads to, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Stat {
    pub(in crate::store) len: u64,
    pub(in crate::store) folder: bool,
}

/// How much a session takes at a time: less on the simulated disk, so that small content makes several packs.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Limits {
    /// Bytes of chunks at which a pack is closed.
    pub(in crate::store) pack: usize,
    /// Threads that a session may add to those of its callers.
    pub(in crate::store) helpers: usize,
}

/// An open file.
pub(in crate::store) trait Handle: Debug + Send + Sync {
    /// Its size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads up to as many bytes as fit; may give fewer, and 0 at the end only.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at the end of what was written; may take fewer bytes.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Makes the content durable, not the name. A failure is final: never called again and believed.
    fn sync(&self) -> io::Result<()>;
    /// Asks for the content to be on its way to the disk. A hint.
    fn start_writeback(&self);
}

/// A held lock.
#[derive(Debug)]
pub(in crate::store) enum Held {
    Real(Lock),
    #[cfg(test)]
    Simulated {
        /// Released when it is dropped.
        _lock: simulated::SimulatedLock,
    },
}

impl Held {
    /// `Forked` in a child of a fork.
    pub(in crate::store) fn check_process(&self) -> Result<()> {
        match self {
            Self::Real(lock) => lock.check_process(),
            #[cfg(test)]
            Self::Simulated { .. } => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::Real(lock) => lock.release(),
            #[cfg(test)]
            Self::Simulated { .. } => {}
        }
    }
}

/// A file system. Errors name the path; what a kind of failure means is told with the functions of `sys::fs`.
pub(in crate::store) trait Disk: Debug + Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Box<dyn Handle>>;
    /// Creates a file that must not exist yet and opens it for writing.
    fn create_new(&self, path: &Path, mode: u32) -> Result<Box<dyn Handle>>;
    /// Makes one folder; `AlreadyExists` where the name is taken.
    fn make_one_folder(&self, path: &Path, mode: u32) -> Result<()>;
    /// Renames, replacing a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames; `AlreadyExists` where the new name is taken.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file; `NotFound` where there is none.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Removes a folder and all below it, without following links; one that is not there is fine.
    fn remove_tree(&self, path: &Path) -> Result<()>;
    /// Makes the names in a folder durable.
    fn sync_names(&self, path: &Path) -> Result<()>;
    /// The names in a folder, sorted.
    fn names(&self, path: &Path) -> Result<Vec<OsString>>;
    /// What is there; `None` where nothing is.
    fn stat(&self, path: &Path) -> Result<Option<Stat>>;
    /// Fails with the right kind where the caller may not write in a folder.
    fn check_writable(&self, folder: &Path) -> Result<()>;
    /// The name of the network file system that holds `path`, where it is one.
    fn network_file_system(&self, path: &Path) -> Result<Option<&'static str>>;
    /// Takes a lock if that needs no waiting. Where `create`, a file that is absent is made.
    fn try_lock(&self, path: &Path, mode: Mode, create: bool) -> Result<Option<Held>>;

    /// See [`Limits`].
    fn limits(&self) -> Limits {
        Limits { pack: pack::TARGET, helpers: parallel::other_cores() }
    }

    /// The uuid of a new store: random, but on the simulated disk, where names of packs must be the same in every run.
    fn new_uuid(&self) -> Result<[u8; 16]> {
        id::random()
    }

    /// Waits for a lock at most `patience`: `Busy` then, `Cancelled` before.
    fn lock(&self, path: &Path, mode: Mode, patience: Duration, control: &Control) -> Result<Held> {
        lock::poll(path, patience, control, || self.try_lock(path, mode, true))
    }

    /// As [`Disk::lock`] for a file or folder that exists: nothing is written.
    fn lock_existing(&self, path: &Path, mode: Mode, patience: Duration, control: &Control) -> Result<Held> {
        lock::poll(path, patience, control, || self.try_lock(path, mode, false))
    }

    /// The whole content of a file. What is not known to be of a bounded size is read with [`Disk::read_at_most`].
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.read_at_most(path, u64::MAX)
    }

    /// As [`Disk::read`]; `Corrupt` where it has more bytes, for which no memory is taken.
    fn read_at_most(&self, path: &Path, limit: u64) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let len = file.len().map_err(|source| Error::io("stat", path, source))?;
        if len > limit {
            return Err(Error::new(ErrorKind::Corrupt, format!("{} is too long: {len} bytes, of at most {limit}", path.display()))
                .with("path", path.display())
                .hint("put the file back from a copy of the store"));
        }
        // One byte more, so that the read that is not filled tells the end.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).saturating_add(1)];
        let mut filled = 0;
        loop {
            let Some(space) = bytes.get_mut(filled..).filter(|space| !space.is_empty()) else {
                bytes.resize(filled.saturating_mul(2), 0);
                continue;
            };
            match retried(|| file.read_at(space, filled as u64)).map_err(|source| Error::io("read", path, source))? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// As [`Disk::read_at_most`], with a file that does not exist as `None`.
    fn read_optional(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        match self.read_at_most(path, limit) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Makes a folder (and its missing parents with mode 0700); one that exists is left as it is.
    fn make_folder(&self, path: &Path, mode: u32) -> Result<()> {
        if self.is_folder(path)? {
            return Ok(());
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.make_folder(parent, 0o700)?;
        }
        match self.make_one_folder(path, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && self.is_folder(path)? => Ok(()),
            other => other,
        }
    }

    /// Whether it is a folder.
    fn is_folder(&self, path: &Path) -> Result<bool> {
        Ok(self.stat(path)?.is_some_and(|found| found.folder))
    }

    /// Writes a new file of these parts; the handle must be synced, once, before the content is relied on. Where it fails
    /// nothing is left.
    fn write_unsynced(&self, path: &Path, parts: &[&[u8]], mode: u32) -> Result<Box<dyn Handle>> {
        let file = self.create_new(path, mode)?;
        match parts.iter().try_for_each(|part| write_all(file.as_ref(), part)) {
            Ok(()) => Ok(file),
            Err(source) => {
                self.discard(path);
                Err(Error::io("write", path, source))
            }
        }
    }

    /// Writes a new file of these parts and makes its content durable; where that fails nothing is left.
    fn write_new(&self, path: &Path, parts: &[&[u8]], mode: u32, syncs: &Syncs) -> Result<()> {
        let file = self.write_unsynced(path, parts, mode)?;
        self.sync_file(file.as_ref(), path, syncs).inspect_err(|_| self.discard(path))
    }

    /// Makes the content of an open file durable.
    fn sync_file(&self, file: &dyn Handle, path: &Path, syncs: &Syncs) -> Result<()> {
        syncs.add();
        file.sync().map_err(|source| Error::io("fsync", path, source))
    }

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path, syncs: &Syncs) -> Result<()> {
        syncs.add();
        self.sync_names(path)
    }

    /// Removes a file; one that is not there is fine.
    fn remove_file(&self, path: &Path) -> Result<()> {
        match self.unlink(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The `count` greatest names in a folder, sorted.
    fn last_names(&self, path: &Path, count: usize) -> Result<Vec<OsString>> {
        let mut names = self.names(path)?;
        Ok(names.split_off(names.len().saturating_sub(count)))
    }

    /// Bytes that may still be written on the file system that holds `path`.
    fn free(&self, path: &Path) -> Result<u64> {
        let _ = path;
        Ok(u64::MAX)
    }

    /// Tells one file from another that takes its name later; `None` where nothing is there.
    fn stamp(&self, path: &Path) -> Result<Option<[u64; 4]>> {
        let Some(bytes) = self.read_optional(path, u64::MAX)? else { return Ok(None) };
        let hash = blake3::hash(&bytes);
        let (words, _) = hash.as_bytes().as_chunks::<8>();
        let mut stamp = [0; 4];
        stamp.iter_mut().zip(words).for_each(|(to, from)| *to = u64::from_le_bytes(*from));
        Ok(Some(stamp))
    }

    /// Removes a file on the way out of a failure, which is what the caller is told.
    fn discard(&self, path: &Path) {
        self.unlink(path).ok();
    }
}

/// The real one.
pub(in crate::store) fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// Fills the buffer from `offset` on, or fails with `UnexpectedEof`.
pub(in crate::store) fn read_exact_at(file: &dyn Handle, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match retried(|| file.read_at(buffer, offset))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                offset += count as u64;
                buffer = buffer.get_mut(count..).unwrap_or_default();
            }
        }
    }
    Ok(())
}

fn write_all(file: &dyn Handle, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retried(|| file.write(bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// A read or write that a signal interrupted has done nothing and is made again.
fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
