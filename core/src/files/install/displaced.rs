//! What a rename brought out: removed where a checkpoint has it, kept where it is somebody's only copy.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::work::Work;
use crate::clone::{TreeOptions, choose, copy_tree};
use crate::error::{Error, Result};
use crate::files::content::{matches, same_state};
use crate::files::plan::Verdict;
use crate::store::{ChunkRef, EntryKind};
use crate::sys;
use crate::sys::lease::{Asked, ask};
use crate::sys::tree::{Kind, Stat, split, stat_at, stat_open};

/// The longest that somebody who opens a displaced file for writing is made to wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// What became of a displaced file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A checkpoint has it, nobody writes to it, and it is gone.
    Removed,
    /// A checkpoint has it; whether somebody writes to it cannot be known here. It is still there, for a second look by the
    /// next install.
    Unsure,
    /// No checkpoint has it, or somebody wrote to it while it was looked at. It is still there.
    Edited,
    /// Somebody has it open or mapped for writing. It is still there.
    Open,
}

/// Looks at what lies under a temporary name and belongs to `path`, and removes it where that loses nothing.
pub(super) fn examine(work: &Work<'_>, parent: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Fate> {
    let failed = |action: &str, errno: Errno| work.failed(action, path, errno);
    let Some(stat) = stat_at(parent.as_fd(), name).map_err(|errno| failed("stat what was at", errno))? else { return Ok(Fate::Removed) };
    let before = work.safety.get(path);
    let after = work.target.binary_search_by(|entry| entry.path.as_slice().cmp(path)).ok().and_then(|at| work.target.get(at));
    let kinds = [before, after].into_iter().flatten().map(|entry| &entry.kind);
    let remove = || match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Fate::Removed),
        Err(errno) => Err(failed("remove what was at", errno)),
    };
    match stat.kind {
        Kind::File => {
            let contents = kinds.filter_map(|kind| match kind {
                EntryKind::File { size, chunks, .. } if *size == stat.size => Some(chunks.as_slice()),
                _ => None,
            });
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                Err(Errno::ACCESS | Errno::PERM) => return Ok(Fate::Edited),
                Err(errno) => return Err(failed("open what was at", errno)),
            };
            judge(&file, &work.root.full(path), &contents.collect::<Vec<_>>(), &remove)
        }
        Kind::Symlink => {
            let text = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(|errno| failed("read link", errno))?;
            let known = kinds.into_iter().any(|kind| matches!(kind, EntryKind::Symlink(known) if known == text.as_bytes()));
            if known { remove() } else { Ok(Fate::Edited) }
        }
        Kind::Fifo | Kind::Socket => {
            let known = kinds.into_iter().any(|kind| matches!(kind, EntryKind::Fifo | EntryKind::Socket));
            if known { remove() } else { Ok(Fate::Edited) }
        }
        Kind::Folder | Kind::Device => Ok(Fate::Edited),
    }
}

/// Whether the file is one of the contents and stays so; then it is removed while nobody can open it for writing.
fn judge(file: &File, path: &Path, contents: &[&[ChunkRef]], remove: &dyn Fn() -> Result<Fate>) -> Result<Fate> {
    let stat = || stat_open(file).map_err(|errno| Error::io("stat what was at", path, errno));
    if contents.is_empty() {
        return Ok(Fate::Edited);
    }
    let mut lease = match ask(file) {
        Asked::Held(lease) => Some(lease),
        Asked::OpenForWriting => return Ok(Fate::Open),
        Asked::Unavailable => None,
    };
    let leases = lease.is_some();
    let before = stat()?;
    let start = Instant::now();
    let mut undisturbed = true;
    let mut more = || {
        if lease.as_ref().is_some_and(|lease| !lease.is_whole()) {
            undisturbed = false;
        } else if start.elapsed() > PATIENCE {
            lease = None;
        }
        undisturbed
    };
    let mut known = false;
    for chunks in contents {
        known = known || matches(file, path, chunks, &mut more)?;
    }
    if !known || !undisturbed {
        return Ok(Fate::Edited);
    }
    if !leases {
        // Systems without leases have no second look either.
        return match same_state(&before, &stat()?) {
            true if cfg!(target_os = "linux") => Ok(Fate::Unsure),
            true => remove(),
            false => Ok(Fate::Edited),
        };
    }
    // A large file was let go for a while. Nobody had it open for writing at `before`, so a write since then moved its stat.
    let held = match lease {
        Some(lease) => Asked::Held(lease),
        None => ask(file),
    };
    match held {
        Asked::Held(lease) if lease.is_whole() && same_state(&before, &stat()?) => remove(),
        _ => Ok(Fate::Edited),
    }
}

