//! Walking the tree: names, stat, and what is left out.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ignore::gitignore::Gitignore;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Scope;
use super::ignores::{Chain, RULES, Rules, excluded};
use super::temporary;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::Xattr;
use crate::sys::tree::{Kind, Root, Stat, stat_at};

/// An ignored file up to this size is captured.
const SMALL: u64 = 1 << 20;
/// The most that is read of one .gitignore.
const MOST_RULES: u64 = 4 << 20;
/// Folders of dependencies and build results: ignored files in them are not captured, however small.
const BUILD_FOLDERS: &[&[u8]] = &[
    b"node_modules",
    b"bower_components",
    b".venv",
    b"venv",
    b"target",
    b"dist",
    b"build",
    b"out",
    b"__pycache__",
    b".tox",
    b".nox",
    b".mypy_cache",
    b".pytest_cache",
    b".ruff_cache",
    b".next",
    b".nuxt",
    b".svelte-kit",
    b".turbo",
    b".parcel-cache",
    b".cache",
    b".gradle",
    b"coverage",
    b"Pods",
    b"DerivedData",
    b"_build",
    b".terraform",
    b".eggs",
];

/// Whether everything below the root is in a capture, and if not what is missing and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Nothing was left out but `.git` and the store.
    pub complete: bool,
    /// What was, a folder once and not name by name.
    pub left_out: Vec<LeftOut>,
}

/// One path that is not in a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Relative to the root (lossy where not UTF-8).
    pub path: PathBuf,
    /// `ignored folder`, `ignored files in a build folder`, `ignored and larger than 1 MiB`, `git`, `excluded`, `store`,
    /// `socket`, `device`, `left by an interrupted restore`, `unreadable: ...`.
    pub reason: String,
}

/// One name that belongs to the scope.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Relative to the root.
    pub(super) path: Vec<u8>,
    /// When it was listed.
    pub(super) stat: Stat,
    /// Of folders; those of files are read with their content.
    pub(super) xattrs: Vec<Xattr>,
}

/// A walked tree.
#[derive(Debug)]
pub(super) struct Scan {
    /// The root, for reading what was found.
    pub(super) root: Root,
    /// In path order.
    pub(super) found: Vec<Found>,
    /// Raw path and reason, in path order.
    pub(super) left_out: Vec<(Vec<u8>, String)>,
    /// The ignore rules that were met (none where paths are selected).
    pub(super) rules: Rules,
}

impl Scan {
    /// What was left out, for people.
    pub(super) fn coverage(&self) -> Coverage {
        let left_out = self.left_out.iter();
        let left_out: Vec<LeftOut> = left_out.map(|(path, reason)| LeftOut { path: lossy(path), reason: reason.clone() }).collect();
        Coverage { complete: left_out.iter().all(|left| by_nature(&left.reason)), left_out }
    }
}

/// Whether something was left out that no capture ever has, and nobody misses.
pub(super) fn by_nature(reason: &str) -> bool {
    matches!(reason, "git" | "store")
}

/// A path as [`LeftOut`] holds it.
pub(super) fn lossy(path: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(path).into_owned())
}

/// Walks the scope without following links. A folder that vanishes meanwhile is left out; one that cannot be listed is
/// named in the coverage; any other failure is an error, so that half a tree never passes for a whole one.
pub(super) fn scan(scope: &Scope, control: &Control) -> Result<Scan> {
    let root = Root::open(&scope.root)?;
    let sources = scope.sources();
    let mut walker = Walker {
        whole: sources.is_none(),
        excludes: scope.excludes()?,
        nevers: scope.nevers(),
        never_inodes: scope.never_inodes(),
        folders: Vec::new(),
        scan: Scan { root, found: Vec::new(), left_out: Vec::new(), rules: Rules::default() },
    };
    for source in sources.unwrap_or_else(|| vec![Vec::new()]) {
        walker.start(source)?;
    }
    while let Some(folder) = walker.folders.pop() {
        control.check()?;
        walker.list(&folder)?;
    }
    let mut scan = walker.scan;
    scan.found.sort_unstable_by(|first, second| first.path.cmp(&second.path));
    scan.left_out.sort_unstable();
    scan.left_out.dedup();
    Ok(scan)
}

struct Folder {
    path: Vec<u8>,
    rules: Chain,
    in_build: bool,
}

struct Walker {
    whole: bool,
    excludes: Gitignore,
    nevers: Vec<Vec<u8>>,
    never_inodes: Vec<(u64, u64)>,
    folders: Vec<Folder>,
    scan: Scan,
}

