//! What is on disk at one path, against what a checkpoint has there; and what may be deleted.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use ignore::gitignore::Gitignore;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Scope;
use super::content::matches;
use super::ignores::{Rules, excluded};
use super::scan::lossy;
use super::scope::is_below;
use crate::error::{Error, Result};
use crate::store::{ChunkRef, Entry, EntryKind, Xattr};
use crate::sys;
use crate::sys::tree::{Kind, Root, Stat, split, stat_at};

/// How the disk stands to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing has the name.
    Missing,
    /// All is equal.
    Same,
    /// Only mode, owner or attributes differ.
    Metadata,
    /// Same kind, other content or link text.
    Content,
    /// Another kind.
    Kind,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'k> {
    /// Content.
    pub(super) chunks: &'k [ChunkRef],
    /// Attributes.
    pub(super) xattrs: &'k [Xattr],
}

/// Compares entries with the disk.
pub(super) struct Disk<'a> {
    /// Of the worktree.
    pub(super) root: &'a Root,
    /// Tells what is known of a file that has this stat.
    pub(super) known: &'a (dyn Fn(&[u8], &Stat) -> Option<Known<'a>> + Sync),
}

impl Disk<'_> {
    /// How the disk stands to one entry, and the stat it has there.
    pub(super) fn state(&self, entry: &Entry) -> Result<(State, Option<Stat>)> {
        match self.folder_of(&entry.path)? {
            Some(folder) => self.state_in(&folder, entry),
            None => Ok((State::Missing, None)),
        }
    }

    /// As [`Disk::state`] for entries that follow one another in one folder: it is looked up once.
    pub(super) fn states<'e>(
        &self,
        entries: &'e [Entry],
        mut each: impl FnMut(&'e Entry) -> Result<()>,
    ) -> Result<Vec<(State, Option<Stat>)>> {
        let mut held: Option<(&[u8], Option<OwnedFd>)> = None;
        let mut states = Vec::with_capacity(entries.len());
        for entry in entries {
            each(entry)?;
            let above = split(&entry.path).0;
            if held.as_ref().is_none_or(|(path, _)| *path != above) {
                held = Some((above, self.folder_of(&entry.path)?));
            }
            states.push(match &held {
                Some((_, Some(folder))) => self.state_in(folder, entry)?,
                _ => (State::Missing, None),
            });
        }
        Ok(states)
    }

    /// The folder that holds a path, where it is one that can be entered: one that lets nobody in holds nothing that a capture has.
    fn folder_of(&self, path: &[u8]) -> Result<Option<OwnedFd>> {
        match self.root.parent(path) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(self.failed("stat", path, errno)),
        }
    }

    fn state_in(&self, folder: &OwnedFd, entry: &Entry) -> Result<(State, Option<Stat>)> {
        match stat_at(folder.as_fd(), split(&entry.path).1) {
            Ok(Some(stat)) => Ok((self.compare(folder, entry, &stat)?, Some(stat))),
            Ok(None) | Err(Errno::ACCESS) => Ok((State::Missing, None)),
            Err(errno) => Err(self.failed("stat", &entry.path, errno)),
        }
    }

    fn compare(&self, above: &OwnedFd, entry: &Entry, stat: &Stat) -> Result<State> {
        let path = &entry.path;
        let mut same_metadata = same_owner(entry, stat) && (stat.mode == entry.mode || stat.kind == Kind::Symlink);
        match (&entry.kind, stat.kind) {
            (EntryKind::File { size, chunks, .. }, Kind::File) => {
                if *size != stat.size {
                    return Ok(State::Content);
                }
                if let Some(known) = (self.known)(path, stat) {
                    if known.chunks != chunks {
                        return Ok(State::Content);
                    }
                    same_metadata &= same_xattrs(&entry.xattrs, known.xattrs);
                } else {
                    let file = match open_in(above, path, OFlags::NONBLOCK | OFlags::NOCTTY) {
                        Ok(file) => file,
                        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(State::Content),
                        Err(errno) => return Err(self.failed("open", path, errno)),
                    };
                    if !matches(&file, &self.root.full(path), chunks, &mut || true)? {
                        return Ok(State::Content);
                    }
                    same_metadata &= same_xattrs(&entry.xattrs, &self.attributes(&file, path)?);
                }
            }
            (EntryKind::Symlink(text), Kind::Symlink) => {
                let read = rustix::fs::readlinkat(above, split(path).1, Vec::new());
                let read = read.map_err(|errno| self.failed("read link", path, errno))?;
                if read.as_bytes() != text {
                    return Ok(State::Content);
                }
            }
            (EntryKind::Folder, Kind::Folder) => {
                if same_metadata {
                    match open_in(above, path, OFlags::DIRECTORY) {
                        Ok(folder) => same_metadata = same_xattrs(&entry.xattrs, &self.attributes(&folder, path)?),
                        Err(Errno::ACCESS | Errno::PERM) => {}
                        Err(errno) => return Err(self.failed("open", path, errno)),
                    }
                }
            }
            (EntryKind::Fifo, Kind::Fifo) => {}
            (EntryKind::Socket, _) => return Ok(State::Same),
            _ => return Ok(State::Kind),
        }
        Ok(if same_metadata { State::Same } else { State::Metadata })
    }

    fn attributes(&self, file: &File, path: &[u8]) -> Result<Vec<Xattr>> {
        let (found, _) = sys::xattr::read(file.as_fd()).map_err(|errno| self.failed("read attributes of", path, errno))?;
        Ok(found.into_iter().map(|(name, value)| Xattr { name, value }).collect())
    }

    fn failed(&self, action: &str, path: &[u8], errno: Errno) -> Error {
        Error::io(action, &self.root.full(path), errno)
    }
}

