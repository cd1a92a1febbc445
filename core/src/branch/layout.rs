//! Where the parts of a branch lie, and its small files beside `branch.json`.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::postgres::{Address, ClusterFacts, Mark};
use crate::store::ChunkId;
use crate::sys;
use crate::sys::fs::Syncs;

/// Format of every record of this layer.
pub(super) const FORMAT: u32 = 1;
/// Start of the name of a branch that is being made.
pub(super) const MAKING: &str = ".making-";
/// Start of the name of a branch or cluster that is being removed.
pub(super) const DELETING: &str = ".deleting-";
/// Start of the name of a file that is about to have none.
pub(super) const ANONYMOUS: &str = ".anonymous-";

/// The folder of one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join("branch.json")
    }

    pub(super) fn credentials(&self) -> PathBuf {
        self.0.join("credentials.json")
    }

    pub(super) fn current(&self) -> PathBuf {
        self.0.join("current.json")
    }

    pub(super) fn hold(&self) -> PathBuf {
        self.0.join("hold.json")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(super) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    pub(super) fn clusters(&self) -> PathBuf {
        self.0.join("clusters")
    }

    pub(super) fn cluster(&self, id: &str) -> ClusterFolder {
        ClusterFolder(self.clusters().join(id))
    }
}

/// The folder of one cluster of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterFolder(pub(super) PathBuf);

impl ClusterFolder {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join("cluster.json")
    }

    /// What the store has of the files as they were at the last capture.
    pub(super) fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    /// Clones of its large files as they were at the last capture: a cache.
    pub(super) fn kept(&self) -> PathBuf {
        self.0.join("kept")
    }

    /// For the private start of a cluster that is being made.
    pub(super) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// Held by the process that makes the cluster.
    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The address of the private start, so that a dead maker's socket folders are found.
    pub(super) fn address(&self) -> PathBuf {
        self.0.join("address.json")
    }
}

/// `current.json`: which cluster the branch stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Current {
    pub(super) format: u32,
    pub(super) cluster: String,
}

/// `hold.json`: why the branch must not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hold {
    pub(super) format: u32,
    pub(super) reason: String,
    pub(super) since_ms: u64,
}

/// `cluster.json`: what is known of one cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterRecord {
    pub(super) format: u32,
    pub(super) id: String,
    pub(super) created_ms: u64,
    /// As [`super::BranchRecord::origin`], or `checkpoint:<id>` for one that a restore made.
    pub(super) origin: String,
    /// Sequences of the copy were put back at its first start.
    pub(super) sequences_put_back: u64,
    /// The branch's passwords were set at its first start.
    pub(super) passwords_set: bool,
    /// Mark of the cleanly stopped cluster after its first start.
    pub(super) mark: Option<Mark>,
    /// Root of the checkpoint's half that a restore made it of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) made_of: Option<ChunkId>,
    /// Mark of its server as a restore started it, before anybody could connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<Mark>,
    /// Locales and extensions as they were last read by SQL.
    pub(super) facts: Option<ClusterFacts>,
}

impl ClusterRecord {
    pub(super) fn new(id: &str, origin: &str) -> Self {
        Self {
            format: FORMAT,
            id: id.to_owned(),
            created_ms: sys::id::now_ms(),
            origin: origin.to_owned(),
            sequences_put_back: 0,
            passwords_set: true,
            mark: None,
            made_of: None,
            started: None,
            facts: None,
        }
    }
}

/// Reads one of the records. `NotFound`, `Corrupt`, `UnsupportedFormat` name the file.
pub(super) fn load<T: DeserializeOwned>(path: &Path) -> Result<T> {
    json::load(path, FORMAT, |source| {
        Error::new(ErrorKind::Corrupt, format!("{} is not a record of a branch: {source}", path.display())).with("path", path.display())
    })
}

/// As [`load`], with a file that does not exist as `None`.
pub(super) fn load_optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    json::optional(load(path))
}

/// Writes a record so that it is there whole or not at all, durably.
pub(super) fn save<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    json::save(path, value, 0o600, &Syncs::new())
}

/// Removes the socket folders of an address that nobody uses any more.
pub(super) fn remove_address(address: &Address) -> Result<()> {
    sys::fs::remove_tree(&address.public)?;
    sys::fs::remove_tree(&address.private)
}

/// Removes the folder of a branch, a cluster or a cache with all in it: data that is a subvolume goes in one step.
pub(super) fn remove_tree(folder: &Path) -> Result<()> {
    let of_clusters = sys::fs::names(&folder.join("clusters")).unwrap_or_default();
    let of_clusters = of_clusters.iter().map(|name| folder.join("clusters").join(name));
    for cluster in std::iter::once(folder.to_owned()).chain(of_clusters) {
        clone::remove_tree(&cluster.join("data"))?;
    }
    clone::remove_tree(folder)
}

/// Bytes that the tree holds on disk, by blocks; what vanishes meanwhile counts nothing.
pub(super) fn bytes_on_disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => metadata.blocks() * 512 + bytes_on_disk(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
