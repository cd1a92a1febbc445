//! Which paths belong to a project.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ignore::gitignore::Gitignore;
use serde::{Deserialize, Serialize};

use super::LeftOut;
use super::ignores::{excludes, prefixes};
use crate::error::{Error, ErrorKind, Result};

/// Which paths of a worktree are captured. Serialised (without `root` and `never`) into a checkpoint, whose own scope rules when it is restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// In the scope of a checkpoint: what its capture left out, so that a restore never takes "not captured" for "not
    /// there" and deletes it. Empty in a scope that somebody wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

impl Scope {
    /// Checks it: the root is a folder, neither a home folder nor a file system root nor above the home folder; every source
    /// path is relative, stays below the root and does not pass through a symbolic link; patterns parse. `home` is the
    /// caller's home folder. Whether source paths exist is found out by the capture.
    ///
    /// # Errors
    /// `InvalidArgument` for the root, `Config` for source paths and patterns, `NotFound`, `Io`.
    pub fn check(&self, home: Option<&Path>) -> Result<()> {
        self.check_root(home)?;
        if self.source.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::new(ErrorKind::Config, "source names no path").hint("leave source out to take the whole worktree"));
        }
        for path in self.source.iter().flatten() {
            self.check_source(path)?;
        }
        self.excludes().map(|_| ())
    }

    /// The scope of a checkpoint, from the facts of its files, for a worktree that lies at `root` today.
    ///
    /// # Errors
    /// `Corrupt` where the facts hold none.
    pub fn from_facts(facts: &serde_json::Value, root: &Path, never: Vec<PathBuf>) -> Result<Self> {
        let scope = facts.get("scope").cloned().unwrap_or_default();
        let scope: Scope = serde_json::from_value(scope)
            .map_err(|source| Error::new(ErrorKind::Corrupt, format!("the checkpoint's scope does not parse: {source}")).because(source))?;
        Ok(Self { root: root.to_owned(), never, ..scope })
    }

    /// The same without the selected paths that do not exist now, which a capture would refuse: for the safety capture before
    /// a restore, and for comparing.
    #[must_use]
    pub fn existing(&self) -> Self {
        let there = |path: &&PathBuf| std::fs::symlink_metadata(self.root.join(path)).is_ok();
        let source = self.source.as_ref().map(|paths| paths.iter().filter(there).cloned().collect());
        Self { source, ..self.clone() }
    }

    /// The selected paths without `.` and without those below another one, sorted; `None` for the whole worktree, one empty
    /// path where the root itself is selected.
    pub(super) fn sources(&self) -> Option<Vec<Vec<u8>>> {
        let mut paths: Vec<Vec<u8>> = self.source.as_ref()?.iter().map(|path| normal(path)).collect();
        paths.sort_unstable();
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for path in paths {
            if !kept.iter().any(|above| is_below(&path, above)) {
                kept.push(path);
            }
        }
        Some(kept)
    }

    /// The folders never to enter, relative to the root.
    pub(super) fn nevers(&self) -> Vec<Vec<u8>> {
        self.never.iter().filter_map(|path| path.strip_prefix(&self.root).ok()).map(normal).collect()
    }

    /// The same by device and inode, for folders that have another path as well (a bind mount).
    pub(super) fn never_inodes(&self) -> Vec<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let found = self.never.iter().filter_map(|path| std::fs::metadata(path).ok());
        found.map(|metadata| (metadata.dev(), metadata.ino())).collect()
    }

    pub(super) fn excludes(&self) -> Result<Gitignore> {
        excludes(&self.exclude)
    }

    fn check_root(&self, home: Option<&Path>) -> Result<()> {
        let root = &self.root;
        let refuse = |what: &str, hint: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("{} {what}", root.display())).with("path", root.display()).hint(hint))
        };
        if !root.is_absolute() {
            return refuse("is not an absolute path", "name the worktree by its absolute path");
        }
        let real = root.canonicalize().map_err(|source| Error::io("open worktree", root, source))?;
        if !real.is_dir() {
            return refuse("is not a folder", "name the folder of the worktree");
        }
        if real != *root {
            return refuse(&format!("is not the real path of {}", real.display()), "name the worktree without symbolic links");
        }
        if real.parent().is_none() {
            return refuse("is the root of the file system", "name the folder of one worktree");
        }
        let home = home.map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
        match home {
            Some(home) if home == real => refuse("is a home folder", "name the folder of one worktree in it"),
            Some(home) if home.starts_with(&real) => refuse("contains the home folder", "name the folder of one worktree"),
            _ => Ok(()),
        }
    }

    fn check_source(&self, path: &Path) -> Result<()> {
        let refuse = |what: &str| {
            Err(Error::new(ErrorKind::Config, format!("source path {} {what}", path.display()))
                .with("path", path.display())
                .hint("name paths relative to the worktree, below it, and not through symbolic links"))
        };
        if path.as_os_str().is_empty() {
            return refuse("is empty");
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return refuse("contains a NUL");
        }
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) if name == ".git" => return refuse("is part of a .git, which is never captured"),
                Component::Normal(_) => {}
                Component::ParentDir => return refuse("contains .."),
                Component::RootDir | Component::Prefix(_) => return refuse("is absolute"),
            }
        }
        let normal = normal(path);
        for folder in prefixes(&normal) {
            let above = self.root.join(std::ffi::OsStr::from_bytes(folder));
            if std::fs::symlink_metadata(&above).is_ok_and(|data| data.is_symlink()) {
                return refuse(&format!("passes through the symbolic link {}", above.display()));
            }
        }
        Ok(())
    }
}

/// Whether `path` is `above` or below it; everything is below the empty path.
pub(super) fn is_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

fn normal(path: &Path) -> Vec<u8> {
    let parts: Vec<&[u8]> =
        path.components().filter_map(|part| if let Component::Normal(name) = part { Some(name.as_bytes()) } else { None }).collect();
    parts.join(&b'/')
}
