//! Tests of clusters on disk with real installations, clusters and servers.

mod cluster;
mod control_file;
mod prepare;
mod stopped;
mod store_sink;
pub(super) mod testing;
mod wal;
mod write;
