//! An open project.

use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::Result;

/// Where to find things that the worktree's record does not say.
#[derive(Debug, Clone, Default)]
pub struct ProjectOptions {
    /// Store for `setup`, and for worktrees whose record was lost; `FORKLIFT_STORE` or the data folder where not said.
    pub store: Option<PathBuf>,
}

/// A worktree with its store and branch. Shared between threads; operations lock across processes.
#[derive(Debug)]
pub struct Project {}

impl Project {
    /// Opens the project of `folder` or of the nearest folder above it that has `.forklift.json`. `NotFound` names `forklift project setup`;
    /// a worktree that was moved, deleted and made again, or copied is told apart by name.
    pub fn open(folder: &Path, options: &ProjectOptions, environment: &Environment) -> Result<Self> {
        let _ = (folder, options, environment);
        todo!()
    }
    /// Its worktree.
    #[must_use]
    pub fn root(&self) -> &Path {
        todo!()
    }
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        todo!()
    }
    /// Its store.
    #[must_use]
    pub fn store(&self) -> &crate::store::Store {
        todo!()
    }
    /// Its branch, where it has a database.
    #[cfg(feature = "postgres")]
    pub fn branch(&self) -> Result<Option<crate::branch::Branch>> {
        todo!()
    }
}
