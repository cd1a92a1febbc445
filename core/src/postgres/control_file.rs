//! `global/pg_control`, parsed by our own code: what a cluster is and how it was stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use super::crc32c::crc32c;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

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

impl ClusterState {
    /// As `pg_controldata` says it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::StartingUp => "starting up",
            Self::ShutDown => "shut down",
            Self::ShutDownInRecovery => "shut down in recovery",
            Self::ShuttingDown => "shutting down",
            Self::InCrashRecovery => "in crash recovery",
            Self::InArchiveRecovery => "in archive recovery",
            Self::InProduction => "in production",
        }
    }

    /// Whether the last server ended with a shutdown checkpoint, also as a standby.
    #[must_use]
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::ShutDown | Self::ShutDownInRecovery)
    }

    fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::StartingUp,
            1 => Self::ShutDown,
            2 => Self::ShutDownInRecovery,
            3 => Self::ShuttingDown,
            4 => Self::InCrashRecovery,
            5 => Self::InArchiveRecovery,
            6 => Self::InProduction,
            _ => return None,
        })
    }
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

/// The longest that a torn read can last: one write of 8 KiB beside ours.
const PATIENCE: Duration = Duration::from_secs(1);

/// `floatFormat`: the same bytes on every machine whose doubles and byte order are ours.
const FLOAT_FORMAT: f64 = 1_234_567.0;

impl ControlFile {
    /// Reads `data/global/pg_control` until its CRC holds (it may be torn beside a checkpoint), at most for a second.
    ///
    /// # Errors
    /// `NotFound` where `data` is no cluster, `Corrupt` where the CRC never holds, `PostgresMismatch` for an unknown version, `Io`.
    pub fn read(data: &Path) -> Result<Self> {
        Ok(Self::read_with_bytes(data)?.0)
    }

    /// As [`ControlFile::read`], with the bytes that were parsed.
    pub(super) fn read_with_bytes(data: &Path) -> Result<(Self, Vec<u8>)> {
        let path = data.join("global/pg_control");
        let start = Instant::now();
        loop {
            let bytes = fs::read(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => error.hint("name the data folder of a Postgres cluster (it holds PG_VERSION and global/pg_control)"),
                _ => error,
            })?;
            match Self::parse(&bytes) {
                Ok(control) => return Ok((control, bytes)),
                Err(error) if error.kind() == ErrorKind::Corrupt && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.while_doing(path.display())),
            }
        }
    }

    /// Parses the bytes of the file. `Corrupt` for a wrong CRC, `PostgresMismatch` for an unknown version.
    ///
    /// # Errors
    /// As said above.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let fields = Fields(bytes);
        let control_version = fields.u32(8)?;
        let crc_at = match control_version {
            1300 | 1700 => 288,
            1800 => 292,
            _ => {
                // A file whose first bytes are damaged is not one of another version.
                let known = control_version > 0 && control_version < 100_000;
                return Err(if known {
                    Error::new(
                        ErrorKind::PostgresMismatch,
                        format!("pg_control has version {control_version}, which this forklift does not know"),
                    )
                    .with("control_version", control_version)
                    .hint("forklift works with Postgres 13 to 18")
                } else {
                    corrupt("its version is not a number of Postgres")
                });
            }
        };
        let covered = bytes.get(..crc_at).ok_or_else(|| corrupt("it is too short"))?;
        if fields.u32(crc_at)? != crc32c(&[covered]) {
            return Err(corrupt("its CRC does not match"));
        }
        if fields.u64(208)? != FLOAT_FORMAT.to_bits() || fields.u32(204)? != 8 {
            return Err(Error::new(ErrorKind::PostgresMismatch, "pg_control was written on a machine of another architecture"));
        }
        let state = fields.u32(16)?;
        Ok(Self {
            system_identifier: fields.u64(0)?,
            control_version,
            catalog_version: fields.u32(12)?,
            state: ClusterState::of(state).ok_or_else(|| corrupt("its state is not one of Postgres"))?,
            checkpoint: fields.u64(32)?,
            redo: fields.u64(40)?,
            timeline: fields.u32(48)?,
            wal_level: fields.u32(172)?,
            max_connections: fields.u32(180)?,
            max_worker_processes: fields.u32(184)?,
            max_wal_senders: fields.u32(188)?,
            max_prepared_transactions: fields.u32(192)?,
            max_locks_per_transaction: fields.u32(196)?,
            block_size: fields.size(216)?,
            segment_blocks: fields.size(220)?,
            wal_block_size: fields.size(224)?,
            wal_segment_size: fields.size(228)?,
            checksum_version: fields.u32(252)?,
        })
    }
}

/// Little-endian numbers at fixed offsets: Postgres writes its structs as they lie in memory, and every machine forklift runs on is little-endian.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn u32(&self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// A size that Postgres requires to be a power of two (segments of relations may be any number but 0).
    fn size(&self, at: usize) -> Result<u32> {
        let size = self.u32(at)?;
        if size == 0 { Err(corrupt("one of its sizes is 0")) } else { Ok(size) }
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or_else(|| corrupt("it is too short"))
    }
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("pg_control is damaged: {why}"))
        .hint("restore a checkpoint, or pg_control from a backup of the same cluster")
}
