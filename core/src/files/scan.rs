//! Walking the tree: names, stat, and what is left out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Whether everything below the root is in a capture, and if not what is missing and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Nothing was left out.
    pub complete: bool,
    /// What was, a folder once and not name by name.
    pub left_out: Vec<LeftOut>,
}

/// One path that is not in a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Relative to the root (lossy where not UTF-8).
    pub path: PathBuf,
    /// `ignored folder`, `ignored and larger than 1 MiB`, `git`, `excluded`, `store`, `socket`, `unreadable: ...`.
    pub reason: String,
}
