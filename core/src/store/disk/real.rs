//! The real disk: `sys::fs` and flock.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;

use super::{Disk, Handle, Held, Stat};
use crate::error::{Error, Result};
use crate::sys::fs;
use crate::sys::lock::{Lock, Mode};

/// The file systems of this machine.
#[derive(Debug)]
pub(in crate::store) struct RealDisk;

impl Handle for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self;
        Write::write(&mut file, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        fs::sync(self)
    }

    fn start_writeback(&self) {
        fs::start_writeback(self);
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn Handle>> {
        Ok(Box::new(fs::open_regular(path)?))
    }

    fn create_new(&self, path: &Path, mode: u32) -> Result<Box<dyn Handle>> {
        Ok(Box::new(fs::create_new(path, mode)?))
    }

    fn make_one_folder(&self, path: &Path, mode: u32) -> Result<()> {
        std::fs::DirBuilder::new().mode(mode).create(path).map_err(|source| Error::io("create folder", path, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename_new(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|source| Error::io("remove", path, source))
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        fs::remove_tree(path)
    }

    fn sync_names(&self, path: &Path) -> Result<()> {
        fs::Syncs::new().folder(path)
    }

    fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        fs::names(path)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(Some(Stat { len: found.len(), folder: found.is_dir() })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            // A link to itself leads to nothing as well.
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
            Err(source) => Err(Error::io("stat", path, source)),
        }
    }

    fn check_writable(&self, folder: &Path) -> Result<()> {
        fs::check_writable(folder)
    }

    fn network_file_system(&self, path: &Path) -> Result<Option<&'static str>> {
        fs::network_file_system(path)
    }

    #[cfg(target_os = "linux")]
    fn last_names(&self, path: &Path, count: usize) -> Result<Vec<OsString>> {
        fs::last_names(path, count)
    }

    fn free(&self, path: &Path) -> Result<u64> {
        fs::free_bytes(path)
    }

    fn stamp(&self, path: &Path) -> Result<Option<[u64; 4]>> {
        match std::fs::symlink_metadata(path) {
            Ok(found) => Ok(Some([found.ino(), found.len(), found.ctime().cast_unsigned(), found.ctime_nsec().cast_unsigned()])),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("stat", path, source)),
        }
    }

    fn try_lock(&self, path: &Path, mode: Mode, create: bool) -> Result<Option<Held>> {
        let lock = if create { Lock::attempt(path, mode)? } else { Lock::attempt_existing(path, mode)? };
        Ok(lock.map(Held::Real))
    }
}
