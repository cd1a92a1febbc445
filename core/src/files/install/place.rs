//! Bringing one path into place.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::Extent;
use super::displaced::{Fate, examine, keep, rename_new};
use super::put_back::put_back;
use super::stage::{staged, staged_name, write_content};
use super::steps::{clear_folder, remove_folder};
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::{State, same_owner};
use crate::files::plan::Verdict;
use crate::files::temporary;
use crate::store::{Entry, EntryKind};
use crate::sys;
use crate::sys::lease::{Asked, ask};
use crate::sys::tree::{Kind, Stat, split, stat_at, stat_open};

/// How often somebody may change the kind of what is at a path under our hands.
const ATTEMPTS: usize = 8;

/// A file, link or pipe that is whole under a temporary name beside its path.
pub(super) struct Beside {
    parent: OwnedFd,
    ready: Vec<u8>,
    stat: Option<Stat>,
}

/// What became of a path that was missing.
pub(super) enum Fresh {
    /// It is in place, with the stat it had beside.
    Placed(Option<Stat>),
    /// Something came in its way meanwhile.
    Waiting(Beside),
}

/// Writes a file, link or pipe beside its path, brings it into place, and gives the stat it had beside; nothing where a rewind leaves
/// what is there.
pub(super) fn whole(work: &mut Work<'_>, entry: &Entry, state: State) -> Result<Option<Stat>> {
    if work.leave_moved(&entry.path)? || !work.prepare_above(&entry.path)? {
        return Ok(None);
    }
    let beside = beside(work, entry)?;
    insert(work, entry, state, &beside)
}

/// As [`whole`] for files of one folder that are missing and whose folders are prepared: for many at once. The caller notes
/// them, and calls [`insert`] for one that waits. A staged file that has its mode and owner is renamed into place at once.
pub(super) fn fresh(work: &Work<'_>, staging: Option<&OwnedFd>, entries: &[&Entry]) -> Result<Vec<Fresh>> {
    let Some(first) = entries.first() else { return Ok(Vec::new()) };
    let parent = work.root.parent(&first.path).map_err(|errno| work.failed("open the folder of", &first.path, errno))?;
    let place = |entry: &&Entry| {
        work.control.check()?;
        if let Some(stat) = staging.and_then(|staging| directly(staging, &parent, entry)) {
            return Ok(Fresh::Placed(Some(stat)));
        }
        let beside = beside(work, entry)?;
        match rename_new(&beside.parent, &beside.ready, split(&entry.path).1) {
            Ok(()) => Ok(Fresh::Placed(beside.stat)),
            Err(_) => Ok(Fresh::Waiting(beside)),
        }
    };
    entries.iter().map(place).collect()
}

/// Renames a staged file that is ready as it is; nothing where it is not, or where that does not work.
fn directly(staging: &OwnedFd, parent: &OwnedFd, entry: &Entry) -> Option<Stat> {
    let EntryKind::File { size, .. } = &entry.kind else { return None };
    let name = staged_name(&entry.path);
    let stat = stat_at(staging.as_fd(), name.as_bytes()).ok().flatten()?;
    let dressed = stat.kind == Kind::File && stat.size == *size && stat.mode == entry.mode && entry.xattrs.is_empty();
    if !dressed || !same_owner(entry, &stat) {
        return None;
    }
    rustix::fs::renameat_with(staging, name.as_str(), parent, split(&entry.path).1, RenameFlags::NOREPLACE).ok()?;
    Some(stat)
}

/// Brings what is whole beside its path into place.
pub(super) fn insert(work: &mut Work<'_>, entry: &Entry, state: State, beside: &Beside) -> Result<Option<Stat>> {
    if !bring_in(work, &beside.parent, &beside.ready, &entry.path)? {
        return Ok(None);
    }
    work.note(&entry.path, if state == State::Missing { Verdict::Create } else { Verdict::Restore });
    Ok(beside.stat)
}

