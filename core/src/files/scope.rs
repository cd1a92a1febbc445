//! Which paths belong to a project.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Which paths of a worktree are captured. Serialised (without `root` and `never`) into a checkpoint, whose own scope rules when it is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The worktree, absolute and without symbolic links.
    #[serde(skip)]
    pub root: PathBuf,
    /// Selected paths relative to the root; `None` is the whole worktree by the ignore rules of the tree. A selected path
    /// is taken with everything below it, ignored or not, but never a `.git`.
    pub source: Option<Vec<PathBuf>>,
    /// Patterns in the syntax of .gitignore that are left out in either case.
    pub exclude: Vec<String>,
    /// Absolute folders never to enter, such as the store itself where it lies below the root.
    #[serde(skip)]
    pub never: Vec<PathBuf>,
}

impl Scope {
    /// Checks it: the root is a folder, neither a home folder nor a file system root; every source path is relative, stays
    /// below the root and does not pass through a symbolic link; patterns parse. `home` is the caller's home folder.
    pub fn check(&self, home: Option<&std::path::Path>) -> Result<()> { let _ = home; todo!() }
}
