//! The backends behind one trait.

use std::fs::File;
use std::path::Path;

use crate::error::Result;

/// Which way a backend copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// FICLONE (XFS, btrfs, bcachefs) or clonefile (APFS): shares extents.
    Reflink,
    /// copy_file_range, else read and write.
    Copy,
}

/// One way to copy a file.
pub trait Backend: Send + Sync {
    /// Which way.
    fn method(&self) -> Method;
    /// Whether the copy shares its blocks with the source, so that it costs no space.
    fn shares_blocks(&self) -> bool;
    /// Copies the whole content of `from` to the empty file `to` (holes stay holes where the way allows it) and gives the
    /// bytes it holds. The paths are for errors. A file that changes meanwhile gives one of its states or a mixture.
    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64>;
}

/// The cheapest backend that really works from files below `source` to files below the folder `target`, found by cloning
/// a probe file made (and removed) in `target`'s file system.
pub fn choose(source: &Path, target: &Path) -> Result<Box<dyn Backend>> {
    let _ = (source, target);
    todo!()
}