fn beside(work: &Work<'_>, entry: &Entry) -> Result<Beside> {
    let path = &entry.path;
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    let (unfinished, ready) = temporary::pair(path)?;
    let written = write_beside(work, entry, &parent, &unfinished).and_then(|()| {
        rustix::fs::renameat(&parent, &unfinished, &parent, &ready)
            .map_err(|errno| work.failed("rename what was written beside", path, errno))
    });
    if let Err(error) = written {
        // What is left is worth nothing, and the next run removes it where this cannot.
        let _left = rustix::fs::unlinkat(&parent, &unfinished, AtFlags::empty());
        return Err(error);
    }
    let stat = stat_at(parent.as_fd(), &ready).map_err(|errno| work.failed("stat what was written beside", path, errno))?;
    Ok(Beside { parent, ready, stat })
}

/// Makes a path another name of the file that `leader` of the target is, and gives the stat it had beside; nothing where it
/// is one already.
pub(super) fn link(work: &mut Work<'_>, entry: &Entry, leader: usize, state: State) -> Result<Option<Stat>> {
    let path = &entry.path;
    if work.leave_moved(path)? || !work.prepare_above(path)? {
        return Ok(None);
    }
    let Some(first) = work.target.get(leader).map(|entry| entry.path.clone()) else { return Ok(None) };
    let identity = |path: &[u8]| {
        let stat = work.root.stat(path).map_err(|errno| work.failed("stat", path, errno))?;
        Ok::<_, Error>(stat.filter(|stat| stat.kind == Kind::File).map(|stat| (stat.dev, stat.ino)))
    };
    let (own, wanted) = (identity(path)?, identity(&first)?);
    if own.is_some() && own == wanted {
        return Ok(None);
    }
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    let from = work.root.parent(&first).map_err(|errno| work.failed("open the folder of", &first, errno))?;
    let (_, ready) = temporary::pair(path)?;
    match rustix::fs::linkat(&from, split(&first).1, &parent, &ready, AtFlags::empty()) {
        Ok(()) => {}
        // No hard links here, too many, or across a mount: the content is what counts.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::XDEV | Errno::NOENT) => return whole(work, entry, state),
        Err(errno) => return Err(work.failed("link", path, errno)),
    }
    let written = stat_at(parent.as_fd(), &ready).map_err(|errno| work.failed("stat what was written beside", path, errno))?;
    if !bring_in(work, &parent, &ready, path)? {
        return Ok(None);
    }
    work.note(path, if state == State::Missing { Verdict::Create } else { Verdict::Restore });
    Ok(written)
}

/// Sets owner, mode and attributes of what is in place already.
pub(super) fn metadata(work: &mut Work<'_>, entry: &Entry) -> Result<()> {
    let path = &entry.path;
    work.open_above(path)?;
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    let name = split(path).1;
    let Some(stat) = stat_at(parent.as_fd(), name).map_err(|errno| work.failed("stat", path, errno))? else { return Ok(()) };
    if (stat.uid, stat.gid) != (entry.uid, entry.gid) {
        let (uid, gid) = owner(entry);
        allowed(rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
            .map_err(|errno| work.failed("set the owner of", path, errno))?;
    }
    if stat.kind != Kind::Symlink {
        if matches!(stat.kind, Kind::File | Kind::Folder) {
            let open = || work.root.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK);
            let fd = match open() {
                Err(Errno::ACCESS) => sys::tree::chmod(&work.root, path, stat.mode | 0o600).and_then(|()| open()),
                result => result,
            };
            let fd = fd.map_err(|errno| work.failed("open", path, errno))?;
            set_attributes(&fd, entry).map_err(|errno| work.failed("set attributes of", path, errno))?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(entry.mode.into())).map_err(|errno| work.failed("set the mode of", path, errno))?;
        } else {
            sys::tree::chmod(&work.root, path, entry.mode).map_err(|errno| work.failed("set the mode of", path, errno))?;
        }
    }
    work.touched.insert(split(path).0.to_vec());
    if entry.kind == EntryKind::Folder {
        work.touched.insert(path.clone());
    }
    let verdict = work.verdicts.get(path.as_slice()).copied().unwrap_or(Verdict::Restore);
    work.note(path, verdict);
    Ok(())
}

