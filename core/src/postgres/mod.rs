//! Unmodified Postgres 13 to 18: installations, clusters, servers, and copies of both stopped and running ones.
//!
//! Read in this order: `installation`, `find`, `bundled`, `control_file`, `cluster` (what a cluster needs), `initdb`,
//! `account` (as whom servers run), `address`, `server` with `keeper`, `sql`, `layout` (what a copy takes), `sink` with
//! `tree_sink`, `store_sink` and `clone_sink`, `wal`, `stopped`, `write`, `databases`, `online`, `prepare`, `sequences`, `mark`.

mod account;
mod address;
mod bundled;
mod clone_sink;
mod cluster;
mod cluster_cache;
mod control_file;
mod crc32c;
mod databases;
#[cfg(test)]
mod disk_tests;
mod find;
mod in_use;
mod initdb;
mod installation;
pub mod keeper;
mod layout;
mod lock_file;
mod mark;
mod online;
mod prepare;
mod prepared;
mod program;
mod record;
mod sequences;
mod server;
mod session;
mod sink;
mod slot_file;
mod sql;
mod stopped;
mod store_sink;
mod tree_sink;
mod wal;
mod write;

pub use account::RunAs;
pub use address::{Address, UrlForm};
pub use bundled::install as install_bundled;
pub use clone_sink::{CloneSink, StoredCluster, forget_kept};
pub use cluster::{ClusterFacts, DatabaseLocale};
pub use cluster_cache::ClusterCache;
pub use control_file::{ClusterState, ControlFile};
pub use find::{choose, find};
pub use initdb::{InitOptions, initdb};
pub use installation::{Extension, Installation, Origin, Version};
pub use layout::cutting;
pub use mark::{Mark, mark_running, mark_stopped};
pub use online::copy_online;
pub use prepare::{check_online_copy, check_restart, copy_settings, outside_tablespaces, prepare_copy, prepare_restart};
pub use sequences::{SequenceState, put_back, read_all};
pub use server::{Server, ServerSpec, ServerStatus, StopMode, bootstrap_superuser, status};
pub use sink::{CopyReport, Sink, SourceFile};
pub use sql::{Credentials, Role, Sql};
pub use stopped::copy_stopped;
pub use store_sink::{StoreSink, file_system_clock};
pub use tree_sink::TreeSink;
pub use wal::needed_segments;
pub use write::{Written, write_cluster};
