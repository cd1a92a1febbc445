//! The backends behind one trait.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// Which way a backend copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// FICLONE (XFS, btrfs, bcachefs) or clonefile (APFS): shares extents.
    Reflink,
    /// copy_file_range, else read and write.
    Copy,
}

/// One way to copy a file.
pub trait Backend: Send + Sync {
    /// Which way.
    fn method(&self) -> Method;
    /// Whether the copy shares its blocks with the source, so that it costs no space.
    fn shares_blocks(&self) -> bool;
    /// Copies the whole content of `from` to the empty file `to` (holes stay holes where the way allows it) and gives the
    /// bytes it holds. The paths are for errors. A file that changes meanwhile gives one of its states or a mixture.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; `to` then holds anything.
    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64>;
}

/// Shares extents; a single file for which the file system refuses that (a swap file, another mount) is copied.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reflink;

/// Copies bytes, inside the kernel where it can.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copy;

impl Backend for Reflink {
    fn method(&self) -> Method {
        Method::Reflink
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64> {
        match share(from, from_path, to, to_path) {
            Ok(()) => length(to, to_path),
            Err(errno) if refused(errno) => Copy.clone_file(from, from_path, to, to_path),
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
            copy_piece(from, from_path, to, to_path, offset, length)?;
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

/// The cheapest backend that really works from files below `source` to files below the folder `target`, found by cloning
/// a probe file made (and removed) in `target`'s file system.
///
/// # Errors
/// `NotFound`, `Permission`, `ReadOnly`, `NoSpace`, `Io` where `target` cannot be written to.
pub fn choose(source: &Path, target: &Path) -> Result<Box<dyn Backend>> {
    let device = |path: &Path| {
        std::fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::dev(&data)).map_err(|error| Error::io("stat", path, error))
    };
    let name = sys::id::sortable()?;
    let from = Probe::new(target.join(format!(".{name}.probe")))?;
    let to = Probe::new(target.join(format!(".{name}.clone")))?;
    // Whole blocks: some file systems inline tiny files and would share nothing.
    (&from.file).write_all(&[7; 16 << 10]).map_err(|error| Error::io("write", &from.path, error))?;
    if share(&from.file, &from.path, &to.file, &to.path).is_err() {
        return Ok(Box::new(Copy));
    }
    // The probe spoke for the target's file system; the source has to be on the same one (a btrfs subvolume has its own
    // device number, so there a file of the source decides).
    if device(source)? == device(target)? || shares_from(source, target)? { Ok(Box::new(Reflink)) } else { Ok(Box::new(Copy)) }
}

fn shares_from(source: &Path, target: &Path) -> Result<bool> {
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(names) = std::fs::read_dir(&folder) else { continue };
        for entry in names.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.metadata().is_ok_and(|data| data.len() > 0) {
                let Ok(from) = File::open(entry.path()) else { continue };
                let to = Probe::new(target.join(format!(".{}.clone", sys::id::sortable()?)))?;
                return Ok(share(&from, &entry.path(), &to.file, &to.path).is_ok());
            }
        }
    }
    Ok(false)
}

/// A file that is removed when it is dropped.
struct Probe {
    file: File,
    path: std::path::PathBuf,
}

impl Probe {
    fn new(path: std::path::PathBuf) -> Result<Self> {
        Ok(Self { file: sys::fs::create_new(&path, 0o600)?, path })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _gone = sys::fs::remove_file(&self.path);
    }
}

#[cfg(target_os = "linux")]
fn share(from: &File, _from_path: &Path, to: &File, _to_path: &Path) -> Result<(), Errno> {
    loop {
        match rustix::fs::ioctl_ficlone(to, from) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(target_os = "macos")]
fn share(from: &File, _from_path: &Path, _to: &File, to_path: &Path) -> Result<(), Errno> {
    // clonefile makes its target, so the empty file gives way to it; the caller's descriptor no longer counts.
    let beside = to_path.with_extension("forklift-clone");
    rustix::fs::fclonefileat(from, rustix::fs::CWD, &beside, rustix::fs::CloneFlags::empty())?;
    rustix::fs::rename(&beside, to_path)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn share(_from: &File, _from_path: &Path, _to: &File, _to_path: &Path) -> Result<(), Errno> {
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

fn copy_piece(from: &File, from_path: &Path, to: &File, to_path: &Path, offset: u64, length: u64) -> Result<()> {
    let done = copy_in_kernel(from, to, to_path, offset, length)?;
    if done < length { copy_by_hand(from, from_path, to, to_path, offset + done, length - done) } else { Ok(()) }
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