fn write_beside(work: &Work<'_>, entry: &Entry, parent: &OwnedFd, name: &[u8]) -> Result<()> {
    let path = &entry.path;
    let failed = |errno| work.failed("write beside", path, errno);
    match &entry.kind {
        EntryKind::File { size, chunks, holes, .. } => {
            let source = staged(work.staging, path);
            let (file, synced) = match rustix::fs::renameat(rustix::fs::CWD, &source, parent, name) {
                Ok(()) => {
                    let open = || open_beside(parent, name, OFlags::empty());
                    let file = match open() {
                        // It was staged with its own mode, which may keep its owner out.
                        Err(Errno::ACCESS) => {
                            rustix::fs::chmodat(parent, name, Mode::RUSR | Mode::WUSR, AtFlags::empty()).and_then(|()| open())
                        }
                        result => result,
                    };
                    (file.map_err(failed)?, true)
                }
                Err(Errno::NOENT | Errno::XDEV | Errno::NOTDIR) => {
                    let file = open_beside(parent, name, OFlags::CREATE | OFlags::EXCL).map_err(failed)?;
                    write_content(work.reader, &file, &work.root.full(path), chunks, holes, *size)?;
                    (file, false)
                }
                Err(errno) => return Err(failed(errno)),
            };
            dress(&file, entry).map_err(failed)?;
            if synced { Ok(()) } else { work.syncs.file(&file, &work.root.full(path)) }
        }
        EntryKind::Symlink(text) => {
            rustix::fs::symlinkat(text.as_slice(), parent, name).map_err(failed)?;
            let (uid, gid) = owner(entry);
            allowed(rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)).map_err(failed)
        }
        EntryKind::Fifo => {
            sys::tree::make_fifo(parent.as_fd(), name, 0o600).map_err(failed)?;
            let (uid, gid) = owner(entry);
            allowed(rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)).map_err(failed)?;
            rustix::fs::chmodat(parent, name, Mode::from_raw_mode(entry.mode.into()), AtFlags::empty()).map_err(failed)
        }
        EntryKind::Folder | EntryKind::Socket => {
            let path = crate::files::scan::lossy(path);
            Err(Error::new(ErrorKind::Internal, format!("{} is not written beside", path.display())).with("path", path.display()))
        }
    }
}

fn open_beside(parent: &OwnedFd, name: &[u8], more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Owner first, since a change of owner clears the set-user-id bits; all of it before the content can be seen.
fn dress(file: &File, entry: &Entry) -> Result<(), Errno> {
    let stat = stat_open(file)?;
    if (stat.uid, stat.gid) != (entry.uid, entry.gid) {
        let (uid, gid) = owner(entry);
        allowed(rustix::fs::fchown(file, Some(uid), Some(gid)))?;
    }
    set_attributes(file, entry)?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode.into()))
}

/// As [`dress`] for a file without attributes that has this stat.
pub(super) fn own(file: &File, stat: &Stat, entry: &Entry) -> Result<(), Errno> {
    let given = (stat.uid, stat.gid) != (entry.uid, entry.gid);
    if given {
        let (uid, gid) = owner(entry);
        allowed(rustix::fs::fchown(file, Some(uid), Some(gid)))?;
    }
    if given || stat.mode != entry.mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode.into()))?;
    }
    Ok(())
}

fn set_attributes(file: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    let wanted: Vec<(&[u8], &[u8])> = entry.xattrs.iter().map(|xattr| (xattr.name.as_slice(), xattr.value.as_slice())).collect();
    sys::xattr::write(file.as_fd(), &wanted).map(|_| ())
}

