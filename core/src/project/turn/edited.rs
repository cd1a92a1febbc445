//! Edits that somebody owns up to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::super::Project;
use super::super::lock::HolderKind;
use super::options::check_name;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::Syncs;
use crate::timeline::{Edited, What, WindowId};

/// Paths in one record.
const AT_ONCE: usize = 1000;

/// What was noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EditedReport {
    /// Who.
    pub author: String,
    /// Paths relative to the root, escaped as everywhere.
    pub paths: Vec<String>,
    /// Windows that were open: what changed in them at these paths is not their turn's alone.
    pub during: Vec<WindowId>,
    /// fsyncs.
    pub fsyncs: u64,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

impl Project {
    /// Notes that `author` (such as `human`) edited these paths just now: a rewind does not touch them unasked. Relative paths start
    /// from the folder that the project was opened from; a path that was removed is one of the last checkpoint, and a
    /// folder stands for all that is in it. Durable when this returns.
    ///
    /// # Errors
    /// `InvalidArgument` for no path, one outside the worktree or the worktree itself, or an author; `NotFound`
    /// names a path that is neither there nor in the last checkpoint; `Busy`, `RecoveryNeeded`, `NoSpace`.
    pub fn edited(&self, paths: &[PathBuf], author: &str, control: &Control) -> Result<EditedReport> {
        check_name("author", author)?;
        if paths.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "no path was named").hint("name what was edited"));
        }
        self.check_root()?;
        let mut names = paths.iter().map(|path| self.inside_of(path)).collect::<Result<Vec<_>>>()?;
        names.sort_unstable();
        names.dedup();
        self.check_known(&names, control)?;
        let _holder = self.hold(HolderKind::Capture, "edited", control)?;
        let mut warnings = Vec::new();
        let mut log = self.timeline_log_end(&mut warnings, control)?;
        let syncs = Syncs::new();
        let mut parts = names.chunks(AT_ONCE).peekable();
        while let Some(part) = parts.next() {
            let what = What::Edited(Edited { author: author.to_owned(), paths: part.to_vec() });
            if parts.peek().is_some() { log.append(what)? } else { log.append_synced(what, &syncs)? }
        }
        Ok(EditedReport {
            author: author.to_owned(),
            paths: names.iter().map(|name| crate::report::escape(name)).collect(),
            during: log.timeline().open_windows().filter(|window| !window.instant).map(|window| window.id.clone()).collect(),
            fsyncs: syncs.count(),
            warnings,
        })
    }

    /// Fails for a path that is not there, nor was when it was looked last: a slip of the pen would guard nothing.
    fn check_known(&self, names: &[Vec<u8>], control: &Control) -> Result<()> {
        let is_there = |name: &&Vec<u8>| self.root.join(OsStr::from_bytes(name)).symlink_metadata().is_ok();
        let gone: Vec<&Vec<u8>> = names.iter().filter(|name| !is_there(name)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let last = self.refs()?.0.into_iter().rev().find_map(|reference| reference.files);
        let reader = self.store.reader(control)?;
        for name in gone {
            let known = last.as_ref().map_or(Ok(None), |half| reader.entry(&half.root, name))?;
            if known.is_none() {
                let name = crate::report::escape(name);
                return Err(Error::new(ErrorKind::NotFound, format!("{name} is neither in the worktree nor in its last checkpoint"))
                    .with("path", name)
                    .hint("name a file or folder as it is called from the folder you are in"));
            }
        }
        Ok(())
    }

    /// The name of a path below the root; folders above it may be reached through links, itself is not followed.
    pub(in crate::project) fn inside_of(&self, path: &Path) -> Result<Vec<u8>> {
        let whole = plain(&self.opened.join(path));
        let found = below(&self.root, &whole).or_else(|| {
            let mut above = whole.parent()?;
            while above.canonicalize().is_err() {
                above = above.parent()?;
            }
            let rest = whole.strip_prefix(above).ok()?;
            below(&self.root, &above.canonicalize().ok()?.join(rest))
        });
        found.ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("{} is not in the worktree {}", path.display(), self.root.display()))
                .with("path", path.display())
                .hint("name files below the worktree")
        })
    }
}

/// Without `.` and `..`, by the text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

fn below(root: &Path, path: &Path) -> Option<Vec<u8>> {
    path.strip_prefix(root).ok().map(|rest| rest.as_os_str().as_bytes().to_vec()).filter(|rest| !rest.is_empty())
}
