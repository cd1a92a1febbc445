//! The mark: a cheap fingerprint that tells that nothing was written.
//!
//! `running` takes that of a running server, cheapest first; `configuration` hashes the configuration files.

mod configuration;
mod running;

use std::path::Path;

use super::{ClusterState, ControlFile, Server};
use crate::error::Result;
use running::Running;

/// A fingerprint of a database's state. Equal marks: nothing was written in between. Unequal: perhaps.
///
/// What it does not see: files that SQL functions write into the data folder without touching a table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// Set for a stopped cluster: hash of pg_control and of the configuration files.
    pub control: Option<String>,
    /// The rest, for a running one; opaque.
    pub running: Option<serde_json::Value>,
}

/// Takes the mark of a running server, reading as little as `previous` allows (DESIGN: cheapest first).
///
/// Where `previous` already differs in what is cheap, the rest is not read, and the mark is the same as no other. The same
/// goes for one whose sequences are locked by somebody, and for a server in recovery.
///
/// # Errors
/// `Sql`, `Io`.
pub fn mark_running(server: &Server, previous: Option<&Mark>) -> Result<Mark> {
    let running = Running::take(server, previous.and_then(Mark::parsed).as_ref())?;
    Ok(Mark { control: None, running: serde_json::to_value(running).ok() })
}

/// Takes the mark of a stopped cluster. One that is not cleanly shut down gets a mark that is the same as no other.
///
/// # Errors
/// `NotFound`, `Corrupt`, `Io`.
pub fn mark_stopped(data: &Path) -> Result<Mark> {
    let (control, bytes) = ControlFile::read_with_bytes(data)?;
    if control.state != ClusterState::ShutDown {
        return Ok(Mark { control: None, running: None });
    }
    let mut hash = blake3::Hasher::new();
    hash.update(&bytes);
    for (name, text) in configuration::hashes(data)? {
        hash.update(name.as_bytes()).update(b"\0").update(text.as_bytes()).update(b"\0");
    }
    Ok(Mark { control: Some(hash.finalize().to_hex().to_string()), running: None })
}

impl Mark {
    /// Whether nothing was written between the two; `false` in every doubt.
    #[must_use]
    pub fn same(&self, later: &Mark) -> bool {
        match (&self.control, &later.control) {
            (Some(one), Some(other)) => one == other && self.running.is_none() && later.running.is_none(),
            (None, None) => match (self.parsed(), later.parsed()) {
                (Some(one), Some(other)) => one.same(&other),
                _ => false,
            },
            _ => false,
        }
    }

    fn parsed(&self) -> Option<Running> {
        Running::deserialize(self.running.as_ref()?)
    }
}
