//! Differences between two trees, by name.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::store::Entry;

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

/// Merges two path-sorted sequences of entries. Modification times do not count.
pub fn diff(first: impl Iterator<Item = Result<Entry>>, second: impl Iterator<Item = Result<Entry>>) -> Result<Vec<Change>> {
    let _ = (first.count(), second.count());
    todo!()
}
