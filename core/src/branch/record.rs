//! What is known of a branch: its record on disk and what a listing shows.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::postgres::{Address, Limits, Ranges, SafeMode, Version};

/// `branches/<id>/branch.json`, outside the branchable data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchRecord {
    /// Format of this record, 1.
    pub format: u32,
    /// Sortable by time; names its folder.
    pub id: String,
    /// Unique among branches: 1 to 63 of letters, digits, `.`, `_`, `-`, starting with a letter or digit.
    pub name: String,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// How it came to be: `empty`, `seed`, `datadir`, `url`, `branch:<id>`, `checkpoint:<id>`.
    pub origin: String,
    /// The branch it was forked from, by id.
    pub parent: Option<String>,
    /// Address for life.
    pub address: Address,
    /// Folder of the programs it was made with, and their version.
    pub postgres: PathBuf,
    /// See `postgres`.
    pub version: Version,
    /// It is a fork: archiving, restore, subscriptions and slots stay off.
    pub fork: bool,
    /// Replication was kept on request.
    pub keep_replication: bool,
    /// Its server is kept from reaching outside, at every start.
    #[serde(default)]
    pub safe: SafeMode,
    /// Its sequences have ranges that its siblings do not share.
    #[serde(default)]
    pub ranges: Option<Ranges>,
    /// How long its server runs.
    #[serde(default)]
    pub limits: Limits,
    /// It is not deleted.
    #[serde(default)]
    pub protected: bool,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
    /// The project it belongs to, by id.
    pub project: Option<String>,
}

/// Whether the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// No process.
    Stopped,
    /// Running and reachable.
    Running,
    /// Starting, stopping, or left without its keeper.
    InTransition,
}

/// What `list` and `inspect` show; the JSON shape of every surface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BranchInfo {
    /// Name.
    pub name: String,
    /// Id.
    pub id: String,
    /// RFC 3339.
    pub created: String,
    /// See [`BranchRecord::origin`].
    pub origin: String,
    /// Name of the branch it was forked from, where that still exists.
    pub parent: Option<String>,
    /// Server.
    pub state: ServerState,
    /// Postmaster's pid.
    pub pid: Option<u32>,
    /// Server version `15.18`.
    pub version: String,
    /// Database of the URL.
    pub database: String,
    /// Role of the URL.
    pub user: String,
    /// Folder of the public socket.
    #[serde(serialize_with = "crate::report::path")]
    pub socket: PathBuf,
    /// TCP port.
    pub port: Option<u16>,
    /// Data folder of the current cluster.
    #[serde(serialize_with = "crate::report::path")]
    pub data: PathBuf,
    /// Bytes of the branch's folder on disk (apparent blocks, shared ones counted).
    pub bytes: u64,
    /// Whether its server is kept from reaching outside: `off`, `strict`, `best-effort`.
    pub safe: SafeMode,
    /// How long its server runs, in milliseconds.
    pub limits: Limits,
    /// It is not deleted.
    pub protected: bool,
    /// The project it belongs to.
    pub project: Option<String>,
    /// A restore is pending: it cannot be started before `project recover`.
    pub held: Option<String>,
}
