//! The store: chunks in packs, an index that can be rebuilt, manifests, and refs that make a checkpoint exist.
//!
//! Read in this order: `chunk` (ids, cutting), `pack`, `index`, `session` (writing), `reader`, `manifest`, `refs`, `prune`.

mod chunk;
mod manifest;
mod open;
mod prune;
mod reader;
mod refs;
mod session;

pub use chunk::{ChunkId, ChunkRef, Cutting};
pub use manifest::{Entry, EntryKind, ManifestReader, ManifestWriter, Xattr};
pub use open::Store;
pub use prune::{PruneOptions, PruneReport};
pub use reader::Reader;
pub use refs::{Half, Ref, RefKind};
pub use session::{FileRead, Session, SessionReport};
