//! The kept clone: the large files of the last capture, each sharing its blocks with the cluster's for as long as nobody writes there.
//!
//! A folder without structure, one file each, named by the hash of its path in the cluster. It has no record of its own: the
//! cluster cache knows each file by its stat, as it knows those of the cluster, and one that it does not know is worth nothing. So
//! a folder that is half made, older than the cache, written to or put together anew costs reads, and nothing else. It is
//! not synced: nothing of it counts after a boot.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::postgres::ClusterCache;
use crate::postgres::cluster_cache::Stat;
use crate::store::{ChunkRef, Cutting};
use crate::sys::fs;

/// Start of the name of a clone that is not kept yet.
const FRESH: &str = "new-";
/// There once the blocks of this file system did not tell the truth.
const DISTRUSTED: &str = "distrusted";

/// The folder of one cluster's kept clone.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    next: AtomicU64,
}

/// A file of the last capture.
pub(super) struct KeptFile<'a> {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) stat: Stat,
    /// What it holds.
    pub(super) chunks: &'a [ChunkRef],
}

impl Kept {
    /// Makes the folder where it is not there, and removes what a killed capture left. Anything else in its place goes: it is a cache,
    /// and a link would lead to files that are not ours.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        if std::fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(folder)?;
        }
        fs::make_folder(folder, 0o700)?;
        let kept = Self { folder: folder.to_owned(), next: AtomicU64::new(0) };
        kept.sweep()?;
        Ok(kept)
    }

    /// A name for a clone that is not kept yet.
    pub(super) fn fresh(&self) -> PathBuf {
        self.folder.join(format!("{FRESH}{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// The kept file of a path of the cluster, where `known` knows what is in it.
    pub(super) fn find<'a>(&self, known: &'a ClusterCache, path: &Path) -> Option<KeptFile<'a>> {
        let place = self.place(path);
        let file = fs::open_regular(&place).ok()?;
        let (stat, _) = Stat::of(&file, &place, Cutting::Pages).ok()?;
        let chunks = self.known(known, &stat)?;
        Some(KeptFile { file, path: place, stat, chunks })
    }

    /// The same without opening it: its stat and what it holds.
    pub(super) fn look<'a>(&self, known: &'a ClusterCache, path: &Path) -> Option<(Stat, &'a [ChunkRef])> {
        let metadata = std::fs::symlink_metadata(self.place(path)).ok()?;
        let stat = Stat::new(&metadata, Cutting::Pages);
        Some((stat, self.known(known, &stat)?))
    }

    fn known<'a>(&self, known: &'a ClusterCache, stat: &Stat) -> Option<&'a [ChunkRef]> {
        // It was not synced, so what a file of it holds after a boot is not known.
        known.find(stat).filter(|_| !known.is_of_other_boot()).map(Vec::as_slice)
    }

    /// Keeps a clone as that of a path. Its stat from now on.
    pub(super) fn adopt(&self, clone: &Path, path: &Path) -> Result<Stat> {
        let place = self.place(path);
        fs::rename(clone, &place)?;
        let metadata = std::fs::symlink_metadata(&place).map_err(|source| Error::io("examine", &place, source))?;
        Ok(Stat::new(&metadata, Cutting::Pages))
    }

    /// Removes every file that is not of one of these paths.
    pub(super) fn retain(&self, paths: &HashSet<PathBuf>) -> Result<()> {
        let keep: HashSet<PathBuf> = paths.iter().map(|path| self.place(path)).collect();
        for name in fs::names(&self.folder)? {
            let place = self.folder.join(&name);
            if name != DISTRUSTED && !keep.contains(&place) {
                fs::remove_file(&place)?;
            }
        }
        Ok(())
    }

    /// Removes the clones that are not kept.
    pub(super) fn sweep(&self) -> Result<()> {
        for name in fs::names(&self.folder)? {
            if name.as_bytes().starts_with(FRESH.as_bytes()) {
                fs::remove_file(&self.folder.join(name))?;
            }
        }
        Ok(())
    }

    /// Whether blocks are compared here at all.
    pub(super) fn is_trusted(&self) -> bool {
        !self.distrusted().exists()
    }

    /// Ends every comparison of blocks here, until the folder is removed.
    pub(super) fn distrust(&self) -> Result<()> {
        if self.is_trusted() { fs::create_new(&self.distrusted(), 0o600).map(drop) } else { Ok(()) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn distrusted(&self) -> PathBuf {
        self.folder.join(DISTRUSTED)
    }

    fn place(&self, path: &Path) -> PathBuf {
        let hash = blake3::hash(path.as_os_str().as_bytes()).to_hex();
        self.folder.join(hash.get(..32).unwrap_or_default())
    }
}
