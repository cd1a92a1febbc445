//! What is on the simulated disk: the names and bytes that processes see, and since when they may outlive a loss of power.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};
use std::sync::Arc;

/// The number of a file or folder.
pub(super) type Id = u64;

/// Bytes that a name takes.
pub(super) const NAME: u64 = 64;

/// What a name has led to since its folder was last synced, with the number of the change; the last is what processes see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History(pub(super) Vec<(u64, Option<Id>)>);

impl History {
    pub(super) fn now(&self) -> Option<Id> {
        self.0.last().and_then(|(_, id)| *id)
    }

    /// What a loss of power leaves where the changes up to number `last` had reached the disk.
    pub(super) fn at(&self, last: u64) -> Option<Id> {
        self.0.iter().rev().find(|(change, _)| *change <= last).and_then(|(_, id)| *id)
    }

    /// What it leads to whatever a loss of power leaves.
    pub(super) fn certain(&self) -> Option<Id> {
        let now = self.now();
        self.0.iter().all(|(_, id)| *id == now).then_some(now).flatten()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Folder {
        names: BTreeMap<OsString, History>,
        /// The last change of a name in it.
        changed: u64,
    },
    File {
        bytes: Arc<Vec<u8>>,
        /// As many of them are durable.
        synced: usize,
        /// A failed sync dropped the rest: later ones succeed and change nothing.
        dropped: bool,
        /// The last change of a name of it.
        changed: u64,
    },
}

/// Everything, cheap to copy.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<Id, Arc<Node>>,
    next: Id,
    /// The number of the last change of any name.
    pub(super) changes: u64,
    /// Up to this change all are durable where a sync writes the whole journal (ext4).
    pub(super) journal: u64,
    /// The same where it writes the journal up to the last change of what is synced (XFS).
    pub(super) log: u64,
    /// Bytes of files and names that processes see.
    pub(super) used: u64,
}

/// Why a call fails.
pub(super) type Errno = i32;
pub(super) type Done<T> = Result<T, Errno>;

pub(super) const ROOT: Id = 0;

impl State {
    pub(super) fn new() -> Self {
        let root = Node::Folder { names: BTreeMap::new(), changed: 0 };
        Self { nodes: BTreeMap::from([(ROOT, Arc::new(root))]), next: 1, changes: 0, journal: 0, log: 0, used: 0 }
    }

