//! The steps of an install, in their order.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Extent;
use super::displaced::{Fate, examine, keep, rename_new};
use super::place::Fresh;
use super::put_back::put_back;
use super::stage::MANY;
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::{Disk, State, open_in};
use crate::files::content::matches;
use crate::files::ignores::prefixes;
use crate::files::plan::Verdict;
use crate::files::temporary;
use crate::progress::Unit;
use crate::store::{Entry, EntryKind};
use crate::sys::parallel;
use crate::sys::tree::{Kind, Stat, split, stat_open};

/// Files of one folder that a thread takes at once.
const GROUP: usize = 64;

pub(super) fn run(work: &mut Work<'_>) -> Result<()> {
    clear_leftovers(work)?;
    let (in_the_way, others) = part_deletions(work);
    delete_all(work, in_the_way)?;
    clear_other_kinds(work)?;
    let placed = place_all(work)?;
    delete_all(work, others)?;
    finish_folders(work)?;
    sync(work)?;
    read_back(work, &placed)
}

/// What an interrupted install left beside the files. Only the folders that an install works in can have such names.
fn clear_leftovers(work: &mut Work<'_>) -> Result<()> {
    // For a rewind both hold only what it changes.
    let mut folders: BTreeSet<Vec<u8>> = work.safety.keys().map(|path| split(path).0.to_vec()).collect();
    folders.extend(work.target.iter().map(|entry| split(&entry.path).0.to_vec()));
    for folder in folders {
        work.control.check()?;
        let Ok(fd) = work.root.folder(&folder) else { continue };
        let listing = rustix::fs::Dir::read_from(&fd).map_err(|errno| work.failed("list", &folder, errno))?;
        let mut found = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|errno| work.failed("list", &folder, errno))?;
            let name = entry.file_name().to_bytes();
            if temporary::is_one(name) {
                found.push(name.to_vec());
            }
        }
        for name in found {
            let own = if folder.is_empty() { name.clone() } else { [folder.as_slice(), b"/", &name].concat() };
            let mut paths = work.safety.keys().chain(work.target.iter().map(|entry| &entry.path));
            // A file of somebody else that only looks like one of ours is left alone.
            let Some(path) = paths.find(|path| split(path).0 == folder && temporary::is_for(&name, path)).cloned() else { continue };
            work.open_above(&own)?;
            work.touched.insert(folder.clone());
            if temporary::is_unfinished(&name) {
                rustix::fs::unlinkat(&fd, &name, AtFlags::empty()).map_err(|errno| work.failed("remove", &own, errno))?;
                continue;
            }
            let parent = work.root.parent(&path).map_err(|errno| work.failed("open the folder of", &path, errno))?;
            work.vacated.insert(path.clone());
            // Where there are no leases this is the second look, and enough.
            match examine(work, &parent, &name, &path)? {
                Fate::Removed => {}
                Fate::Unsure => {
                    rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).map_err(|errno| work.failed("remove", &path, errno))?
                }
                fate @ (Fate::Edited | Fate::Open) => match work.extent {
                    Extent::Whole => keep(work, &parent, &name, &path)?,
                    Extent::Differences => put_back(work, &parent, &name, &path, fate)?,
                },
            }
        }
    }
    Ok(())
}

/// Deletions below folders that give way to something else come first, all others when what is missing is in place.
fn part_deletions(work: &mut Work<'_>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let other = work.target.iter().zip(&work.states).filter(|(_, (state, _))| *state == State::Kind);
    let other: HashSet<&[u8]> = other.map(|(entry, _)| entry.path.as_slice()).collect();
    std::mem::take(&mut work.deletions).into_iter().partition(|path| prefixes(path).any(|folder| other.contains(folder)))
}

fn delete_all(work: &mut Work<'_>, paths: Vec<Vec<u8>>) -> Result<()> {
    for path in paths.into_iter().rev() {
        work.control.check()?;
        if let Err(error) = delete(work, &path) {
            // A name that is gone was renamed away: what is wrong is with what came out.
            let stays = work.root.stat(&path).map_or(true, |stat| stat.is_some());
            if !stays {
                return Err(error);
            }
            work.leave_refused(&path, error)?;
        }
    }
    Ok(())
}

