//! The file that holds a pool: its blocks, its file system, its loop device.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::host::run;
use super::{PoolKind, gib};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys;

/// Asked for at once, between two looks at the cancel token.
const STEP: u64 = 1 << 30;
/// Stays free on the host's disk.
const LEFT: u64 = 256 << 20;

/// Gives the file blocks up to `size`, so that the pool never finds the host's disk full; `false` where the host's file system
/// cannot promise that, and the file only has the length. Where it fails the file has the length it had.
pub(super) fn reserve(file: &File, path: &Path, size: u64, control: &Control) -> Result<bool> {
    let before = file.metadata().map_err(|source| Error::io("stat", path, source))?.len();
    let needed = size.saturating_sub(before);
    let free = sys::fs::free_bytes(path)?;
    if free < needed.saturating_add(LEFT) {
        return Err(Error::new(
            ErrorKind::NoSpace,
            format!("{} more are needed for {}, and {} are free", gib(needed), path.display(), gib(free >> 20 << 20)),
        )
        .with("path", path.display())
        .with("needed", needed)
        .with("free", free)
        .hint(format!("free space on the file system of {} or ask for a smaller pool; {} stay free", path.display(), gib(LEFT))));
    }
    let reserved = allocate(file, path, before, size, control);
    if reserved.is_err() {
        file.set_len(before).map_err(|source| Error::io("set the length of", path, source))?;
    }
    reserved
}

fn allocate(file: &File, path: &Path, from: u64, size: u64, control: &Control) -> Result<bool> {
    let mut at = from;
    while at < size {
        control.check()?;
        let piece = (size - at).min(STEP);
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), at, piece) {
            Ok(()) => at += piece,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                file.set_len(size).map_err(|source| Error::io("set the length of", path, source))?;
                return Ok(false);
            }
            Err(errno) => return Err(Error::io("reserve space for", path, errno)),
        }
        control.report("reserve space", at, size, Unit::Bytes);
    }
    Ok(true)
}

/// Makes the file system in it. Blocks that were reserved stay so.
pub(super) fn format(kind: PoolKind, path: &Path) -> Result<()> {
    let path = path.as_os_str();
    match kind {
        PoolKind::Xfs => {
            run("mkfs.xfs", &["-q".as_ref(), "-K".as_ref(), "-m".as_ref(), "reflink=1".as_ref(), path], kind.package())?;
        }
        PoolKind::Btrfs => {
            run("mkfs.btrfs", &["-q".as_ref(), "-K".as_ref(), path], kind.package())?;
        }
    }
    Ok(())
}

/// Length, and bytes of the host's disk; 0 where there is none.
pub(super) fn sizes(path: &Path) -> Result<(u64, u64)> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok((metadata.len(), metadata.blocks() * 512)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((0, 0)),
        Err(source) => Err(Error::io("stat", path, source)),
    }
}

/// The file behind a loop device; `None` where that is not told.
pub(super) fn backing_file(device: &Path) -> Result<Option<PathBuf>> {
    let Some(name) = device.file_name() else { return Ok(None) };
    let told = sys::fs::read_optional(&Path::new("/sys/block").join(name).join("loop/backing_file"))?;
    let Some(mut told) = told else { return Ok(None) };
    while told.last() == Some(&b'\n') {
        told.pop();
    }
    Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(told))))
}