    /// Of nodes that a crash left, all durable.
    pub(super) fn of(nodes: BTreeMap<Id, Arc<Node>>) -> Self {
        let next = nodes.keys().max().map_or(1, |last| last + 1);
        let used = nodes.values().map(|node| match node.as_ref() {
            Node::Folder { names, .. } => names.len() as u64 * NAME,
            Node::File { bytes, .. } => bytes.len() as u64,
        });
        Self { used: used.sum(), nodes, next, changes: 0, journal: 0, log: 0 }
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).unwrap())
    }

    /// The folder and the last name of a path.
    fn split<'a>(&self, path: &'a Path) -> Done<(Id, &'a OsStr)> {
        let name = path.file_name().ok_or(libc::EINVAL)?;
        let folder = self.find(path.parent().ok_or(libc::EINVAL)?)?;
        match self.node(folder) {
            Node::Folder { .. } => Ok((folder, name)),
            Node::File { .. } => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn find(&self, path: &Path) -> Done<Id> {
        let mut id = ROOT;
        for part in path.components() {
            match part {
                Component::RootDir => {}
                Component::Normal(name) => match self.node(id) {
                    Node::Folder { names, .. } => id = names.get(name).and_then(History::now).ok_or(libc::ENOENT)?,
                    Node::File { .. } => return Err(libc::ENOTDIR),
                },
                _ => return Err(libc::EINVAL),
            }
        }
        Ok(id)
    }

    fn set(&mut self, folder: Id, name: &OsStr, to: Option<Id>) {
        let change = self.changes;
        let Node::Folder { names, changed } = self.node_mut(folder) else { unreachable!("only folders have names") };
        *changed = change;
        let history = names.entry(name.to_owned()).or_insert_with(|| History(vec![(0, None)]));
        history.0.push((change, to));
        if let Some(id) = to
            && let Node::File { changed, .. } = self.node_mut(id)
        {
            *changed = change;
        }
    }

    fn free(&mut self, id: Id) {
        let len = match self.node(id) {
            Node::File { bytes, .. } => bytes.len() as u64,
            Node::Folder { .. } => 0,
        };
        self.used = self.used.saturating_sub(len + NAME);
    }

    /// A new file, or a new folder.
    pub(super) fn make(&mut self, path: &Path, folder: bool) -> Done<Id> {
        let (parent, name) = self.split(path)?;
        if self.find(path).is_ok() {
            return Err(libc::EEXIST);
        }
        let id = self.next;
        self.next += 1;
        self.changes += 1;
        let node = if folder {
            Node::Folder { names: BTreeMap::new(), changed: self.changes }
        } else {
            Node::File { bytes: Arc::default(), synced: 0, dropped: false, changed: self.changes }
        };
        self.nodes.insert(id, Arc::new(node));
        self.set(parent, name, Some(id));
        self.used += NAME;
        Ok(id)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> Done<()> {
        let id = self.find(from)?;
        let ((from_folder, from_name), (to_folder, to_name)) = (self.split(from)?, self.split(to)?);
        match self.find(to) {
            Ok(_) if !replace => return Err(libc::EEXIST),
            Ok(old) if old == id => return Ok(()),
            Ok(old) if matches!(self.node(old), Node::Folder { .. }) => return Err(libc::EISDIR),
            Ok(old) => self.free(old),
            Err(_) => {}
        }
        self.changes += 1;
        self.set(from_folder, from_name, None);
        self.set(to_folder, to_name, Some(id));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path, folder: bool) -> Done<()> {
        let id = self.find(path)?;
        match self.node(id) {
            Node::Folder { .. } if !folder => return Err(libc::EISDIR),
            Node::Folder { names, .. } if names.values().any(|history| history.now().is_some()) => return Err(libc::ENOTEMPTY),
            Node::File { .. } if folder => return Err(libc::ENOTDIR),
            _ => {}
        }
        let (parent, name) = self.split(path)?;
        self.free(id);
        self.changes += 1;
        self.set(parent, name, None);
        Ok(())
    }

    pub(super) fn names(&self, path: &Path) -> Done<Vec<OsString>> {
        match self.node(self.find(path)?) {
            Node::Folder { names, .. } => {
                Ok(names.iter().filter(|(_, history)| history.now().is_some()).map(|(name, _)| name.clone()).collect())
            }
            Node::File { .. } => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn bytes(&self, id: Id) -> Done<&Arc<Vec<u8>>> {
        match self.node(id) {
            Node::File { bytes, .. } => Ok(bytes),
            Node::Folder { .. } => Err(libc::EISDIR),
        }
    }

    pub(super) fn append(&mut self, id: Id, more: &[u8]) {
        self.used += more.len() as u64;
        if let Node::File { bytes, .. } = self.node_mut(id) {
            Arc::make_mut(bytes).extend_from_slice(more);
        }
    }

    pub(super) fn sync_file(&mut self, id: Id) {
        if let Node::File { bytes, synced, dropped, changed } = self.node_mut(id) {
            if !*dropped {
                *synced = bytes.len();
            }
            let changed = *changed;
            self.wrote(changed);
        }
    }

    /// A sync that failed: what was not durable is dropped, though it is still what processes read.
    pub(super) fn fail_sync(&mut self, id: Id) {
        if let Node::File { bytes, synced, dropped, .. } = self.node_mut(id) {
            *dropped |= *synced < bytes.len();
        }
    }

    pub(super) fn sync_names(&mut self, id: Id) -> Done<()> {
        let Node::Folder { names, changed } = self.node_mut(id) else { return Err(libc::ENOTDIR) };
        for history in names.values_mut() {
            history.0 = vec![(0, history.now())];
        }
        names.retain(|_, history| history.now().is_some());
        let changed = *changed;
        self.wrote(changed);
        Ok(())
    }

    fn wrote(&mut self, changed: u64) {
        self.journal = self.changes;
        self.log = self.log.max(changed);
    }
}
