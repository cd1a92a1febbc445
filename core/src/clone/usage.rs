//! How much space a tree has for itself alone.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::progress::Control;
use crate::sys::extents::{self, DELALLOC, INLINE, SHARED, UNWRITTEN};
use crate::sys::parallel;

/// The space of a tree's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Bytes that have blocks, those that are shared counted in full.
    pub bytes: u64,
    /// Bytes that no other file has: what removing the tree would free. Two files of the tree that share blocks with each other count
    /// as sharing, and compressed content with its plain length. `None` where the file system does not tell.
    pub exclusive: Option<u64>,
}

/// Asks the file system for each file of the tree, hard links once. Content that has no place yet is given one. What vanishes
/// meanwhile, and what this user may not read, counts by its blocks as far as they are known, and then `exclusive` is `None`.
///
/// # Errors
/// `NotFound`, `Cancelled`, `Io`.
pub fn usage(tree: &Path, control: &Control) -> Result<Usage> {
    let mut files = Vec::new();
    list(tree, true, &mut HashSet::new(), &mut files)?;
    let each = parallel::map(&files, |(path, blocks)| control.check().and_then(|()| of_file(path, *blocks)))?;
    let mut sum = Usage { bytes: 0, exclusive: Some(0) };
    for of_file in each {
        sum.bytes += of_file.bytes;
        sum.exclusive = sum.exclusive.zip(of_file.exclusive).map(|(sum, more)| sum + more);
    }
    Ok(sum)
}

fn list(folder: &Path, top: bool, seen: &mut HashSet<(u64, u64)>, files: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !top => return Ok(()),
        entries => entries.map_err(|source| Error::io("list", folder, source))?,
    };
    for entry in entries {
        let entry = entry.map_err(|source| Error::io("list", folder, source))?;
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            list(&entry.path(), false, seen, files)?;
        } else if metadata.is_file() && metadata.len() > 0 && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino()))) {
            files.push((entry.path(), metadata.blocks() * 512));
        }
    }
    Ok(())
}

fn of_file(path: &Path, blocks: u64) -> Result<Usage> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Usage { bytes: 0, exclusive: Some(0) }),
        Err(_) => return Ok(Usage { bytes: blocks, exclusive: None }),
    };
    match extents::extents(&file) {
        Ok(extents) => {
            let placed = extents.iter().filter(|extent| extent.flags & (DELALLOC | INLINE) == 0 || extent.flags & UNWRITTEN != 0);
            let mut usage = Usage { bytes: 0, exclusive: Some(0) };
            for extent in placed {
                usage.bytes += extent.length;
                if extent.flags & SHARED == 0 {
                    usage.exclusive = usage.exclusive.map(|sum| sum + extent.length);
                }
            }
            Ok(usage)
        }
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::BADF) => {
            Ok(Usage { bytes: blocks, exclusive: never_shares(&file).then_some(blocks) })
        }
        // More extents than are worth the memory.
        Err(Errno::OVERFLOW) => Ok(Usage { bytes: blocks, exclusive: None }),
        Err(errno) => Err(Error::io("map the extents of", path, errno)),
    }
}

/// Whether it is a file system of memory, which has no way to share blocks.
#[cfg(target_os = "linux")]
fn never_shares(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|found| matches!(found.f_type as u64 & 0xffff_ffff, TMPFS | RAMFS))
}

#[cfg(not(target_os = "linux"))]
fn never_shares(_file: &File) -> bool {
    false
}
