//! The description of one tree: path-sorted entries in content-cut blocks, each block a chunk.
//!
//! Read in this order: `entry` (the bytes of one entry, and what is allowed in it), `block` (many entries, or many blocks),
//! `list` (long chunk lists), `writer`, `reader`, `walk` (every chunk that a manifest needs), `apart` (two of them),
//! `survey` (the same past what is damaged).

mod apart;
mod block;
mod entry;
mod list;
mod reader;
mod survey;
mod walk;
mod writer;

pub(super) use apart::{apart, find};
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::store) use entry::check_path;
pub use reader::ManifestReader;
pub(super) use survey::{Survey, Surveyor, is_damage};
pub(super) use walk::walk;
pub use writer::ManifestWriter;

use super::ChunkRef;

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Raw bytes relative to the root, parts separated by `/`; never empty, absolute, or with `.`, `..`, NUL. The tree's root itself has no entry.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// The 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, nanoseconds since 1970 (may be negative).
    pub mtime_ns: i64,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<Xattr>,
    /// The file changed while it was read: the content is one of its states, or a mixture.
    pub unstable: bool,
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file. `link` is equal for all names of one hard-linked file (0: not linked); each of them carries the content.
    File {
        /// Bytes.
        size: u64,
        /// Content, in order.
        chunks: Vec<ChunkRef>,
        /// Holes as (offset, length), where the file is sparse.
        holes: Vec<(u64, u64)>,
        /// Hard link group, 0 for none.
        link: u64,
    },
    /// A folder.
    Folder,
    /// A symbolic link and its text.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket: recorded, never restored.
    Socket,
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Full name, such as `user.note`.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Reads bytes as any part of a manifest, hostile or not, and checks what must hold of all that parses.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn check_any(bytes: &[u8]) {
    if let Ok(block) = block::Block::parse(super::ChunkId::ZERO, bytes.to_vec()) {
        block::check_any(block);
    }
    if let Ok((level, node)) = list::parse(bytes, list::TOP) {
        assert_eq!(list::encode(level, &node), bytes, "a node has one form");
    }
}
