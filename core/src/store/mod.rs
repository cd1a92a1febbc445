//! The store: chunks in packs, an index that can be rebuilt, manifests, and refs that make a checkpoint exist.
//!
//! Read in this order: `disk` (every file system call), `chunk` (ids, cutting), `format`, `layout`, `create` and `open`; `pack` (the bytes), `codec`,
//! `packfile` (packs on disk), `index`; `session`, `trust`, `parallel` and `publish` (writing), `reader`, `manifest`, `refs`; `prune`, `verify`, `repair`, `stats`.
//! The formats, the order of locks and of publication, and the crash rules are in `ARCHITECTURE.md`.

mod chunk;
mod codec;
mod create;
mod disk;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod layout;
mod manifest;
mod open;
mod pack;
mod packfile;
mod parallel;
mod prune;
mod publish;
mod reader;
mod refs;
mod repair;
mod session;
mod stats;
mod trust;
mod verify;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use chunk::ZeroRun;
pub use chunk::{ChunkId, ChunkRef, Cutting};
pub use manifest::{Entry, EntryKind, ManifestReader, ManifestWriter, Xattr};
pub use open::Store;
pub use prune::{PruneOptions, PruneReport};
pub use reader::Reader;
pub use refs::{Half, Ref, RefKind, RefsAfter};
pub use repair::{RepairOptions, RepairReport};
pub use session::{FileRead, Session, SessionReport};
pub use stats::{CheckpointStats, StatsReport};
pub use verify::{Drilled, Finding, FindingKind, Loss, VerifyLevel, VerifyOptions, VerifyReport};