fn delete(work: &mut Work<'_>, path: &[u8]) -> Result<()> {
    if !work.open_above(path)? {
        return Ok(());
    }
    let Some(stat) = work.root.stat(path).map_err(|errno| work.failed("stat", path, errno))? else { return Ok(()) };
    if stat.kind == Kind::Folder {
        let planned = work.extent == Extent::Whole || work.safety.get(path).is_some_and(|entry| entry.kind == EntryKind::Folder);
        if planned && remove_folder(work, path)? {
            work.note(path, Verdict::Delete);
        } else {
            work.note(path, if work.extent == Extent::Whole { Verdict::NotCaptured } else { Verdict::KeptAfter });
        }
        return Ok(());
    }
    if take_away(work, path)? {
        work.note(path, Verdict::Delete);
    }
    Ok(())
}

/// Removes an empty folder; tells whether it is gone. What is still in it, or mounted on it, stays.
pub(super) fn remove_folder(work: &mut Work<'_>, path: &[u8]) -> Result<bool> {
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    match rustix::fs::unlinkat(&parent, split(path).1, AtFlags::REMOVEDIR) {
        Ok(()) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY | Errno::NOTDIR) => return Ok(false),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(work.failed("remove folder", path, errno)),
    }
    work.touched.insert(split(path).0.to_vec());
    work.touched.remove(path);
    work.forget_prepared(path);
    Ok(true)
}

/// Renames what is not a folder away and looks at what came out; tells whether the path is free now.
fn take_away(work: &mut Work<'_>, path: &[u8]) -> Result<bool> {
    if work.leave_moved(path)? {
        return Ok(false);
    }
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    let (_, aside) = temporary::pair(path)?;
    match rename_new(&parent, split(path).1, &aside) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(work.failed("rename", path, errno)),
    }
    work.touched.insert(split(path).0.to_vec());
    match (examine(work, &parent, &aside, path)?, work.extent) {
        (Fate::Removed | Fate::Unsure, _) => Ok(true),
        (Fate::Edited | Fate::Open, Extent::Whole) => keep(work, &parent, &aside, path).map(|()| true),
        (fate, Extent::Differences) => put_back(work, &parent, &aside, path, fate).map(|()| false),
    }
}

/// Where a file has to give way to a folder or a folder to a file: folders are never exchanged.
fn clear_other_kinds(work: &mut Work<'_>) -> Result<()> {
    let other = work.target.iter().zip(&work.states).filter(|(_, (state, _))| *state == State::Kind);
    let other: Vec<(Vec<u8>, bool)> = other.map(|(entry, _)| (entry.path.clone(), entry.kind == EntryKind::Folder)).collect();
    for (path, becomes_folder) in other {
        work.control.check()?;
        if !work.open_above(&path)? {
            continue;
        }
        let Some(stat) = work.root.stat(&path).map_err(|errno| work.failed("stat", &path, errno))? else { continue };
        if stat.kind == Kind::Folder && !becomes_folder {
            // In a rewind this waits until the file can take its place at once.
            if work.extent == Extent::Whole {
                clear_folder(work, &path, &stat)?;
            }
        } else if stat.kind != Kind::Folder && becomes_folder {
            take_away(work, &path)?;
        }
    }
    Ok(())
}

/// Removes a folder that a file of the checkpoint takes the place of; what is in no checkpoint is kept.
pub(super) fn clear_folder(work: &mut Work<'_>, path: &[u8], stat: &Stat) -> Result<()> {
    work.open_up(path, stat)?;
    if remove_folder(work, path)? {
        return Ok(());
    }
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    keep(work, &parent, split(path).1, path)?;
    work.touched.insert(split(path).0.to_vec());
    work.touched.remove(path);
    work.forget_prepared(path);
    Ok(())
}