/// Moves what lies under a name to the folder of kept files and notes it. Where that is another file system a file is
/// copied and, if somebody may still be writing to it, left beside the result as well.
pub(super) fn keep(work: &mut Work<'_>, parent: &OwnedFd, name: &[u8], path: &[u8]) -> Result<()> {
    let to = free_place(work.kept, path)?;
    match rustix::fs::renameat_with(parent, name, rustix::fs::CWD, &to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::BUSY) => copy_out(work, parent, name, path, &to)?,
        Err(errno) => return Err(Error::io("keep a displaced file as", &to, errno)),
    }
    work.syncs.folder(to.parent().unwrap_or(work.kept))?;
    work.touched.insert(split(path).0.to_vec());
    work.note(path, Verdict::Kept);
    Ok(())
}

/// A path below `kept` that nothing has yet, with its folders made.
fn free_place(kept: &Path, path: &[u8]) -> Result<PathBuf> {
    let plain = kept.join(OsStr::from_bytes(path));
    // Too deep to be named by one path, or a kept file where a folder is needed now: under its hash, flat.
    let flat = || kept.join(blake3::hash(path).to_hex().as_str());
    let parent = plain.parent().unwrap_or(kept);
    let fits = plain.as_os_str().len() < 3900 && split(path).1.len() < 240;
    let first = if fits && sys::fs::make_folder(parent, 0o700).is_ok() { plain } else { flat() };
    sys::fs::make_folder(first.parent().unwrap_or(kept), 0o700)?;
    let mut place = first.clone();
    let mut next = 1;
    while std::fs::symlink_metadata(&place).is_ok() {
        let mut name = first.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{next}"));
        place = first.with_file_name(name);
        next += 1;
    }
    Ok(place)
}

fn copy_out(work: &Work<'_>, parent: &OwnedFd, name: &[u8], path: &[u8], to: &Path) -> Result<()> {
    let failed = |errno| Error::io("keep a displaced file as", to, errno);
    let Some(stat) = stat_at(parent.as_fd(), name).map_err(failed)? else { return Ok(()) };
    match stat.kind {
        Kind::File => copy_file(work, parent, name, path, to, &stat),
        Kind::Symlink => {
            let text = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(failed)?;
            rustix::fs::symlink(text.as_c_str(), to).map_err(failed)?;
            rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(failed)
        }
        Kind::Folder => {
            let from = work.root.full(path).with_file_name(OsStr::from_bytes(name));
            let backend = choose(&from, to.parent().unwrap_or(work.kept))?;
            copy_tree(backend.as_ref(), &from, to, &TreeOptions::default(), &work.control.uncancellable())?;
            work.syncs.file_system(work.kept)?;
            sys::fs::remove_tree(&from)
        }
        Kind::Fifo | Kind::Socket | Kind::Device => rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(failed),
    }
}

fn copy_file(work: &Work<'_>, parent: &OwnedFd, name: &[u8], path: &[u8], to: &Path, stat: &Stat) -> Result<()> {
    let failed = |errno| Error::io("keep a displaced file as", to, errno);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?);
    let copy = sys::fs::create_new(to, 0o600)?;
    let backend = choose(work.root.path(), to.parent().unwrap_or(work.kept))?;
    let lease = ask(&from);
    let before = stat_open(&from).map_err(failed)?;
    backend.clone_file(&from, &work.root.full(path), &copy, to)?;
    rustix::fs::fchmod(&copy, Mode::from_raw_mode((stat.mode & 0o777).into())).map_err(failed)?;
    work.syncs.file(&copy, to)?;
    let whole = matches!(&lease, Asked::Held(lease) if lease.is_whole());
    if whole && same_state(&before, &stat_open(&from).map_err(failed)?) {
        rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(failed)?;
    }
    Ok(())
}

/// Renames without replacing, in one folder; on file systems that cannot, by a hard link, else after a look.
pub(super) fn rename_new(parent: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(parent, from, parent, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        result => return result,
    }
    match rustix::fs::linkat(parent, from, parent, to, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(parent, from, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => match stat_at(parent.as_fd(), to)? {
            None => rustix::fs::renameat(parent, from, parent, to),
            Some(_) => Err(Errno::EXIST),
        },
        Err(errno) => Err(errno),
    }
}
