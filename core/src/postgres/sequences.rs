//! Sequences of an online copy: crash replay puts them up to 32 values ahead.

use super::Server;
use crate::error::Result;

/// The state of one sequence.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SequenceState {
    /// Database.
    pub database: String,
    /// pg_class.oid.
    pub oid: u32,
    /// relfilenode at the time.
    pub filenode: u32,
    /// last_value.
    pub last_value: i64,
    /// is_called.
    pub is_called: bool,
    /// log_cnt.
    pub log_cnt: i64,
    /// Increment.
    pub increment: i64,
    /// CYCLE.
    pub cycle: bool,
}

/// Reads every sequence of every database that allows connections: at most 100 a statement, one transaction each, no session stays.
pub fn read_all(server: &Server) -> Result<Vec<SequenceState>> { let _ = server; todo!() }

/// Before any client can connect: per sequence with the same database, oid and relfilenode, puts back the earlier of the
/// recorded and the replayed value in the direction of the increment; after a wrap (CYCLE) the replayed one stays. Gives how many were put back.
pub fn put_back(server: &Server, recorded: &[SequenceState]) -> Result<u64> { let _ = (server, recorded); todo!() }