/// Brings every path of the target into place and gives those that were written, with the stat that only
/// somebody else's edit can have changed. Files where nothing is yet come together, hard links after what they name.
fn place_all(work: &mut Work<'_>) -> Result<Vec<(usize, Stat)>> {
    let (wanted, on_disk) = (work.leaders(), work.leaders_on_disk());
    let (mut placed, mut fresh, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let total = work.target.len() as u64;
    for (own, (leader, disk_leader)) in wanted.into_iter().zip(on_disk).enumerate() {
        work.control.check()?;
        let (Some(entry), Some((state, _))) = (work.target.get(own), work.states.get(own).copied()) else { continue };
        if matches!(entry.kind, EntryKind::File { .. }) {
            if leader != own {
                links.push((own, leader, state));
                continue;
            }
            // A rewind looks at each path once more.
            if state == State::Missing && work.extent == Extent::Whole {
                fresh.push(own);
                continue;
            }
        }
        let entry = entry.clone();
        let written = match &entry.kind {
            EntryKind::Socket => None,
            EntryKind::Folder => {
                make_folder(work, &entry, state)?;
                None
            }
            _ => match state {
                State::Same if leader == disk_leader => None,
                State::Metadata if leader == disk_leader => {
                    if let Err(error) = super::place::metadata(work, &entry) {
                        work.leave_refused(&entry.path, error)?;
                    }
                    None
                }
                _ => super::place::whole(work, &entry, state)?,
            },
        };
        if let Some(stat) = written {
            placed.push((own, stat));
            work.control.report("install files", own as u64 + 1, total, Unit::Items);
        }
    }
    placed.append(&mut place_fresh(work, &fresh)?);
    for (own, leader, state) in links {
        work.control.check()?;
        let Some(entry) = work.target.get(own).cloned() else { continue };
        placed.extend(super::place::link(work, &entry, leader, state)?.map(|stat| (own, stat)));
    }
    Ok(placed)
}

/// Files whose paths are missing, in parallel: they do not meet one another.
fn place_fresh(work: &mut Work<'_>, fresh: &[usize]) -> Result<Vec<(usize, Stat)>> {
    let groups = by_folder(work, fresh, |own| *own);
    for group in &groups {
        let path = group.first().and_then(|own| work.target.get(*own)).map(|entry| entry.path.clone()).unwrap_or_default();
        work.prepare_above(&path)?;
        work.touched.insert(split(&path).0.to_vec());
    }
    let total = fresh.len() as u64;
    let done = AtomicU64::new(0);
    let alone: &Work<'_> = work;
    let staging = staging_beside(alone);
    let results = parallel::map_one_by_one(&groups, |group| {
        let entries: Vec<&Entry> = group.iter().filter_map(|own| alone.target.get(*own)).collect();
        let results = super::place::fresh(alone, staging.as_ref(), &entries)?;
        let now = done.fetch_add(entries.len() as u64, Ordering::Relaxed) + entries.len() as u64;
        alone.control.report("install files", now, total, Unit::Items);
        Ok::<_, Error>(results)
    })?;
    let mut placed = Vec::with_capacity(fresh.len());
    for (own, result) in fresh.iter().zip(results.into_iter().flatten()) {
        let Some(path) = work.target.get(*own).map(|entry| entry.path.clone()) else { continue };
        let stat = match result {
            Fresh::Placed(stat) => {
                work.note(&path, Verdict::Create);
                stat
            }
            Fresh::Waiting(beside) => {
                let entry = work.target.get(*own).cloned();
                entry.map(|entry| super::place::insert(work, &entry, State::Missing, &beside)).transpose()?.flatten()
            }
        };
        placed.extend(stat.map(|stat| (*own, stat)));
    }
    Ok(placed)
}

/// Items that follow one another in one folder, a bounded number at a time.
fn by_folder<'i, T>(work: &Work<'_>, items: &'i [T], own: impl Fn(&T) -> usize) -> Vec<&'i [T]> {
    let folder = |item: &T| work.target.get(own(item)).map(|entry| split(&entry.path).0);
    items.chunk_by(|one, next| folder(one) == folder(next)).flat_map(|group| group.chunks(GROUP)).collect()
}

/// The staging folder, where files can be renamed from it into the worktree.
fn staging_beside(work: &Work<'_>) -> Option<OwnedFd> {
    let staging = std::fs::File::open(work.staging).ok()?;
    let beside = stat_open(&staging).ok()?.dev == stat_open(work.root.folder(b"").ok()?).ok()?.dev;
    (beside && super::stage::is_plain(work.staging).ok()?).then(|| staging.into())
}

/// A folder is made for us alone; its own mode comes last.
fn make_folder(work: &mut Work<'_>, entry: &Entry, state: State) -> Result<()> {
    let path = &entry.path;
    if matches!(state, State::Same | State::Metadata) {
        return Ok(());
    }
    if !work.prepare_above(path)? {
        return Ok(());
    }
    let parent = work.root.parent(path).map_err(|errno| work.failed("open the folder of", path, errno))?;
    match rustix::fs::mkdirat(&parent, split(path).1, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let stat = work.root.stat(path).map_err(|errno| work.failed("stat", path, errno))?;
            if stat.is_some_and(|stat| stat.kind != Kind::Folder) {
                if !take_away(work, path)? {
                    return Ok(());
                }
                rustix::fs::mkdirat(&parent, split(path).1, Mode::RWXU).map_err(|errno| work.failed("create folder", path, errno))?;
            }
        }
        Err(errno) => return Err(work.failed("create folder", path, errno)),
    }
    work.touched.insert(split(path).0.to_vec());
    work.note(path, if state == State::Missing { Verdict::Create } else { Verdict::Restore });
    Ok(())
}

