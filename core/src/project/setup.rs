//! Binding a worktree.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Project, ProjectOptions};
use crate::environment::Environment;
use crate::error::Result;
use crate::progress::Control;

/// How to bind.
#[derive(Debug, Clone, Default)]
pub struct SetupOptions {
    /// Fork the worktree's own branch from this branch (its last state; never interrupts it).
    pub from: Option<String>,
    /// Name of the new branch; made of the folder's name where not said.
    pub branch: Option<String>,
    /// No database: a project of files only. Also the default where `from` is absent and `.forklift.json` does not say `database: true`.
    pub files_only: bool,
}

/// What was made.
#[derive(Debug, Clone, Serialize)]
pub struct SetupReport {
    /// Project id.
    pub id: String,
    /// Worktree.
    pub root: PathBuf,
    /// Store.
    pub store: PathBuf,
    /// Branch.
    pub branch: Option<String>,
    /// `.forklift.json` was written (it was absent).
    pub configuration_written: bool,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// Binds `folder` to a store and, with `from`, to a new branch of its own. A folder that is bound already is `AlreadyExists`. On failure nothing is left.
    pub fn setup(
        folder: &Path,
        setup: &SetupOptions,
        options: &ProjectOptions,
        environment: &Environment,
        control: &Control,
    ) -> Result<(Self, SetupReport)> {
        let _ = (folder, setup, options, environment, control);
        todo!()
    }
}
