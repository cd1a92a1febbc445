//! Capturing a branch's cluster into a store session.

use serde::{Deserialize, Serialize};

use super::Branch;
use crate::error::Result;
use crate::progress::Control;
use crate::store::{Half, Ref, Session};

/// How to take the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMode {
    /// A stopped server as it is; a running one without clients by a short stop; one with clients online.
    #[default]
    Auto,
    /// Online, or as it is where the server is stopped.
    Online,
    /// By a clean stop, which cuts clients; keeps unlogged tables.
    Stopped,
}

/// A captured cluster.
#[derive(Debug, Clone)]
pub struct ClusterCapture {
    /// For the ref; its facts hold versions, sequences and mark.
    pub half: Half,
    /// `unchanged` (the half of `previous` is reused), `online` or `stopped`.
    pub mode: String,
    /// How long no client could reach the server, in milliseconds.
    pub downtime_ms: u64,
    /// Milliseconds by part.
    pub parts_ms: Vec<(String, u64)>,
    /// Bytes read from the cluster.
    pub bytes_read: u64,
    /// Unlogged tables that come up empty after a restore.
    pub unlogged: Vec<String>,
    /// Prepared transactions in it.
    pub prepared: Vec<String>,
}

impl Branch {
    /// Captures the current cluster into `session`. Where `previous` is a checkpoint of this branch's current cluster whose mark still
    /// holds, its half is reused at no cost. A server that was running runs afterwards, also after a failure.
    pub fn capture(&self, session: &Session, mode: CaptureMode, previous: Option<&Ref>, control: &Control) -> Result<ClusterCapture> {
        let _ = (session, mode, previous, control);
        todo!()
    }
}