impl Walker {
    fn start(&mut self, source: Vec<u8>) -> Result<()> {
        let top = Folder { path: source, rules: Chain::default(), in_build: false };
        if top.path.is_empty() {
            self.folders.push(top);
            return Ok(());
        }
        let full = self.scan.root.full(&top.path);
        match self.scan.root.stat(&top.path).map_err(|errno| Error::io("stat", &full, errno))? {
            None => {
                Err(Error::new(ErrorKind::NotFound, format!("source path {} does not exist in the worktree", lossy(&top.path).display()))
                    .with("path", lossy(&top.path).display())
                    .hint("make it, or take it out of source in .forklift.json"))
            }
            Some(_) if excluded(&self.excludes, &top.path, false) => {
                self.leave(&top.path, "excluded");
                Ok(())
            }
            Some(stat) => {
                self.take(top.path, stat, &Chain::default(), false);
                Ok(())
            }
        }
    }

    fn list(&mut self, folder: &Folder) -> Result<()> {
        let path = &folder.path;
        let failed = |root: &Root, action: &str, errno: Errno| Error::io(action, &root.full(path), errno);
        let fd = match self.scan.root.folder(path) {
            Ok(fd) => fd,
            Err(errno) if path.is_empty() => return Err(failed(&self.scan.root, "open", errno)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(Errno::ACCESS | Errno::PERM) => {
                self.leave(path, "unreadable: permission denied");
                return Ok(());
            }
            Err(errno) => return Err(failed(&self.scan.root, "open", errno)),
        };
        self.take_attributes(&fd, path)?;
        let mut names = Vec::new();
        let listing = rustix::fs::Dir::read_from(&fd).map_err(|errno| failed(&self.scan.root, "list", errno))?;
        for entry in listing {
            let entry = entry.map_err(|errno| failed(&self.scan.root, "list", errno))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        let mut rules = folder.rules.clone();
        let has_rules = self.whole && names.iter().any(|name| name == RULES);
        if let Some(content) = has_rules.then(|| read_rules(&fd)).flatten() {
            rules = rules.with(path, &content);
            self.scan.rules.add(path, rules.clone());
        }
        for name in names {
            let full = if path.is_empty() { name.clone() } else { [path.as_slice(), b"/", &name].concat() };
            if name == b".git" {
                self.leave(&full, "git");
                continue;
            }
            if temporary::is_one(&name) {
                self.leave(&full, "left by an interrupted restore");
                continue;
            }
            let stat = stat_at(fd.as_fd(), &name).map_err(|errno| Error::io("stat", &self.scan.root.full(&full), errno))?;
            if let Some(stat) = stat {
                self.take(full, stat, &rules, folder.in_build);
            }
        }
        Ok(())
    }

    fn take(&mut self, path: Vec<u8>, stat: Stat, rules: &Chain, in_build: bool) {
        let is_folder = stat.kind == Kind::Folder;
        if self.nevers.contains(&path) || (is_folder && self.never_inodes.contains(&(stat.dev, stat.ino))) {
            return self.leave(&path, "store");
        }
        if !self.excludes.is_empty() && self.excludes.matched(OsStr::from_bytes(&path), is_folder).is_ignore() {
            return self.leave(&path, "excluded");
        }
        if self.whole && rules.names(&path, is_folder) {
            if is_folder {
                return self.leave(&path, "ignored folder");
            }
            if in_build {
                return self.leave(crate::sys::tree::split(&path).0, "ignored files in a build folder");
            }
            if stat.kind == Kind::File && stat.size > SMALL {
                return self.leave(&path, "ignored and larger than 1 MiB");
            }
        }
        match stat.kind {
            Kind::Device => return self.leave(&path, "device"),
            Kind::Socket => self.leave(&path, "socket"),
            Kind::Folder => {
                let in_build = in_build || BUILD_FOLDERS.contains(&crate::sys::tree::split(&path).1);
                self.folders.push(Folder { path: path.clone(), rules: rules.clone(), in_build });
            }
            Kind::File | Kind::Symlink | Kind::Fifo => {}
        }
        self.scan.found.push(Found { path, stat, xattrs: Vec::new() });
    }

    /// The attributes of a folder that is open for listing; it is not found yet where it is the root.
    fn take_attributes(&mut self, fd: &OwnedFd, path: &[u8]) -> Result<()> {
        let (found, unreadable) =
            crate::sys::xattr::read(fd.as_fd()).map_err(|errno| Error::io("read attributes of", &self.scan.root.full(path), errno))?;
        for name in unreadable {
            self.leave(path, &format!("unreadable: attribute {}", String::from_utf8_lossy(&name)));
        }
        if !found.is_empty() {
            // Folders with attributes are rare, and this one was found a short while ago.
            if let Some(entry) = self.scan.found.iter_mut().rev().find(|entry| entry.path == path) {
                entry.xattrs = found.into_iter().map(|(name, value)| Xattr { name, value }).collect();
            }
        }
        Ok(())
    }

    fn leave(&mut self, path: &[u8], reason: &str) {
        self.scan.left_out.push((path.to_vec(), reason.to_owned()));
    }
}

/// A .gitignore that is a link, a pipe or unreadable names nothing.
fn read_rules(folder: &OwnedFd) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(folder, RULES, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut content = Vec::new();
    file.take(MOST_RULES).read_to_end(&mut content).ok()?;
    Some(content)
}
