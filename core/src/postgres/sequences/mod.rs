//! Sequences of an online copy: crash replay puts them up to 32 values ahead.
//!
//! `read` reads them from a running server, `put_back` repairs them in the copy, `disjoint` gives a fork ranges of its own.

mod disjoint;
mod put_back;
mod read;

use super::Server;
use super::databases;
use crate::error::Result;

pub use disjoint::{MovedSequence, Ranges, make_disjoint};
pub use put_back::put_back;
pub(super) use read::{Reading, Scope, read_database};

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
///
/// Temporary sequences are left out, and so is one that somebody keeps locked: it stays as replay leaves it, which is never
/// behind a committed row.
///
/// # Errors
/// `Sql`.
pub fn read_all(server: &Server) -> Result<Vec<SequenceState>> {
    let names = databases::connectable(&mut databases::maintenance(server)?)?;
    let mut states = Vec::new();
    databases::visit(server, &names, |database, sql| {
        let found = read_database(sql, database, &Scope::All)?;
        states.extend(found.readings.into_iter().map(|reading| reading.state));
        Ok(())
    })?;
    Ok(states)
}
