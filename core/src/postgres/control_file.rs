//! `global/pg_control`, parsed by our own code: what a cluster is and how it was stopped.

use std::path::Path;

use crate::error::Result;

/// `DBState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterState {
    /// Being started for the first time.
    StartingUp,
    /// Cleanly shut down.
    ShutDown,
    /// Cleanly shut down while in recovery.
    ShutDownInRecovery,
    /// Shutting down.
    ShuttingDown,
    /// Crash recovery.
    InCrashRecovery,
    /// Archive recovery.
    InArchiveRecovery,
    /// Running, or killed.
    InProduction,
}

/// The fields forklift uses.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ControlFile {
    /// `system_identifier`.
    pub system_identifier: u64,
    /// `pg_control_version`: 1300 for 13 to 16, 1700, 1800.
    pub control_version: u32,
    /// `catalog_version_no`.
    pub catalog_version: u32,
    /// State.
    pub state: ClusterState,
    /// LSN of the last checkpoint record.
    pub checkpoint: u64,
    /// Its redo point.
    pub redo: u64,
    /// Its timeline.
    pub timeline: u32,
    /// max_connections of the last start, and its like.
    pub max_connections: u32,
    /// max_worker_processes.
    pub max_worker_processes: u32,
    /// max_wal_senders.
    pub max_wal_senders: u32,
    /// max_prepared_transactions.
    pub max_prepared_transactions: u32,
    /// max_locks_per_transaction.
    pub max_locks_per_transaction: u32,
    /// 0 minimal, 1 replica, 2 logical.
    pub wal_level: u32,
    /// Relation block size in bytes.
    pub block_size: u32,
    /// Blocks per relation segment.
    pub segment_blocks: u32,
    /// WAL block size in bytes.
    pub wal_block_size: u32,
    /// WAL segment size in bytes.
    pub wal_segment_size: u32,
    /// 0 where pages have no checksums.
    pub checksum_version: u32,
}

impl ControlFile {
    /// Reads `data/global/pg_control` until its CRC holds (it may be torn beside a checkpoint), at most for a second.
    pub fn read(data: &Path) -> Result<Self> { let _ = data; todo!() }
    /// As [`ControlFile::read`], with the bytes that were parsed.
    pub(super) fn read_with_bytes(data: &Path) -> Result<(Self, Vec<u8>)> { let _ = data; todo!() }
    /// Parses the bytes of the file. `Corrupt` for a wrong CRC, `PostgresMismatch` for an unknown version.
    pub fn parse(bytes: &[u8]) -> Result<Self> { let _ = bytes; todo!() }
}
