//! Unmodified Postgres 13 to 18: installations, clusters, servers, and copies of both stopped and running ones.
//!
//! Read in this order: `installation`, `bundled`, `control_file`, `cluster` (initdb, facts), `account` (as whom servers
//! run), `address`, `server` with `keeper`, `sql`, `sink`, `stopped`, `online`, `sequences`, `mark`.

mod account;
mod address;
mod bundled;
mod cluster;
mod control_file;
mod installation;
pub mod keeper;
mod lock_file;
mod mark;
mod online;
mod record;
mod sequences;
mod server;
mod session;
mod sink;
mod sql;
mod stopped;
mod wal;

pub use account::RunAs;
pub use address::{Address, UrlForm};
pub use bundled::install as install_bundled;
pub use cluster::{ClusterFacts, InitOptions, initdb, prepare_copy};
pub use control_file::{ClusterState, ControlFile};
pub use installation::{Extension, Installation, Origin, Version, choose, find};
pub use mark::{Mark, mark_running, mark_stopped};
pub use online::copy_online;
pub use sequences::{SequenceState, put_back, read_all};
pub use server::{Server, ServerSpec, ServerStatus, StopMode, bootstrap_superuser, status};
pub use sink::{CopyReport, Sink, SourceFile, TreeSink};
pub use sql::{Credentials, Role, Sql};
pub use stopped::copy_stopped;
pub use wal::needed_segments;
