//! Snapshots of subvolumes of btrfs, and the folders that can be snapshotted.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::io::Errno;

use super::backend::Reflink;
use super::{Backend, Method};
use crate::error::{Error, Result};
use crate::sys::btrfs::{self, NESTED};
use crate::sys::{self, mounts};

/// Takes whole trees by one snapshot where they are subvolumes, and single files by reflink.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Snapshot;

impl Backend for Snapshot {
    fn method(&self) -> Method {
        Method::Snapshot
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn is_atomic(&self) -> bool {
        true
    }

    fn clone_whole(&self, source: &Path, target: &Path) -> Result<bool> {
        // What is mounted in it is not in a snapshot of it.
        if !btrfs::is_subvolume(source) || mounts::any_below(source)? {
            return Ok(false);
        }
        match btrfs::snapshot(source, target) {
            Ok(()) => {}
            Err(errno) if btrfs::refused(errno) => return Ok(false),
            Err(errno) => return Err(Error::io("take a snapshot in", target, errno)),
        }
        match tidy(target, true) {
            Ok(true) => Ok(true),
            // A subvolume in the subvolume: its content is not in the snapshot.
            Ok(false) => remove_tree(target).map(|()| false),
            Err(error) => Err(match remove_tree(target) {
                Ok(()) => error,
                Err(left) => error.hint(format!("remove {} by hand: {left}", target.display())),
            }),
        }
    }

    fn clone_file(&self, from: &File, from_path: &Path, to: &File, to_path: &Path) -> Result<u64> {
        Reflink::default().clone_file(from, from_path, to, to_path)
    }
}

/// Takes sockets and devices out of a new snapshot; `false` where it has the empty place of another subvolume.
fn tidy(folder: &Path, top: bool) -> Result<bool> {
    let metadata = std::fs::symlink_metadata(folder).map_err(|source| Error::io("examine", folder, source))?;
    if !top && metadata.ino() == NESTED {
        return Ok(false);
    }
    for entry in std::fs::read_dir(folder).map_err(|source| Error::io("list", folder, source))? {
        let entry = entry.map_err(|source| Error::io("list", folder, source))?;
        let kind = entry.file_type().map_err(|source| Error::io("examine", &entry.path(), source))?;
        if kind.is_dir() {
            if !tidy(&entry.path(), false)? {
                return Ok(false);
            }
        } else if kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
            sys::fs::remove_file(&entry.path())?;
        }
    }
    Ok(true)
}

/// Makes the new folder `path` such that its tree can be cloned as cheaply as this file system knows: a subvolume on btrfs
/// where this user may make one, else a plain folder.
///
/// # Errors
/// `AlreadyExists`, `NotFound` where its parent is not there, `Permission`, `NoSpace`, `ReadOnly`, `Io`.
pub fn make_folder(path: &Path, mode: u32) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if btrfs::is_btrfs(parent) {
        match btrfs::create(path) {
            Ok(()) => {
                return std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|source| {
                    let error = Error::io("set the mode of", path, source);
                    match remove_tree(path) {
                        Ok(()) => error,
                        Err(left) => error.hint(format!("remove {} by hand: {left}", path.display())),
                    }
                });
            }
            Err(errno) if btrfs::refused(errno) => {}
            Err(errno) => return Err(Error::io("create folder", path, errno)),
        }
    }
    std::fs::DirBuilder::new().mode(mode).create(path).map_err(|source| Error::io("create folder", path, source))
}

/// Removes a tree: in one step where it is a subvolume and this user may, else file by file (which also removes subvolumes in
/// it). One that is not there is fine.
///
/// # Errors
/// `Permission`, `Io`.
pub fn remove_tree(path: &Path) -> Result<()> {
    if btrfs::is_subvolume(path) {
        match btrfs::destroy(path) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Whatever it is, removal by hand says it better.
            Err(_) => {}
        }
    }
    sys::fs::remove_tree(path)
}
