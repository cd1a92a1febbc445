//! Forking: a new branch with the state of another branch or of a checkpoint.

use serde::Serialize;

/// What to fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkFrom {
    /// A branch as it is now, by name. A running one is copied online.
    Branch(String),
    /// A checkpoint, by its exact id.
    Checkpoint(String),
}

/// How to fork.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkOptions {
    /// Also a local TCP port.
    pub tcp: bool,
    /// Keep slots, subscriptions, archiving and standbys as the source has them.
    pub keep_replication: bool,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
}

/// What a fork cost, in milliseconds, and what it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForkReport {
    /// `online`, `stopped`, `cache` or `checkpoint`.
    pub mode: String,
    /// `reflink` or `copy`.
    pub method: String,
    /// In all.
    pub total_ms: u64,
    /// By part: checkpoint, files, wal, sequences, start.
    pub parts_ms: Vec<(String, u64)>,
    /// Unlogged tables that are empty in the fork.
    pub unlogged: Vec<String>,
    /// Prepared transactions that the fork still holds.
    pub prepared: Vec<String>,
    /// What was switched off in it.
    pub switched_off: Vec<String>,
    /// Anything else worth knowing.
    pub warnings: Vec<String>,
}
