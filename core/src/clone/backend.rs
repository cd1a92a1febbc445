//! The backends behind one trait.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::io::Errno;

use super::zfs;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// Which way a backend copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A snapshot of a subvolume of btrfs: the whole tree at one instant.
    Snapshot,
    /// FICLONE (XFS, btrfs, bcachefs, ZFS) or clonefile (APFS): shares extents.
    Reflink,
    /// copy_file_range, else read and write.
    Copy,
}

/// What the time of a copy grows with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// With nothing: one transaction of the file system, however large the tree is.
    Constant,
    /// With the number of files and of their extents.
    Extents,
    /// With the bytes.
    Bytes,
}

impl Method {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Snapshot => "snapshot",
            Method::Reflink => "reflink",
            Method::Copy => "copy",
        }
    }

    /// What its time grows with.
    #[must_use]
    pub fn cost(self) -> Cost {
        match self {
            Method::Snapshot => Cost::Constant,
            Method::Reflink => Cost::Extents,
            Method::Copy => Cost::Bytes,
        }
    }
}

/// One way to copy.
pub trait Backend: Send + Sync {
    /// Which way.
    fn method(&self) -> Method;
    /// Whether the copy shares its blocks with the source, so that it costs no space until one of them is written to.
    fn shares_blocks(&self) -> bool;
    /// Whether a whole tree is taken at one instant, so that a copy of a tree that is written to is one of its states.
    fn is_atomic(&self) -> bool {
        false
    }
    /// What its time grows with.
    fn cost(&self) -> Cost {
        self.method().cost()
    }
    /// Makes the new folder `target` a copy of the tree `source` in one step; `false` where this way or this tree does not
    /// allow that, and nothing was made.
    ///
    /// # Errors
    /// `AlreadyExists`, `NoSpace`, `Io`; nothing is left then.
    fn clone_whole(&self, source: &Path, target: &Path) -> Result<bool> {
        let _ = (source, target);
        Ok(false)
    }
    /// Copies the whole content of `from` to the empty file `to` (holes stay holes where the way allows it) and gives the
    /// bytes it holds. The paths are for errors. A file that changes meanwhile gives one of its states or a mixture.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; `to` then holds anything.
    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64>;
}

/// Shares extents; a single file for which the file system refuses that (a swap file, another mount) is copied.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reflink {
    /// The file system is ZFS, whose clones of what is not on disk yet were wrong or refused: see `zfs`.
    pub(super) zfs: bool,
}

/// Copies bytes, inside the kernel where it can.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copy {
    /// Without copy_file_range, which clones blocks on a ZFS whose clones are not to be trusted.
    pub(super) by_hand: bool,
}

impl Backend for Reflink {
    fn method(&self) -> Method {
        Method::Reflink
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64> {
        let before = if self.zfs { zfs::settle(from, from_path)? } else { 0 };
        match share(from, from_path, to, to_path) {
            Ok(()) => {
                let cloned = length(to, to_path)?;
                // One that came out short is no state that the file had, unless it was cut meanwhile: then bytes are as good.
                if cloned < before { Copy { by_hand: true }.clone_file(from, from_path, to, to_path) } else { Ok(cloned) }
            }
            Err(errno) if refused(errno) || (self.zfs && errno == Errno::AGAIN) => {
                Copy { by_hand: self.zfs }.clone_file(from, from_path, to, to_path)
            }
            Err(errno) => Err(Error::io("clone to", to_path, errno)),
        }
    }
}

impl Backend for Copy {
    fn method(&self) -> Method {
        Method::Copy
    }

    fn shares_blocks(&self) -> bool {
        false
    }

    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64> {
        let size = length(from, from_path)?;
        let sparse = sys::tree::stat_open(from).is_ok_and(|stat| stat.allocated < stat.size);
        let holes =
            if sparse { sys::holes::holes(from, size).map_err(|errno| Error::io("seek in", from_path, errno))? } else { Vec::new() };
        for (offset, length) in sys::holes::data(&holes, size) {
            let done = if self.by_hand { 0 } else { copy_in_kernel(from, to, to_path, offset, length)? };
            if done < length {
                copy_by_hand(from, from_path, to, to_path, offset + done, length - done)?;
            }
        }
        // A file that shrank meanwhile, or that ends in a hole, still gets the length it had.
        if length(to, to_path)? != size {
            to.set_len(size).map_err(|source| Error::io("set length of", to_path, source))?;
        }
        match length(to, to_path)? {
            copied if copied == size => Ok(size),
            copied => Err(Error::new(ErrorKind::Io, format!("{} has {copied} of {size} bytes after the copy", to_path.display()))
                .with("path", to_path.display())),
        }
    }
}

/// Makes `to` share all of `from`.
#[cfg(target_os = "linux")]
pub(super) fn share(from: &File, _from_path: &Path, to: &File, _to_path: &Path) -> Result<(), Errno> {
    loop {
        match rustix::fs::ioctl_ficlone(to, from) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Makes `to` share all of `from`.
#[cfg(target_os = "macos")]
pub(super) fn share(from: &File, _from_path: &Path, _to: &File, to_path: &Path) -> Result<(), Errno> {
    // clonefile makes its target, so the empty file gives way to it; the caller's descriptor no longer counts.
    let beside = to_path.with_extension("forklift-clone");
    rustix::fs::fclonefileat(from, rustix::fs::CWD, &beside, rustix::fs::CloneFlags::empty())?;
    rustix::fs::rename(&beside, to_path)
}

/// There is no way known on this system.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn share(_from: &File, _from_path: &Path, _to: &File, _to_path: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// The refusals after which the bytes are copied instead: another file system, none that shares, a file that cannot be
/// shared (swap, immutable, other alignment), a running program.
fn refused(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::TXTBSY | Errno::NOTTY | Errno::NOSYS | Errno::PERM | Errno::MLINK
    )
}

fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(file.metadata().map_err(|source| Error::io("stat", path, source))?.len())
}

/// Gives how much was copied before the kernel refused or the file ended.
#[cfg(target_os = "linux")]
fn copy_in_kernel(from: &File, to: &File, to_path: &Path, offset: u64, length: u64) -> Result<u64> {
    let (mut input, mut output) = (offset, offset);
    let end = offset + length;
    while input < end {
        let piece = usize::try_from((end - input).min(1 << 30)).unwrap_or(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut input), to, Some(&mut output), piece) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) if refused(errno) => break,
            Err(errno) => return Err(Error::io("copy to", to_path, errno)),
        }
    }
    Ok(input - offset)
}

#[cfg(not(target_os = "linux"))]
fn copy_in_kernel(_from: &File, _to: &File, _to_path: &Path, _offset: u64, _length: u64) -> Result<u64> {
    Ok(0)
}

/// copy_file_range also gives 0 for files that have content but no size (procfs) and on some network mounts: read then.
fn copy_by_hand(mut from: &File, from_path: &Path, mut to: &File, to_path: &Path, offset: u64, length: u64) -> Result<()> {
    from.seek(SeekFrom::Start(offset)).map_err(|source| Error::io("seek in", from_path, source))?;
    to.seek(SeekFrom::Start(offset)).map_err(|source| Error::io("seek in", to_path, source))?;
    let mut buffer = vec![0_u8; 1 << 20];
    let mut left = length;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let room = buffer.get_mut(..want).unwrap_or_default();
        let got = match from.read(room) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Error::io("read", from_path, source)),
        };
        to.write_all(room.get(..got).unwrap_or_default()).map_err(|source| Error::io("write", to_path, source))?;
        left -= got as u64;
    }
    Ok(())
}
