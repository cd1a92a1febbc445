//! Trying every way to copy in one folder, and saying why those that do not work do not.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;
use serde::Serialize;

use super::backend::{Copy, Reflink, share};
use super::snapshot::{Snapshot, make_folder, remove_tree};
use super::{Backend, Cost, Method, TreeOptions, copy_tree, usage, zfs};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::{self, btrfs};

/// What trying one way gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The way.
    pub method: Method,
    /// A tree was really copied so, and the copy is right.
    pub works: bool,
    /// What its time grows with.
    pub cost: Cost,
    /// Whether it takes a whole tree at one instant.
    pub atomic: bool,
    /// Bytes that the copy had for itself alone, where the file system tells.
    pub exclusive: Option<u64>,
    /// Bytes that were copied.
    pub bytes: u64,
    /// What was found, in a few words: why it does not work, where it does not.
    pub found: String,
}

/// Content, a hole, content: larger than what a file system keeps among its metadata.
const PIECE: usize = 256 << 10;
const SIZE: u64 = 4 * PIECE as u64;

/// Tries every way, the best first, with a tree that is made in the empty folder `folder` and removed again.
///
/// # Errors
/// Only where the folder cannot be written to, or the tree not removed: `Permission`, `ReadOnly`, `NoSpace`, `Io`.
pub fn trials(folder: &Path) -> Result<Vec<Trial>> {
    let source = folder.join("source");
    let made = make_folder(&source, 0o700).and_then(|()| fill(&source));
    let trials = made.map(|()| {
        vec![
            trial(&Snapshot, &source, folder, snapshot_refusal(&source)),
            trial(&Reflink { zfs: zfs::is_zfs(folder) }, &source, folder, reflink_refusal(&source)),
            trial(&Copy { by_hand: zfs::is_zfs(folder) }, &source, folder, None),
        ]
    });
    remove_tree(&source)?;
    trials
}

fn fill(source: &Path) -> Result<()> {
    for (name, byte) in [("one", 1), ("other", 2)] {
        let path = source.join(name);
        let file = sys::fs::create_new(&path, 0o600)?;
        let write = |at| file.write_all_at(&[byte; PIECE], at).map_err(|source| Error::io("write", &path, source));
        write(0)?;
        write(SIZE - PIECE as u64)?;
    }
    Ok(())
}

fn trial(backend: &dyn Backend, source: &Path, folder: &Path, refusal: Option<String>) -> Trial {
    let target = folder.join(backend.method().name());
    let tried = match refusal {
        Some(refusal) => Err(refusal),
        None => attempt(backend, source, &target).map_err(|error| error.message().to_owned()),
    };
    // The folder goes with all in it: what is left of a failure is not in the way.
    let removed = remove_tree(&target);
    drop(removed);
    let (works, exclusive, bytes, found) = match tried {
        Ok((exclusive, bytes)) => (true, exclusive, bytes, told(exclusive)),
        Err(why) => (false, None, 0, why),
    };
    Trial { method: backend.method(), works, cost: backend.cost(), atomic: backend.is_atomic(), exclusive, bytes, found }
}

fn told(exclusive: Option<u64>) -> String {
    let space = match exclusive {
        Some(0) => "the copy took no space of its own".to_owned(),
        Some(bytes) => format!("the copy took {} KiB of its own", bytes.div_ceil(1024)),
        None => "what the copy takes of its own is not told here".to_owned(),
    };
    format!("2 files were copied, compared and written to; {space}")
}

/// Copies, compares, and writes to the copy, which must leave the source alone.
fn attempt(backend: &dyn Backend, source: &Path, target: &Path) -> Result<(Option<u64>, u64)> {
    let control = Control::silent();
    let report = copy_tree(backend, source, target, &TreeOptions::default(), &control)?;
    if report.method != backend.method() {
        return Err(wrong(&format!("the tree was copied by {} instead", report.method.name())));
    }
    let exclusive = usage(target, &control)?.exclusive;
    for name in ["one", "other"] {
        let (mine, theirs) = (sys::fs::read(&target.join(name))?, sys::fs::read(&source.join(name))?);
        if mine != theirs {
            return Err(wrong(&format!("the copy of a file of {} bytes differs from it: do not trust this file system", theirs.len())));
        }
    }
    let path = target.join("one");
    let file = std::fs::OpenOptions::new().write(true).open(&path).map_err(|source| Error::io("open", &path, source))?;
    file.write_all_at(&[9; 4096], 0).map_err(|source| Error::io("write", &path, source))?;
    let first = |folder: &Path| Ok::<_, Error>(sys::fs::read(&folder.join("one"))?.first().copied());
    if (first(source)?, first(target)?) != (Some(1), Some(9)) {
        return Err(wrong("a write to the copy changed the source: do not trust this file system"));
    }
    Ok((exclusive, report.bytes))
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Io, what)
}

/// Why a snapshot is not possible, as far as that is known before it is tried.
fn snapshot_refusal(source: &Path) -> Option<String> {
    let parent = source.parent().unwrap_or(source);
    if !btrfs::is_btrfs(parent) {
        return Some("snapshots of folders are there on btrfs only".to_owned());
    }
    (!btrfs::is_subvolume(source)).then(|| "no subvolume could be made here".to_owned())
}

/// Why clones of files are not possible.
fn reflink_refusal(source: &Path) -> Option<String> {
    let folder = source.parent().unwrap_or(source);
    if zfs::is_zfs(folder)
        && let Some(refusal) = zfs::refusal()
    {
        return Some(refusal);
    }
    let (from_path, to_path) = (source.join("one"), folder.join("probe"));
    let attempt = || -> Result<Option<String>> {
        let from = File::open(&from_path).map_err(|error| Error::io("open", &from_path, error))?;
        let to = sys::fs::create_new(&to_path, 0o600)?;
        Ok(share(&from, &from_path, &to, &to_path).err().map(|errno| match errno {
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::NOSYS => {
                let kind = sys::mounts::of(folder).ok().flatten().map_or_else(|| "this file system".to_owned(), |mount| mount.kind);
                format!("{kind} as it is here does not share blocks between files ({errno})")
            }
            errno => errno.to_string(),
        }))
    };
    let refusal = attempt();
    let removed = sys::fs::remove_file(&to_path);
    drop(removed);
    refusal.unwrap_or_else(|error| Some(error.message().to_owned()))
}
