//! Copying a whole tree in parallel.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::snapshot::{make_folder, remove_tree};
use super::{Backend, Method};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys::parallel;
use crate::sys::tree::{Kind, Root, Stat, make_fifo, split, stat_at, stat_open};

/// What to leave out and what to do with links.
#[derive(Default)]
pub struct TreeOptions<'a> {
    /// Paths relative to the source for which this is true are left out, with all below them.
    pub skip: Option<&'a (dyn Fn(&Path) -> bool + Sync)>,
    /// A name that vanishes while it is copied is left out instead of failing (files of a running server).
    pub live: bool,
    /// The copy is to be cloned again: it is made a folder that can be taken whole ([`super::make_folder`]). Files can not be
    /// renamed into or out of such a folder.
    pub cloned_again: bool,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeReport {
    /// How it was really done: a snapshot that was refused is made file by file.
    pub method: Method,
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Copies the tree `source` into the new folder `target`: modes, owners where allowed, times of files, symlinks as text,
/// hard links as separate files (a snapshot keeps them), named pipes; sockets and devices are left out. Nothing is synced
/// but a snapshot. On failure `target` is removed again.
///
/// # Errors
/// `AlreadyExists` where there is a `target`, `NotFound`, `Permission`, `NoSpace`, `Cancelled`, `Io`.
pub fn copy_tree(backend: &dyn Backend, source: &Path, target: &Path, options: &TreeOptions<'_>, control: &Control) -> Result<TreeReport> {
    let from = Root::open(source)?;
    control.check()?;
    if options.skip.is_none() && backend.clone_whole(source, target)? {
        return discard_failed(target, control.check().and_then(|()| count(target, backend.method())));
    }
    if options.cloned_again {
        make_folder(target, 0o700)?;
    } else {
        rustix::fs::mkdir(target, Mode::RWXU).map_err(|errno| Error::io("create folder", target, errno))?;
    }
    discard_failed(target, Root::open(target).and_then(|to| Copier { backend, from, to, options, control }.run()))
}

fn discard_failed(target: &Path, copied: Result<TreeReport>) -> Result<TreeReport> {
    copied.map_err(|error| match remove_tree(target) {
        Ok(()) => error,
        Err(left) => error.hint(format!("remove {} by hand: {left}", target.display())),
    })
}

/// What a tree that was taken whole holds.
fn count(folder: &Path, method: Method) -> Result<TreeReport> {
    let mut report = TreeReport { method, files: 0, bytes: 0 };
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|source| Error::io("list", &folder, source))? {
            let entry = entry.map_err(|source| Error::io("list", &folder, source))?;
            let metadata = entry.metadata().map_err(|source| Error::io("examine", &entry.path(), source))?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() {
                report.files += 1;
                report.bytes += metadata.len();
            }
        }
    }
    Ok(report)
}

struct Copier<'a> {
    backend: &'a dyn Backend,
    from: Root,
    to: Root,
    options: &'a TreeOptions<'a>,
    control: &'a Control,
}