fn owner(entry: &Entry) -> (Uid, Gid) {
    (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid))
}

/// An ordinary user may not give files away, and a user namespace may not know the owner.
fn allowed(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        result => result,
    }
}

/// Brings what is whole under a temporary name to its path, and sees to what was there; tells whether it is there now.
fn bring_in(work: &mut Work<'_>, parent: &OwnedFd, ready: &[u8], path: &[u8]) -> Result<bool> {
    let name = split(path).1;
    work.touched.insert(split(path).0.to_vec());
    let rewinds = work.extent == Extent::Differences;
    let mut planned = work.safety.get(path).map(|entry| entry.kind == EntryKind::Folder);
    for _ in 0..ATTEMPTS {
        let there = stat_at(parent.as_fd(), name).map_err(|errno| work.failed("stat", path, errno))?;
        let result = match there {
            None => match rename_new(parent, ready, name) {
                Ok(()) => return Ok(true),
                result => result,
            },
            // Made, or made something else of, since it was planned.
            Some(stat) if rewinds && planned != Some(stat.kind == Kind::Folder) => return leave(work, parent, ready, path),
            Some(stat) if rewinds && stat.kind == Kind::Folder => {
                work.open_up(path, &stat)?;
                if !remove_folder(work, path)? {
                    return leave(work, parent, ready, path);
                }
                planned = None;
                continue;
            }
            Some(stat) if stat.kind == Kind::Folder => {
                clear_folder(work, path, &stat)?;
                continue;
            }
            Some(_) => match rustix::fs::renameat_with(parent, ready, parent, name, RenameFlags::EXCHANGE) {
                // Two names of one file: nothing moved, and nothing came out.
                Ok(()) => return settle(work, parent, ready, path),
                Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV) => match exchange_in_steps(work, parent, ready, path)? {
                    Some(placed) => return Ok(placed),
                    None => continue,
                },
                Err(Errno::BUSY) => return overwrite(work, parent, ready, path),
                Err(errno) => Err(errno),
            },
        };
        match result {
            Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => {}
            Err(errno) => return Err(work.failed("rename into place", path, errno)),
        }
    }
    let path = crate::files::scan::lossy(path);
    Err(Error::new(ErrorKind::Busy, format!("{} keeps being replaced by somebody else", path.display()))
        .with("path", path.display())
        .hint("stop what writes to it and run it again"))
}

/// Leaves what is at the path; what was written for it is worth nothing, since its content is in the store.
fn leave(work: &mut Work<'_>, parent: &OwnedFd, ready: &[u8], path: &[u8]) -> Result<bool> {
    rustix::fs::unlinkat(parent, ready, AtFlags::empty()).map_err(|errno| work.failed("remove what was written beside", path, errno))?;
    work.note(path, Verdict::KeptAfter);
    Ok(false)
}

/// Tells whether what was brought in is at the path still.
fn settle(work: &mut Work<'_>, parent: &OwnedFd, displaced: &[u8], path: &[u8]) -> Result<bool> {
    match (examine(work, parent, displaced, path)?, work.extent) {
        (Fate::Removed | Fate::Unsure, _) => Ok(true),
        (Fate::Edited | Fate::Open, Extent::Whole) => keep(work, parent, displaced, path).map(|()| true),
        (fate, Extent::Differences) => put_back(work, parent, displaced, path, fate).map(|()| false),
    }
}

/// Where the file system cannot exchange: away with the one, in with the other. Between the two steps the path is not there.
/// Nothing where somebody was there first.
fn exchange_in_steps(work: &mut Work<'_>, parent: &OwnedFd, ready: &[u8], path: &[u8]) -> Result<Option<bool>> {
    let (_, aside) = temporary::pair(path)?;
    match rename_new(parent, split(path).1, &aside) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(work.failed("rename", path, errno)),
    }
    let result = rename_new(parent, ready, split(path).1);
    let placed = settle(work, parent, &aside, path)?;
    match result {
        Ok(()) => Ok(Some(placed)),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(work.failed("rename into place", path, errno)),
    }
}

