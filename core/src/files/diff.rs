//! Differences between two trees, by name.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::store::{Entry, EntryKind};

/// How one path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Only in the second.
    Added,
    /// Only in the first.
    Removed,
    /// Other content (or link text).
    Modified,
    /// Other mode, owner or attributes, same content.
    Metadata,
    /// A file became a folder, or the like.
    Type,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Raw bytes relative to the root.
    pub path: Vec<u8>,
    /// How.
    pub kind: ChangeKind,
}

/// Merges two path-sorted sequences of entries. Modification times, the placing of holes and which names share one file do not count.
///
/// # Errors
/// The first that a sequence gives.
pub fn diff(first: impl Iterator<Item = Result<Entry>>, second: impl Iterator<Item = Result<Entry>>) -> Result<Vec<Change>> {
    let (mut first, mut second) = (first, second);
    let (mut left, mut right) = (first.next().transpose()?, second.next().transpose()?);
    let mut changes = Vec::new();
    loop {
        let (path, kind) = match (&left, &right) {
            (None, None) => return Ok(changes),
            (Some(one), Some(other)) if one.path == other.path => (one.path.clone(), compare(one, other)),
            (Some(one), Some(other)) if one.path < other.path => (one.path.clone(), Some(ChangeKind::Removed)),
            (Some(one), None) => (one.path.clone(), Some(ChangeKind::Removed)),
            (_, Some(other)) => (other.path.clone(), Some(ChangeKind::Added)),
        };
        let (from_left, from_right) = match kind {
            Some(ChangeKind::Removed) => (true, false),
            Some(ChangeKind::Added) => (false, true),
            _ => (true, true),
        };
        if let Some(kind) = kind {
            changes.push(Change { path, kind });
        }
        if from_left {
            left = first.next().transpose()?;
        }
        if from_right {
            right = second.next().transpose()?;
        }
    }
}

/// How two entries of one path differ.
pub(super) fn compare(one: &Entry, other: &Entry) -> Option<ChangeKind> {
    let same = match (&one.kind, &other.kind) {
        (EntryKind::File { chunks: one, size: one_size, .. }, EntryKind::File { chunks: other, size: other_size, .. }) => {
            one_size == other_size && one == other
        }
        (EntryKind::Symlink(one), EntryKind::Symlink(other)) => one == other,
        (EntryKind::Folder, EntryKind::Folder) | (EntryKind::Fifo, EntryKind::Fifo) | (EntryKind::Socket, EntryKind::Socket) => true,
        _ => return Some(ChangeKind::Type),
    };
    if !same {
        return Some(ChangeKind::Modified);
    }
    // The mode of a symbolic link means nothing.
    let mode = |entry: &Entry| if matches!(entry.kind, EntryKind::Symlink(_)) { 0 } else { entry.mode };
    let metadata = |entry: &Entry| (mode(entry), entry.uid, entry.gid);
    (metadata(one) != metadata(other) || one.xattrs != other.xattrs).then_some(ChangeKind::Metadata)
}
