//! Refs: the small files that make checkpoints exist.

use serde::{Deserialize, Serialize};

use super::ChunkId;

/// What made a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// A capture that somebody asked for.
    Capture,
    /// What a restore or rewind was about to replace.
    Safety,
    /// The state of one branch, without files: a fork's or a template's origin.
    Branch,
}

/// One checkpoint, as its ref file holds it (JSON with a BLAKE3 of itself).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ref {
    /// Sorts by time; see [`crate::sys::id::sortable`].
    pub id: String,
    /// The name somebody gave it, unique within its project by the project layer.
    pub name: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// What made it.
    pub kind: RefKind,
    /// The project it belongs to.
    pub project: Option<String>,
    /// The branch whose cluster it holds.
    pub branch: Option<String>,
    /// Agent session.
    pub session: Option<String>,
    /// Turn in that session.
    pub turn: Option<String>,
    /// Tool call in that turn.
    pub tool: Option<String>,
    /// The files.
    pub files: Option<Half>,
    /// The cluster.
    pub cluster: Option<Half>,
    /// Anything the layers above want to keep with the pair (coverage, mode, warnings).
    #[serde(default)]
    pub facts: serde_json::Value,
    /// Boot in which it was written.
    pub boot_id: String,
}

/// One half of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Half {
    /// Root block of the manifest.
    pub root: ChunkId,
    /// Entries.
    pub entries: u64,
    /// Plain bytes.
    pub bytes: u64,
    /// What the layer above must know to put it back: scope of files; versions, sequences, mark of a cluster.
    #[serde(default)]
    pub facts: serde_json::Value,
}
