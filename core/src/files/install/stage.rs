//! Writing content where a full disk or a damaged chunk does no harm yet.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::State;
use crate::progress::Unit;
use crate::store::{ChunkRef, Entry, EntryKind, Reader};
use crate::sys;
use crate::sys::parallel;
use crate::sys::tree::Stat;

/// Above so many files one sync of the file system is cheaper than one of each file.
pub(super) const MANY: usize = 16;

pub(super) fn stage(work: &Work<'_>) -> Result<u64> {
    check_ways(work)?;
    let (wanted, on_disk) = (work.leaders(), work.leaders_on_disk());
    let needed: Vec<(&Entry, State)> = work
        .target
        .iter()
        .enumerate()
        .filter(|(own, entry)| {
            let state = work.states.get(*own).map(|(state, _)| *state);
            let content = !matches!(state, Some(State::Same | State::Metadata));
            let alone = on_disk.get(*own) == wanted.get(*own);
            matches!(entry.kind, EntryKind::File { .. }) && wanted.get(*own) == Some(own) && (content || !alone)
        })
        .map(|(own, entry)| (entry, work.states.get(own).map_or(State::Missing, |(state, _)| *state)))
        .collect();
    super::space::check(work, &needed)?;
    sys::fs::make_folder(work.staging, 0o700)?;
    let leftovers = !sys::fs::names(work.staging)?.is_empty();
    let plain = is_plain(work.staging)?;
    let many = needed.len() > MANY;
    let bytes = AtomicU64::new(0);
    parallel::map(&needed, |(entry, state)| {
        work.control.check()?;
        let EntryKind::File { size, chunks, holes, .. } = &entry.kind else { return Ok(()) };
        let path = staged(work.staging, &entry.path);
        if leftovers {
            sys::fs::remove_file(&path)?;
        }
        // What will be put where nothing is gets its mode and owner here: bringing it in is then one rename.
        let whole = plain && *state == State::Missing && entry.xattrs.is_empty();
        let file = sys::fs::create_new(&path, if whole { u32::from(entry.mode & 0o777) } else { 0o600 })?;
        let stat = write_content(work.reader, &file, &path, chunks, holes, *size)
            .map_err(|error| error.while_doing(format!("stage {}", lossy(entry))))?;
        if whole {
            super::place::own(&file, &stat, entry).map_err(|errno| Error::io("set the mode of", &path, errno))?;
        }
        if !many {
            work.syncs.file(&file, &path)?;
        }
        let done = bytes.fetch_add(*size, Ordering::Relaxed) + size;
        work.control.report("stage files", done, 0, Unit::Bytes);
        Ok::<_, Error>(())
    })?;
    if many {
        work.syncs.file_system(work.staging)?;
    } else if !needed.is_empty() {
        work.syncs.folder(work.staging)?;
    }
    Ok(bytes.into_inner())
}

/// Where the content for a path is staged.
pub(super) fn staged(staging: &Path, path: &[u8]) -> PathBuf {
    staging.join(staged_name(path))
}

/// Its name there.
pub(super) fn staged_name(path: &[u8]) -> String {
    blake3::hash(path).to_hex().to_string()
}

/// Writes the content of an entry to an empty file, every chunk checked against its hash, holes left as holes.
/// Gives the stat that it has then.
pub(super) fn write_content(
    reader: &Reader,
    file: &File,
    path: &Path,
    chunks: &[ChunkRef],
    holes: &[(u64, u64)],
    size: u64,
) -> Result<Stat> {
    if holes.is_empty() {
        reader.copy(chunks, &mut { file }).map_err(|error| {
            let error = error.while_doing(format!("write {}", path.display()));
            let full = error.kind() == ErrorKind::NoSpace;
            if full { error.hint(format!("free space on the file system of {} and try again", path.display())) } else { error }
        })?;
    } else {
        let mut offset = 0;
        for chunk in chunks {
            let end = offset + u64::from(chunk.len);
            let all_hole = holes.iter().any(|(start, length)| *start <= offset && end <= start + length);
            if !all_hole {
                let bytes = content_of(reader, chunk)?;
                for (from, length) in outside(holes, offset, end) {
                    let piece = usize::try_from(from - offset).ok().zip(usize::try_from(length).ok());
                    let piece = piece.and_then(|(from, length)| bytes.get(from..from + length)).unwrap_or_default();
                    let mut out = file;
                    out.seek(SeekFrom::Start(from))
                        .and_then(|_| out.write_all(piece))
                        .map_err(|source| Error::io("write", path, source))?;
                }
            }
            offset = end;
        }
    }
    let stat = sys::tree::stat_open(file).map_err(|errno| Error::io("stat", path, errno))?;
    if stat.size != size {
        file.set_len(size).map_err(|source| Error::io("set length of", path, source))?;
    }
    Ok(stat)
}

/// Whether files made in the folder have no attributes of their own: a default ACL would be inherited.
pub(super) fn is_plain(folder: &Path) -> Result<bool> {
    let open = File::open(folder).map_err(|source| Error::io("open", folder, source))?;
    let (found, unreadable) = sys::xattr::read(open.as_fd()).map_err(|errno| Error::io("read attributes of", folder, errno))?;
    Ok(found.is_empty() && unreadable.is_empty())
}

fn content_of(reader: &Reader, chunk: &ChunkRef) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.copy(std::slice::from_ref(chunk), &mut bytes)?;
    Ok(bytes)
}

/// The pieces of `from..to` outside the holes, as (offset, length).
fn outside(holes: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let inside = holes.iter().filter_map(|&(offset, length)| {
        let (start, end) = (offset.max(from), (offset + length).min(to));
        (start < end).then(|| (start - from, end - start))
    });
    let inside: Vec<(u64, u64)> = inside.collect();
    sys::holes::data(&inside, to - from).into_iter().map(|(offset, length)| (from + offset, length)).collect()
}

/// Every folder on the way to a path must be one, or become one by the checkpoint: found out before anything is touched.
fn check_ways(work: &Work<'_>) -> Result<()> {
    // Entries of one folder follow one another, mostly.
    let mut passable: Option<&[u8]> = None;
    for (entry, (state, _)) in work.target.iter().zip(&work.states) {
        let folder = sys::tree::split(&entry.path).0;
        if *state == State::Missing && passable != Some(folder) {
            match work.root.parent(&entry.path) {
                Ok(_) | Err(Errno::NOENT | Errno::ACCESS) => passable = Some(folder),
                Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                    let above = crate::files::ignores::prefixes(&entry.path);
                    let planned = |folder: &[u8]| work.target.binary_search_by(|entry| entry.path.as_slice().cmp(folder)).is_ok();
                    let stands = |folder: &[u8]| {
                        work.root.stat(folder).ok().flatten().is_some_and(|stat| stat.kind != sys::tree::Kind::Folder) && !planned(folder)
                    };
                    if let Some(folder) = { above }.find(|folder| stands(folder)) {
                        return Err(work.failed("open", folder, errno));
                    }
                }
                Err(errno) => return Err(work.failed("open the folder of", &entry.path, errno)),
            }
        }
    }
    Ok(())
}

fn lossy(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.path).into_owned()
}