impl Copier<'_> {
    fn run(&self) -> Result<TreeReport> {
        let top = self.from.folder(b"").and_then(stat_open).map_err(|errno| self.failed("stat", b"", errno))?;
        let mut folders = vec![(Vec::new(), top)];
        let mut files = Vec::new();
        let mut next = 0;
        while let Some((folder, _)) = folders.get(next).cloned() {
            self.control.check()?;
            self.list(&folder, &mut folders, &mut files)?;
            next += 1;
        }
        let (done, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        parallel::map(&files, |(path, stat)| {
            self.control.check()?;
            if let Some(copied) = self.copy_file(path, stat)? {
                done.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(copied, Ordering::Relaxed);
            }
            Ok::<_, Error>(())
        })?;
        let report = TreeReport { method: by_file(self.backend.method()), files: done.into_inner(), bytes: bytes.into_inner() };
        self.control.report("copy", report.bytes, report.bytes, Unit::Bytes);
        // Children first, so that a folder that may not be written to gets its mode when nothing more goes into it.
        for (path, stat) in folders.iter().rev() {
            let folder = self.to.folder(path).map_err(|errno| self.failed("open", path, errno))?;
            self.finish(&folder, path, stat)?;
        }
        Ok(report)
    }

    /// Makes what is in one folder, apart from the content of files.
    fn list(&self, folder: &[u8], folders: &mut Vec<(Vec<u8>, Stat)>, files: &mut Vec<(Vec<u8>, Stat)>) -> Result<()> {
        let fd = match self.from.folder(folder) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if self.options.live && !folder.is_empty() => return Ok(()),
            Err(errno) => return Err(self.failed("open", folder, errno)),
        };
        let target = self.to.folder(folder).map_err(|errno| self.failed("open copy of", folder, errno))?;
        for entry in rustix::fs::Dir::read_from(&fd).map_err(|errno| self.failed("list", folder, errno))? {
            let entry = entry.map_err(|errno| self.failed("list", folder, errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
            if self.options.skip.is_some_and(|skip| skip(Path::new(OsStr::from_bytes(&path)))) {
                continue;
            }
            let Some(stat) = stat_at(fd.as_fd(), name).map_err(|errno| self.failed("stat", &path, errno))? else {
                self.vanished(&path)?;
                continue;
            };
            match stat.kind {
                Kind::File => files.push((path, stat)),
                Kind::Folder => {
                    rustix::fs::mkdirat(&target, name, Mode::RWXU).map_err(|errno| self.failed("create copy of", &path, errno))?;
                    folders.push((path, stat));
                }
                Kind::Symlink => self.copy_symlink(&fd, &target, name, &path, &stat)?,
                Kind::Fifo => make_fifo(target.as_fd(), name, stat.mode).map_err(|errno| self.failed("create copy of", &path, errno))?,
                Kind::Socket | Kind::Device => {}
            }
        }
        Ok(())
    }

    fn copy_symlink(&self, from: &OwnedFd, to: &OwnedFd, name: &[u8], path: &[u8], stat: &Stat) -> Result<()> {
        match rustix::fs::readlinkat(from, name, Vec::new()) {
            Ok(text) => {
                rustix::fs::symlinkat(text.as_c_str(), to, name).map_err(|errno| self.failed("create copy of", path, errno))?;
                let (uid, gid) = owner(stat);
                allowed(rustix::fs::chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
                    .map_err(|errno| self.failed("set the owner of the copy of", path, errno))
            }
            Err(Errno::NOENT | Errno::INVAL) => self.vanished(path),
            Err(errno) => Err(self.failed("read", path, errno)),
        }
    }

    /// Gives the bytes, or nothing where the file vanished.
    fn copy_file(&self, path: &[u8], listed: &Stat) -> Result<Option<u64>> {
        let from = match self.from.file(path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return self.vanished(path).map(|()| None),
            Err(errno) => return Err(self.failed("open", path, errno)),
        };
        let stat = stat_open(&from).map_err(|errno| self.failed("stat", path, errno))?;
        if stat.kind != Kind::File {
            return self.vanished(path).map(|()| None);
        }
        let folder = self.to.parent(path).map_err(|errno| self.failed("open folder of the copy of", path, errno))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&folder, split(path).1, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.failed("create copy of", path, errno))?;
        let to = File::from(to);
        let bytes = self.backend.clone_file(&from, &self.from.full(path), &to, &self.to.full(path))?;
        self.finish(&to, path, listed)?;
        let time = Timespec { tv_sec: stat.mtime_ns.div_euclid(1_000_000_000), tv_nsec: stat.mtime_ns.rem_euclid(1_000_000_000) as _ };
        rustix::fs::futimens(&to, &Timestamps { last_access: time, last_modification: time })
            .map_err(|errno| self.failed("set the time of the copy of", path, errno))?;
        Ok(Some(bytes))
    }

    /// Owner first: a change of owner clears the set-user-id bits.
    fn finish(&self, copy: impl AsFd, path: &[u8], stat: &Stat) -> Result<()> {
        let (uid, gid) = owner(stat);
        let now = stat_open(&copy).map_err(|errno| self.failed("stat copy of", path, errno))?;
        if (now.uid, now.gid) != (stat.uid, stat.gid) {
            allowed(rustix::fs::fchown(&copy, Some(uid), Some(gid)))
                .map_err(|errno| self.failed("set the owner of the copy of", path, errno))?;
        }
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.mode.into()))
            .map_err(|errno| self.failed("set the mode of the copy of", path, errno))
    }

    fn vanished(&self, path: &[u8]) -> Result<()> {
        if self.options.live {
            return Ok(());
        }
        let path = self.from.full(path);
        Err(Error::new(ErrorKind::NotFound, format!("{} vanished while it was copied", path.display())).with("path", path.display()))
    }

    fn failed(&self, action: &str, path: &[u8], errno: Errno) -> Error {
        Error::io(action, &self.from.full(path), errno)
    }
}

/// A snapshot copies single files by reflink.
fn by_file(method: Method) -> Method {
    if method == Method::Snapshot { Method::Reflink } else { method }
}

fn owner(stat: &Stat) -> (rustix::fs::Uid, rustix::fs::Gid) {
    (rustix::fs::Uid::from_raw(stat.uid), rustix::fs::Gid::from_raw(stat.gid))
}

/// An ordinary user may not give files away, and a user namespace may not know the owner.
fn allowed(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        result => result,
    }
}
