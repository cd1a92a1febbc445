//! `pool.json`: what a pool is and how far its making or removal has come.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::sys::fs::Syncs;

/// The file system of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Shares blocks of files.
    #[default]
    Xfs,
    /// Shares blocks of files, and takes snapshots of whole folders.
    Btrfs,
}

/// How far a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Its making was broken off: `create` begins anew, `remove` clears it away. Nothing was ever in it.
    Making,
    /// Made.
    Ready,
    /// Its removal was broken off: `remove` goes on.
    Removing,
}

/// What mounts it after a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ComesBack {
    /// A mount unit, in this file.
    Systemd(PathBuf),
    /// Two lines in this file.
    Fstab(PathBuf),
}

impl ComesBack {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Systemd(_) => "systemd",
            Self::Fstab(_) => "fstab",
        }
    }

    pub(super) fn file(&self) -> &Path {
        match self {
            Self::Systemd(file) | Self::Fstab(file) => file,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) format: u32,
    pub(super) state: PoolState,
    pub(super) file_system: PoolKind,
    pub(super) comes_back: ComesBack,
    /// The folder was made for the pool, and goes with it.
    pub(super) own_folder: bool,
}

pub(super) const FORMAT: u32 = 1;
/// Its name.
pub(super) const FILE: &str = "pool.json";

impl PoolKind {
    /// As `mount` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Options beside `loop`: no device and no set-user-id file of a database is ever meant. The image keeps its blocks (btrfs
    /// would give them back to the host's disk, which could then be full when the pool needs them).
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::Xfs => "loop,nodev,nosuid",
            Self::Btrfs => "loop,nodev,nosuid,nodiscard",
        }
    }

    /// The package of its programs.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
        }
    }
}

impl Record {
    /// The record in a pool's folder; `None` where there is none.
    pub(super) fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        json::optional(json::load(&path, FORMAT, |source| {
            Error::new(ErrorKind::Corrupt, format!("{} is not the record of a pool: {source}", path.display()))
                .with("path", path.display())
                .hint("name another folder; what is mounted here, and its image, are as they were")
        }))
    }

    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        json::save(&folder.join(FILE), self, 0o644, &Syncs::new())
    }
}