/// Opens the last part of a path, in its folder, for reading; never what a link points to.
pub(super) fn open_in(folder: &OwnedFd, path: &[u8], more: OFlags) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    rustix::fs::openat(folder, split(path).1, flags, Mode::empty()).map(File::from)
}

/// Only root can give files away, so only for root a differing owner is a difference.
pub(super) fn same_owner(entry: &Entry, stat: &Stat) -> bool {
    !rustix::process::geteuid().is_root() || (entry.uid, entry.gid) == (stat.uid, stat.gid)
}

/// As for owners: file capabilities are root's to set.
fn same_xattrs(first: &[Xattr], second: &[Xattr]) -> bool {
    let root = rustix::process::geteuid().is_root();
    let settable = |xattr: &&Xattr| root || !xattr.name.starts_with(b"security.");
    first.iter().filter(settable).eq(second.iter().filter(settable))
}

/// For every hard-linked path, the first path in order that is the same file; `None` for a path that shares nothing.
pub(super) struct Links<'a>(HashMap<&'a [u8], &'a [u8]>);

impl<'a> Links<'a> {
    /// From paths in order with their file's identity (`None` where they have only one name).
    pub(super) fn new<K: Eq + std::hash::Hash>(paths: impl Iterator<Item = (&'a [u8], Option<K>)>) -> Self {
        let mut first = HashMap::new();
        let mut leaders = HashMap::new();
        for (path, identity) in paths {
            if let Some(identity) = identity {
                leaders.insert(path, *first.entry(identity).or_insert(path));
            }
        }
        Self(leaders)
    }

    /// By the groups of a manifest.
    pub(super) fn of_manifest(entries: impl Iterator<Item = &'a Entry>) -> Self {
        Self::new(entries.map(|entry| match entry.kind {
            EntryKind::File { link, .. } if link != 0 => (entry.path.as_slice(), Some(link)),
            _ => (entry.path.as_slice(), None),
        }))
    }

    /// The first path that is the same file: often the path itself.
    pub(super) fn leader(&self, path: &'a [u8]) -> &'a [u8] {
        self.0.get(path).copied().unwrap_or(path)
    }
}

/// What a capture takes: which names are in it if they are there at all.
pub(super) struct Reach<'a> {
    sources: Option<Vec<Vec<u8>>>,
    excludes: Gitignore,
    nevers: Vec<Vec<u8>>,
    left_out: std::collections::HashSet<&'a std::path::Path>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(scope: &'a Scope) -> Result<Self> {
        let left_out = scope.left_out.iter().map(|left| left.path.as_path()).collect();
        Ok(Self { sources: scope.sources(), excludes: scope.excludes()?, nevers: scope.nevers(), left_out })
    }

    /// Whether the checkpoint's paths hold it, whatever was then left out of them.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.iter().any(|source| is_below(path, source)))
    }

    /// Whether the capture would have it, so that a name which it does not have was not there.
    pub(super) fn captures(&self, path: &[u8], is_folder: bool) -> bool {
        self.covers(path)
            && !excluded(&self.excludes, path, is_folder)
            && !self.nevers.iter().any(|never| is_below(path, never))
            && !path.split(|byte| *byte == b'/').any(|name| name == b".git")
            && (self.left_out.is_empty() || !lossy(path).ancestors().any(|above| self.left_out.contains(above)))
    }
}

/// What a restore may delete: only what the checkpoint's scope covers, what its capture did not leave out, and what no
/// ignore rule names, neither the checkpoint's nor the one that held before the restore.
pub(super) struct Guard<'a> {
    reach: Reach<'a>,
    then: Rules,
    now: &'a Rules,
}

impl<'a> Guard<'a> {
    /// `then` are the checkpoint's rules, `now` those before the restore.
    pub(super) fn new(scope: &'a Scope, then: Rules, now: &'a Rules) -> Result<Self> {
        Ok(Self { reach: Reach::new(scope)?, then, now })
    }

    /// Whether the checkpoint's paths hold it, whatever was then left out of them.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.reach.covers(path)
    }

    /// Whether it may be deleted where the checkpoint does not have it.
    pub(super) fn may_delete(&self, path: &[u8], is_folder: bool) -> bool {
        self.reach.captures(path, is_folder)
            && (self.reach.sources.is_some() || !(self.then.names(path, is_folder) || self.now.names(path, is_folder)))
    }
}
