//! Tests of clusters on disk with real installations, clusters and servers.

mod clone_sink;
mod cluster;
mod control_file;
mod prepare;
mod stopped;
mod store_sink;
pub(super) mod testing;
mod wal;
mod write;