/// A file that something is mounted on cannot be renamed: what it holds is kept unless a checkpoint has it, then its content
/// is replaced in place. A crash in between leaves it for the next run.
fn overwrite(work: &mut Work<'_>, parent: &OwnedFd, ready: &[u8], path: &[u8]) -> Result<bool> {
    let full = work.root.full(path);
    let failed = |errno| Error::io("overwrite", &full, errno);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let gentle = work.extent == Extent::Differences;
    let watched = gentle.then(|| work.root.file(path)).transpose().map_err(failed)?;
    if watched.is_some_and(|file| matches!(ask(&file), Asked::OpenForWriting)) {
        leave(work, parent, ready, path)?;
        work.note(path, Verdict::KeptOpen);
        return Ok(false);
    }
    let there = File::from(work.root.open_at(path, flags).map_err(failed)?);
    let stat = stat_open(&there).map_err(failed)?;
    if stat.kind != Kind::File {
        return Err(failed(Errno::BUSY));
    }
    let from = open_beside(parent, ready, OFlags::empty()).map_err(failed)?;
    let saved = match work.safety.get(path).map(|entry| &entry.kind) {
        Some(EntryKind::File { chunks, .. }) => crate::files::content::matches(&there, &full, chunks, &mut || true)?,
        _ => false,
    };
    if gentle && !saved {
        return leave(work, parent, ready, path);
    }
    let backend = crate::clone::choose(work.root.path(), work.root.path())?;
    if !saved {
        let (unfinished, aside) = temporary::pair(path)?;
        let copy = open_beside(parent, &unfinished, OFlags::CREATE | OFlags::EXCL).map_err(failed)?;
        backend.clone_file(&there, &full, &copy, &full)?;
        work.syncs.file(&copy, &full)?;
        rustix::fs::renameat(parent, &unfinished, parent, &aside).map_err(failed)?;
        keep(work, parent, &aside, path)?;
    }
    there.set_len(0).map_err(|source| Error::io("overwrite", &full, source))?;
    backend.clone_file(&from, &full, &there, &full)?;
    rustix::fs::fchmod(&there, Mode::from_raw_mode(stat_open(&from).map_err(failed)?.mode.into())).map_err(failed)?;
    work.syncs.file(&there, &full)?;
    rustix::fs::unlinkat(parent, ready, AtFlags::empty()).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::{Lab, get, put};
    use crate::progress::Control;

    #[test]
    fn where_nothing_can_be_exchanged_two_renames_lose_nothing() {
        let mut lab = Lab::new();
        for path in ["saved", "edited"] {
            lab.write(path, "checkpoint");
        }
        let target = lab.capture();
        for path in ["saved", "edited"] {
            lab.write(path, "agent");
        }
        let safety = lab.capture();
        lab.write("edited", "human");
        let (reader, scope, folders, control) = (lab.reader(), lab.scope_of(&target), lab.folders(), Control::silent());
        let request = lab.request(&reader, &scope, &target, &safety, &folders);
        let mut work = Work::new(&request, &control).expect("work");
        for path in ["saved", "edited"] {
            put(&lab.at("ready"), b"checkpoint");
            let parent = work.root.parent(path.as_bytes()).expect("folder");
            assert_eq!(exchange_in_steps(&mut work, &parent, b"ready", path.as_bytes()).expect("exchange"), Some(true));
            assert_eq!(get(&lab.at(path)), b"checkpoint");
        }
        assert_eq!(get(&lab.kept().join("edited")), b"human");
        assert!(!lab.kept().join("saved").exists());
        assert_eq!(lab.listing().len(), 2);
    }
}
