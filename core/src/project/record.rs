//! What a store keeps of one project: the record, and where everything else of it lies.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::store::Store;
use crate::sys::fs::{self, Syncs};

/// Format of every JSON file of this layer.
pub(super) const FORMAT: u32 = 1;

/// `projects/<id>/` of a store.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(store: &Store, id: &str) -> Self {
        Self(store.projects().join(id))
    }
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
    pub(super) fn record(&self) -> PathBuf {
        self.0.join("project.json")
    }
    /// What a setup that has not written its record is about to make.
    pub(super) fn intent(&self) -> PathBuf {
        self.0.join("setup.json")
    }
    pub(super) fn current(&self) -> PathBuf {
        self.0.join("current.json")
    }
    pub(super) fn journal(&self) -> PathBuf {
        self.0.join("journal.json")
    }
    pub(super) fn stat_cache(&self) -> PathBuf {
        self.0.join("stat-cache")
    }
    pub(super) fn command_lock(&self) -> PathBuf {
        self.0.join("command.lock")
    }
    pub(super) fn publish_lock(&self) -> PathBuf {
        self.0.join("publish.lock")
    }
    pub(super) fn server_lock(&self) -> PathBuf {
        self.0.join("server.lock")
    }
    /// Present while the server runs because a `run` started it.
    pub(super) fn server_marker(&self) -> PathBuf {
        self.0.join("server-of-run")
    }
    pub(super) fn holders(&self) -> PathBuf {
        self.0.join("holders")
    }
    /// The log of turns, and the lock of its one writer.
    pub(super) fn timeline(&self) -> PathBuf {
        self.0.join("timeline")
    }
    pub(super) fn hook_log(&self, hook: &str) -> PathBuf {
        self.0.join(format!("hook-{hook}.log"))
    }
    pub(super) fn hook_errors(&self, hook: &str) -> PathBuf {
        self.0.join(format!("hook-{hook}.errors"))
    }
    pub(super) fn staging(&self) -> PathBuf {
        self.0.join("staging")
    }
    pub(super) fn kept(&self, journal: &str) -> PathBuf {
        self.0.join("kept").join(journal)
    }
}

/// One folder on disk, told apart from another that has its name: a new folder may get the old inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FolderId {
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// Nanoseconds since 1970 of its birth, where the file system knows.
    pub(super) born_ns: Option<u64>,
}

impl FolderId {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::symlink_metadata(path).map_err(|source| Error::io("look at", path, source))?;
        Ok(Self::of_metadata(&metadata))
    }

    pub(super) fn of_metadata(metadata: &std::fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
        Self { dev: metadata.dev(), ino: metadata.ino(), born_ns: born.and_then(|age| u64::try_from(age.as_nanos()).ok()) }
    }

    /// Whether it is the same folder; the device number may change with a reboot, so it does not count.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.ino == other.ino && (self.born_ns.is_none() || other.born_ns.is_none() || self.born_ns == other.born_ns)
    }
}

/// `project.json`: the authoritative record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectRecord {
    pub(super) format: u32,
    pub(super) id: String,
    #[serde(with = "super::paths")]
    pub(super) root: PathBuf,
    pub(super) folder: FolderId,
    pub(super) created_ms: u64,
    /// Id of its branch, where it has a database.
    pub(super) branch: Option<String>,
}

impl ProjectRecord {
    pub(super) fn load(folder: &Folder) -> Result<Option<Self>> {
        read_json(&folder.record())
    }

    pub(super) fn save(&self, folder: &Folder, syncs: &Syncs) -> Result<()> {
        write_json(&folder.record(), self, syncs)
    }
}

/// Reads one of our JSON files; an absent one is `None`.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(bytes) = fs::read_optional(path)? else { return Ok(None) };
    let damaged = |error: serde_json::Error| {
        Error::new(ErrorKind::Corrupt, format!("{}: {error}", path.display()))
            .with("path", path.display())
            .hint("put the file back from a backup of the store, or remove it")
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64).filter(|format| *format > u64::from(FORMAT)) {
        return Err(Error::new(ErrorKind::UnsupportedFormat, format!("{} has format {format}, this build knows {FORMAT}", path.display()))
            .with("path", path.display())
            .hint("use a newer forklift"));
    }
    serde_json::from_value(value).map(Some).map_err(damaged)
}

/// Replaces one of our JSON files, durably.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T, syncs: &Syncs) -> Result<()> {
    json::save(path, value, 0o600, syncs)
}

/// Removes a file, durably; one that is not there is fine.
pub(super) fn remove_durably(path: &Path, syncs: &Syncs) -> Result<()> {
    fs::remove_file(path)?;
    syncs.folder(path.parent().unwrap_or(Path::new("/")))
}