/// Modes, owners and attributes of folders, children first; and the modes of folders that were opened for a while.
fn finish_folders(work: &mut Work<'_>) -> Result<()> {
    let folders =
        work.target.iter().zip(&work.states).filter(|(entry, (state, _))| entry.kind == EntryKind::Folder && *state != State::Same);
    let mut folders: BTreeMap<Vec<u8>, Entry> = folders.map(|(entry, _)| (entry.path.clone(), entry.clone())).collect();
    // To get at a folder those above it may have to be opened again: they come after it.
    while let Some(path) = folders.keys().next_back().max(work.opened.keys().next_back()).cloned() {
        let mode = work.opened.remove(&path);
        match (folders.remove(&path), mode) {
            (Some(_), _) if work.verdicts.get(&path).is_some_and(|verdict| verdict.is_kept()) => {}
            (Some(entry), _) => {
                if let Err(error) = super::place::metadata(work, &entry) {
                    work.leave_refused(&path, error)?;
                }
            }
            (None, Some(mode)) => match crate::sys::tree::chmod(&work.root, &path, mode) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(work.failed("set the mode of", &path, errno)),
            },
            (None, None) => {}
        }
    }
    Ok(())
}

fn sync(work: &mut Work<'_>) -> Result<()> {
    let touched = std::mem::take(&mut work.touched);
    if touched.len() > MANY {
        return work.syncs.file_system(work.root.path());
    }
    for folder in touched {
        match work.root.folder(&folder) {
            Ok(fd) => work.syncs.file(&std::fs::File::from(fd), &work.root.full(&folder))?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            // A folder that its owner may not list: the file system as a whole then.
            Err(Errno::ACCESS) => work.syncs.file_system(work.root.path())?,
            Err(errno) => return Err(work.failed("open", &folder, errno)),
        }
    }
    Ok(())
}

/// Compares what was written with the checkpoint. A difference is somebody's later edit, which is left alone, or damage.
fn read_back(work: &mut Work<'_>, placed: &[(usize, Stat)]) -> Result<()> {
    let alone: &Work<'_> = work;
    let groups = by_folder(alone, placed, |(own, _)| *own);
    let edited = parallel::map_one_by_one(&groups, |group| {
        let first = group.first().and_then(|(own, _)| alone.target.get(*own));
        let folder = first.and_then(|entry| alone.root.parent(&entry.path).ok());
        let mut edited = Vec::new();
        for (own, then) in *group {
            alone.control.check()?;
            if let Some(entry) = alone.target.get(*own)
                && !reads_back(alone, folder.as_ref(), entry, then)?
            {
                edited.push(entry.path.clone());
            }
        }
        Ok::<_, Error>(edited)
    })?;
    for path in edited.into_iter().flatten() {
        work.note(&path, if work.extent == Extent::Whole { Verdict::Kept } else { Verdict::KeptAfter });
    }
    Ok(())
}

/// Whether a path has the content of its entry; not where somebody else has changed it since.
fn reads_back(work: &Work<'_>, folder: Option<&OwnedFd>, entry: &Entry, then: &Stat) -> Result<bool> {
    if let (EntryKind::File { chunks, .. }, Some(folder)) = (&entry.kind, folder)
        && let Ok(file) = open_in(folder, &entry.path, OFlags::NONBLOCK | OFlags::NOCTTY)
        && matches(&file, &work.root.full(&entry.path), chunks, &mut || true).unwrap_or(false)
    {
        return Ok(true);
    }
    let (state, _) = Disk { root: &work.root, known: &|_, _| None }.state(entry)?;
    if matches!(state, State::Same | State::Metadata) {
        return Ok(true);
    }
    // Looked at after the read: somebody's write may have come between an earlier look and it.
    let now = work.root.stat(&entry.path).map_err(|errno| work.failed("stat", &entry.path, errno))?;
    let key = |stat: &Stat| (stat.kind, stat.ino, stat.size, stat.mtime_ns);
    if now.as_ref().map(key) == Some(key(then)) {
        let path = crate::files::scan::lossy(&entry.path);
        return Err(Error::new(ErrorKind::Corrupt, format!("{} does not read back as it was written", path.display()))
            .with("path", path.display())
            .hint("check the disk, then run it again"));
    }
    Ok(false)
}
