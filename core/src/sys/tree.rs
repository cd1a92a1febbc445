//! Names below one folder: resolved beneath it, never through a symbolic link.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};

/// An open folder below which paths are resolved.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Folder.
    Folder,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character or block device.
    Device,
}

/// What lstat says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Names.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes that have blocks.
    pub allocated: u64,
    /// The 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change, nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl Root {
    /// Opens the folder, which must not itself be a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` where it is no folder, `Permission`, `Io`.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_owned() }),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Err(Error::new(ErrorKind::InvalidArgument, format!("{} is not a folder", path.display())).with("path", path.display()))
            }
            Err(errno) => Err(Error::io("open folder", path, errno)),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name below it, for messages.
    #[must_use]
    pub fn full(&self, relative: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(relative))
    }

    /// Opens what is at `relative` (empty: the root itself).
    ///
    /// # Errors
    /// What openat2 gives; ELOOP where a part is a symbolic link.
    pub fn open_at(&self, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(self.fd.as_fd(), relative, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)
    }

    /// Opens the folder at `relative` for listing and for the names in it.
    ///
    /// # Errors
    /// As [`Root::open_at`], ENOTDIR.
    pub fn folder(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(relative, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a regular file for reading without ever waiting for a pipe.
    ///
    /// # Errors
    /// As [`Root::open_at`].
    pub fn file(&self, relative: &[u8]) -> Result<File, Errno> {
        self.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).map(File::from)
    }

    /// The folder that holds `relative`, to use the last part of the path in; needs no permission to list it.
    ///
    /// # Errors
    /// As [`Root::open_at`].
    pub fn parent(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.open_at(split(relative).0, flags)
    }

    /// Whether both ways of resolving a path, the kernel's and ours, open the same for `relative`, or nothing.
    #[cfg(all(target_os = "linux", any(test, feature = "fuzzing")))]
    #[doc(hidden)]
    #[must_use]
    pub fn agrees(&self, relative: &[u8]) -> bool {
        let path: &[u8] = if relative.is_empty() { b"." } else { relative };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = [open_beneath, open_by_parts].map(|open| open(self.fd.as_fd(), path, flags).ok());
        let [kernel, ours] = opened.map(|found| found.map(|found| stat_open(found).map(|stat| (stat.dev, stat.ino))));
        kernel == ours
    }

    /// lstat of `relative`; a name that is not there, or whose folder is none, is `None`.
    ///
    /// # Errors
    /// What the calls give.
    pub fn stat(&self, relative: &[u8]) -> Result<Option<Stat>, Errno> {
        let folder = match self.parent(relative) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        stat_at(folder.as_fd(), split(relative).1)
    }
}

/// A path's folder and its last part.
#[must_use]
pub fn split(relative: &[u8]) -> (&[u8], &[u8]) {
    match relative.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (relative.get(..at).unwrap_or_default(), relative.get(at + 1..).unwrap_or_default()),
        None => (&[], relative),
    }
}

/// lstat of a name in a folder; one that is not there is `None`.
///
/// # Errors
/// What fstatat gives.
pub fn stat_at(folder: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Stat::from(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// fstat of an open file.
///
/// # Errors
/// What fstat gives.
pub fn stat_open(file: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(file).map(|stat| Stat::from(&stat))
}

/// Sets the 12 permission bits of what is at a path, which may be unreadable for us; never of what a link points to.
///
/// # Errors
/// What the calls give; ELOOP for a symbolic link.
pub fn chmod(root: &Root, relative: &[u8], mode: u16) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode.into());
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let held = root.open_at(relative, OFlags::PATH)?;
        if stat_open(&held)?.kind == Kind::Symlink {
            return Err(Errno::LOOP);
        }
        // A descriptor that gives no access can be changed by its name in procfs alone.
        match rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            result => return result,
        }
    }
    rustix::fs::fchmod(root.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK)?, mode)
}

/// Makes a named pipe with exactly this mode.
///
/// # Errors
/// What mknodat and fchmodat give.
#[cfg(target_os = "linux")]
pub fn make_fifo(folder: BorrowedFd<'_>, name: &[u8], mode: u16) -> Result<(), Errno> {
    rustix::fs::mknodat(folder, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    rustix::fs::chmodat(folder, name, Mode::from_raw_mode(mode.into()), AtFlags::empty())
}

/// Makes a named pipe with exactly this mode.
///
/// # Errors
/// Always: this system has no call for it that is relative to a folder.
#[cfg(not(target_os = "linux"))]
pub fn make_fifo(_folder: BorrowedFd<'_>, _name: &[u8], _mode: u16) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

impl From<&rustix::fs::Stat> for Stat {
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "the fields have other types on other systems")]
    fn from(stat: &rustix::fs::Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => Kind::Device,
        };
        Self {
            kind,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            nlink: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
            mode: (stat.st_mode & 0o7777) as u16,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime_ns: (stat.st_mtime as i64).saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
            ctime_ns: (stat.st_ctime as i64).saturating_mul(1_000_000_000).saturating_add(stat.st_ctime_nsec as i64),
        }
    }
}

fn open_beneath(root: BorrowedFd<'_>, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if relative.is_empty() { b"." } else { relative };
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        // EAGAIN: a rename elsewhere raced with the walk; the walk by parts does not mind.
        for _ in 0..8 {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => break,
                result => return result,
            }
        }
    }
    open_by_parts(root, path, flags)
}

fn open_by_parts(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let (folders, name) = split(path);
    let mut held: Option<OwnedFd> = None;
    for part in folders.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if part == b".." {
            return Err(Errno::XDEV);
        }
        let current = held.as_ref().map_or(root, |fd| fd.as_fd());
        let walk = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        let walk = walk | OFlags::PATH;
        held = Some(rustix::fs::openat(current, part, walk, Mode::empty())?);
    }
    if name == b".." {
        return Err(Errno::XDEV);
    }
    rustix::fs::openat(held.as_ref().map_or(root, |fd| fd.as_fd()), name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_do_not_lead_out() {
        let folder = tempfile::tempdir().expect("folder");
        let outside = tempfile::tempdir().expect("outside");
        std::fs::create_dir(folder.path().join("a")).expect("a");
        std::os::unix::fs::symlink(outside.path(), folder.path().join("a/link")).expect("link");
        let root = Root::open(folder.path()).expect("root");
        for open in [open_beneath, open_by_parts] {
            assert!(open(root.fd.as_fd(), b"a", OFlags::RDONLY).is_ok());
            for path in [&b"a/link/x"[..], b"../x", b"a/../../x", b"a/.."] {
                let result = open(root.fd.as_fd(), path, OFlags::RDONLY | OFlags::NOFOLLOW);
                assert!(result.is_err() || path == b"a/..", "{}", String::from_utf8_lossy(path));
            }
        }
    }
}
