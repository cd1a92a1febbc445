//! Making and opening a store.

use std::path::{Path, PathBuf};

use super::{Reader, Ref, Session};
use crate::error::Result;
use crate::progress::Control;

/// An open store. Cheap to clone and shared between threads; opening writes nothing.
#[derive(Debug, Clone)]
pub struct Store {}

impl Store {
    /// Makes a store in `path`, which must be absent or an empty folder.
    pub fn create(path: &Path) -> Result<Self> { todo!() }
    /// Opens the store in `path`; a folder that is not one is left untouched.
    pub fn open(path: &Path) -> Result<Self> { todo!() }
    /// Opens it, or makes it where `path` is absent or empty. Two processes may do this at once.
    pub fn open_or_create(path: &Path) -> Result<Self> { todo!() }
    /// Its folder, absolute.
    pub fn path(&self) -> &Path { todo!() }
    /// Its uuid.
    pub fn uuid(&self) -> &str { todo!() }
    /// `branches/`: clusters owned by forklift (used by the branch layer).
    pub fn branches(&self) -> PathBuf { todo!() }
    /// `projects/`: records, journals and stat caches (used by the project layer).
    pub fn projects(&self) -> PathBuf { todo!() }
    /// `caches/`: clusters of checkpoints that are ready to clone.
    pub fn caches(&self) -> PathBuf { todo!() }
    /// A writing session: shared lock, deduplication, packs. Nothing of it is visible until `commit`.
    pub fn session(&self, control: &Control) -> Result<Session> { todo!() }
    /// A reader: shared lock and index.
    pub fn reader(&self, control: &Control) -> Result<Reader> { todo!() }
    /// All refs, oldest first (by id). A ref that does not parse or whose hash is wrong is reported in the second list by file name.
    pub fn refs(&self) -> Result<(Vec<Ref>, Vec<String>)> { todo!() }
    /// One ref by its exact id.
    pub fn find_ref(&self, id: &str) -> Result<Ref> { todo!() }
    /// Removes a ref, durably. `NotFound` where there is none.
    pub fn remove_ref(&self, id: &str) -> Result<()> { todo!() }
    /// Removes what no ref needs. Without `options.apply` only tells what it would do.
    pub fn prune(&self, options: &super::PruneOptions, control: &Control) -> Result<super::PruneReport> { todo!() }
}
