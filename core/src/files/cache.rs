//! The stat cache: which files need not be read again.

use std::path::Path;

use crate::error::Result;

/// Remembers chunk lists by (dev, inode, size, mtime, ctime, mode, boot id). A damaged or absent cache file is an empty cache.
#[derive(Debug, Default)]
pub struct StatCache {}

impl StatCache {
    /// Reads the cache file; never fails for its content.
    pub fn load(path: &Path) -> Self { let _ = path; todo!() }
    /// Replaces the cache file (not synced: it is only a cache).
    pub fn save(&self, path: &Path) -> Result<()> { let _ = path; todo!() }
}
