//! The restore drill: every checkpoint's trees, made anew in a scratch folder.

use std::cmp::Reverse;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::remembered::Remembered;
use super::{Drill, Findings, VerifyOptions, VerifyReport};
use crate::error::ErrorKind::{Cancelled, Forked, NoSpace, Permission, ReadOnly};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::{ChunkId, ChunkRef, Entry, EntryKind, Reader, Ref};
use crate::sys::{fs, id};

/// How the folder of each restored checkpoint begins.
const PREFIX: &str = "forklift-drill-";

/// A checkpoint whose trees were restored.
#[derive(Debug)]
pub struct Drilled<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Ref,
    /// Its files, where it has some.
    pub files: Option<PathBuf>,
    /// Its cluster, where it has one: to be prepared as any copy before it is started.
    pub cluster: Option<PathBuf>,
}

/// Restores one checkpoint after the other, as far as the budget goes: those first that were not restored for the longest, and of
/// these the newest.
#[allow(clippy::too_many_arguments, reason = "one step of a verify, which has all of them at hand")]
pub(super) fn drill(
    reader: &Reader,
    options: &VerifyOptions,
    refs: &[Ref],
    remembered: &mut Remembered,
    drill: Drill<'_>,
    report: &mut VerifyReport,
    findings: &mut Findings,
    control: &Control,
) -> Result<()> {
    let scratch = options.scratch.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "a restore drill needs a scratch folder")
            .hint("name a folder with enough space for one checkpoint")
    })?;
    let mut order: Vec<&Ref> = refs.iter().collect();
    if options.budget.is_some() {
        order.sort_by_key(|reference| (remembered.drilled(&reference.id), Reverse(&reference.id)));
    }
    let (mut tried, mut bytes) = (0, 0_u64);
    for reference in order {
        if options.budget.is_some_and(|budget| tried > 0 && bytes >= budget) {
            break;
        }
        control.check()?;
        control.report("restore checkpoints", tried, refs.len() as u64, Unit::Items);
        let folder = scratch.join(format!("{PREFIX}{}", id::sortable()?));
        let result = restore(reader, reference, &folder, &mut bytes, control).and_then(|drilled| drill(&drilled));
        fs::remove_tree(&folder)?;
        tried += 1;
        match result {
            Ok(()) => {
                report.drilled += 1;
                remembered.add_drill(&reference.id);
            }
            // No checkpoint is to blame for these.
            Err(error) if matches!(error.kind(), Cancelled | NoSpace | ReadOnly | Permission | Forked) => return Err(error),
            Err(error) => {
                remembered.forget_drill(&reference.id);
                findings.drill(&reference.id, reader.store().layout().refs().join(&reference.id).display().to_string(), error.message());
            }
        }
    }
    report.drills_left = refs.len() as u64 - tried;
    Ok(())
}

fn restore<'a>(reader: &Reader, reference: &'a Ref, folder: &Path, bytes: &mut u64, control: &Control) -> Result<Drilled<'a>> {
    fs::make_folder(folder, 0o700)?;
    let mut tree = |name: &str, root: &ChunkId| {
        let target = folder.join(name);
        tree(reader, root, &target, bytes, control).map(|()| target)
    };
    let files = reference.files.as_ref().map(|half| tree("files", &half.root)).transpose()?;
    let cluster = reference.cluster.as_ref().map(|half| tree("cluster", &half.root)).transpose()?;
    Ok(Drilled { checkpoint: reference, files, cluster })
}

/// Makes a tree in a folder of our own: names, content, links and permissions; not owners, times and attributes. Adds to `bytes`.
fn tree(reader: &Reader, root: &ChunkId, target: &Path, bytes: &mut u64, control: &Control) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    fs::make_folder(target, 0o700)?;
    let mut folders = Vec::new();
    for entry in reader.manifest(root)? {
        control.check()?;
        let entry = entry?;
        let path = target.join(std::ffi::OsStr::from_bytes(&entry.path));
        parents(target, &path)?;
        match &entry.kind {
            EntryKind::File { size, chunks, .. } => {
                file(reader, &entry, *size, chunks, &path)?;
                *bytes += *size;
            }
            EntryKind::Folder => {
                fs::make_folder(&path, 0o700)?;
                folders.push((path, entry.mode));
            }
            EntryKind::Symlink(text) => {
                let text = std::ffi::OsStr::from_bytes(text);
                std::os::unix::fs::symlink(text, &path).map_err(|source| Error::io("link", &path, source))?;
            }
            EntryKind::Fifo | EntryKind::Socket => {}
        }
    }
    // Children first, since a folder may forbid writing.
    folders.iter().rev().try_for_each(|(path, mode)| set_mode(path, *mode))
}

/// Makes missing folders above; fails where a part of the path is something else, such as a link that the manifest has.
fn parents(target: &Path, path: &Path) -> Result<()> {
    let mut at = target.to_owned();
    let Some(inner) = path.strip_prefix(target).ok().and_then(Path::parent) else { return Ok(()) };
    for part in inner.components() {
        at.push(part);
        match std::fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(Error::new(ErrorKind::Corrupt, format!("{} is no folder, and the manifest has names in it", at.display()))
                    .with("path", at.display()));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => fs::make_folder(&at, 0o700)?,
            Err(source) => return Err(Error::io("stat", &at, source)),
        }
    }
    Ok(())
}

fn file(reader: &Reader, entry: &Entry, size: u64, chunks: &[ChunkRef], path: &Path) -> Result<()> {
    let file: File = fs::create_new(path, 0o600)?;
    let mut offset = 0;
    for chunk in chunks {
        if chunk.id != ChunkId::ZERO {
            let bytes = reader.chunk(chunk)?;
            file.write_all_at(&bytes, offset).map_err(|source| Error::io("write", path, source))?;
        }
        offset += u64::from(chunk.len);
    }
    file.set_len(size).map_err(|source| Error::io("write", path, source))?;
    drop(file);
    set_mode(path, entry.mode & 0o777)
}

fn set_mode(path: &Path, mode: u16) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(u32::from(mode));
    std::fs::set_permissions(path, mode).map_err(|source| Error::io("change the mode of", path, source))
}
