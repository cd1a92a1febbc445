//! Clusters on disk: making one, describing one, and making a copy safe to start.

use std::path::{Path, PathBuf};

use super::{ControlFile, Installation, RunAs, Version};
use crate::error::Result;
use crate::progress::Control;

/// How to make a cluster.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// Name of the bootstrap superuser.
    pub superuser: String,
    /// Locale, such as `C.UTF-8`.
    pub locale: String,
    /// WAL segment size in MiB where not the default.
    pub wal_segment_mib: Option<u32>,
    /// Data checksums.
    pub checksums: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { superuser: "forklift".to_owned(), locale: "C.UTF-8".to_owned(), wal_segment_mib: None, checksums: true }
    }
}

/// Makes a cluster in the absent or empty folder `data`, synced. On failure the folder is as before.
pub fn initdb(installation: &Installation, run_as: &RunAs, data: &Path, options: &InitOptions, control: &Control) -> Result<()> {
    let _ = (installation, run_as, data, options, control);
    todo!()
}

/// What must fit before a cluster is started by a build: kept with every checkpoint and checked before a restore.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClusterFacts {
    /// Version of the server that ran it last.
    pub version: Version,
    /// pg_control at the time.
    pub control: ControlFile,
    /// `libc`, `icu`, `builtin` per database with collation and version, where they were read by SQL.
    pub locales: Vec<DatabaseLocale>,
    /// Extensions per database: (database, extension, version).
    pub extensions: Vec<(String, String, String)>,
}

/// The locale of one database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DatabaseLocale {
    /// Database.
    pub database: String,
    /// `c`, `i` or `b`.
    pub provider: String,
    /// LC_COLLATE or ICU locale.
    pub locale: String,
    /// LC_CTYPE.
    pub ctype: String,
    /// Collation version recorded in the database, where there is one.
    pub version: Option<String>,
}

impl ClusterFacts {
    /// Reads what the files say: PG_VERSION and pg_control.
    pub fn of_files(data: &Path, installation: &Installation) -> Result<Self> { let _ = (data, installation); todo!() }
    /// `PostgresMismatch` by name where `installation` cannot run such a cluster (major, catalog version, block and segment
    /// sizes, missing locale or extension files); warnings where it can but results may differ (collation version).
    pub fn check(&self, installation: &Installation) -> Result<Vec<String>> { let _ = installation; todo!() }
}

/// Makes a copy that was just made by us safe to start: postmaster.pid, postmaster.opts, standby.signal and recovery.signal
/// removed, the contents of pg_replslot emptied (unless `keep_replication`), pg_wal a real folder, every link in pg_tblspc
/// pointing inside `data` (tablespaces lie in `data/pg_tblspc/<oid>` as real folders, which Postgres accepts) or refused by name. Checked again before every start.
pub fn prepare_copy(data: &Path, keep_replication: bool) -> Result<Vec<PathBuf>> { let _ = (data, keep_replication); todo!() }
