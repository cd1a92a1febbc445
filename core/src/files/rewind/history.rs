//! What each checkpoint of a range says of the paths that the steps changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::{DiskState, RewindRequest, Snapshot};
use crate::error::Result;
use crate::files::compare::Reach;
use crate::files::diff::{compare, diff};
use crate::files::ignores::prefixes;
use crate::files::scope::is_below;
use crate::progress::Control;
use crate::store::{ChunkId, Entry, EntryKind, Reader};

/// So many paths are looked up one by one.
const FEW: usize = 64;

/// Entries by path.
type Entries = HashMap<Vec<u8>, Entry>;

/// What one tree says of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum At<'v> {
    /// It had this.
    Has(&'v Entry),
    /// It had nothing there.
    Absent,
    /// Nobody knows: it was left out.
    NotCaptured,
    /// Nobody knows: its paths do not hold it.
    Outside,
}

impl At<'_> {
    /// Whether both are known and the same.
    pub(super) fn same(self, other: Self) -> bool {
        match (self, other) {
            (At::Has(one), At::Has(other)) => compare(one, other).is_none(),
            (At::Absent, At::Absent) => true,
            _ => false,
        }
    }

    pub(super) fn is_folder(self) -> bool {
        matches!(self, At::Has(entry) if entry.kind == EntryKind::Folder)
    }
}

/// One tree, as far as it is needed.
pub(super) struct View<'v> {
    entries: HashMap<&'v [u8], &'v Entry>,
    reach: Reach<'v>,
}

impl<'v> View<'v> {
    pub(super) fn of_disk(disk: &'v DiskState) -> Result<Self> {
        Ok(Self { entries: by_path(&disk.entries), reach: Reach::new(&disk.scope)? })
    }

    pub(super) fn entry(&self, path: &[u8]) -> Option<&'v Entry> {
        self.entries.get(path).copied()
    }

    pub(super) fn at(&self, path: &[u8], is_folder: bool) -> At<'v> {
        match self.entry(path) {
            Some(entry) => At::Has(entry),
            None if !self.reach.covers(path) => At::Outside,
            None if !self.reach.captures(path, is_folder) => At::NotCaptured,
            None => At::Absent,
        }
    }
}

/// The trees of a range.
pub(super) struct History<'r> {
    pub(super) target: Tree<'r>,
    pub(super) steps: Vec<Seen<'r>>,
    /// What any step changed, in path order.
    pub(super) changed: BTreeSet<Vec<u8>>,
    /// Entries of the target that have a link group.
    linked: Vec<Entry>,
}

/// One step.
pub(super) struct Seen<'r> {
    pub(super) before: Tree<'r>,
    pub(super) after: Tree<'r>,
    pub(super) shared: bool,
}

/// The wanted entries of one snapshot.
pub(super) struct Tree<'r> {
    entries: Rc<Entries>,
    reach: Reach<'r>,
}

impl Tree<'_> {
    pub(super) fn entry(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path)
    }

    pub(super) fn at(&self, path: &[u8], is_folder: bool) -> At<'_> {
        match self.entries.get(path) {
            Some(entry) => At::Has(entry),
            None if !self.reach.covers(path) => At::Outside,
            None if !self.reach.captures(path, is_folder) => At::NotCaptured,
            None => At::Absent,
        }
    }
}

impl<'r> History<'r> {
    pub(super) fn read(request: &RewindRequest<'r>, control: &Control) -> Result<Self> {
        let RewindRequest { reader, target, steps, paths, .. } = *request;
        let mut changed = BTreeSet::new();
        for step in steps {
            control.check()?;
            let (before, after) = reader.apart(&step.before.root, &step.after.root)?;
            let changes = diff(before.into_iter().map(Ok), after.into_iter().map(Ok))?;
            changed.extend(changes.into_iter().map(|change| change.path));
        }
        if let Some(paths) = paths {
            changed.retain(|path| paths.iter().any(|above| is_below(path, above)));
        }
        // The folders above are needed where one has to be made again.
        let above = changed.iter().flat_map(|path| prefixes(path)).map(<[u8]>::to_vec);
        let wanted: HashSet<Vec<u8>> = above.chain(changed.iter().cloned()).collect();
        let (first, linked) = if wanted.is_empty() { Default::default() } else { read(reader, &target.root, &wanted)? };
        let mut trees = Trees { reader, wanted: &wanted, last: (target.root, Rc::new(first)) };
        let target = trees.tree(target, control)?;
        let seen = |step: &'r super::Step, trees: &mut Trees<'_>| {
            Ok(Seen { before: trees.tree(&step.before, control)?, after: trees.tree(&step.after, control)?, shared: step.shared })
        };
        let steps = steps.iter().map(|step| seen(step, &mut trees)).collect::<Result<_>>()?;
        Ok(Self { target, steps, changed, linked })
    }

    /// What the last step left at a path.
    pub(super) fn base(&self, path: &[u8]) -> Option<&Entry> {
        self.steps.last().and_then(|step| step.after.entry(path))
    }

    /// Whether any tree had a folder there: patterns may name folders only.
    pub(super) fn was_folder(&self, path: &[u8]) -> bool {
        let folder = |tree: &Tree<'_>| tree.entry(path).is_some_and(|entry| entry.kind == EntryKind::Folder);
        folder(&self.target) || self.steps.iter().any(|step| folder(&step.before) || folder(&step.after))
    }

    /// The target's entries of every link group that one of the changes belongs to.
    pub(super) fn linked_with(&self, changes: &BTreeMap<Vec<u8>, Option<Entry>>) -> Vec<Entry> {
        let groups: HashSet<u64> = changes.values().flatten().map(link_of).filter(|group| *group != 0).collect();
        self.linked.iter().filter(|entry| groups.contains(&link_of(entry))).cloned().collect()
    }
}

/// The hard link group of an entry, 0 for none.
pub(in crate::files) fn link_of(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::File { link, .. } => link,
        _ => 0,
    }
}

/// Reads each tree by what is other in it than in the one before.
struct Trees<'t> {
    reader: &'t Reader,
    wanted: &'t HashSet<Vec<u8>>,
    last: (ChunkId, Rc<Entries>),
}

impl Trees<'_> {
    fn tree<'r>(&mut self, snapshot: &'r Snapshot, control: &Control) -> Result<Tree<'r>> {
        control.check()?;
        let reach = Reach::new(&snapshot.scope)?;
        if self.last.0 != snapshot.root && !self.wanted.is_empty() {
            let (gone, new) = self.reader.apart(&self.last.0, &snapshot.root)?;
            let mut entries = (*self.last.1).clone();
            for entry in gone {
                entries.remove(&entry.path);
            }
            entries.extend(new.into_iter().filter(|entry| self.wanted.contains(&entry.path)).map(|entry| (entry.path.clone(), entry)));
            self.last = (snapshot.root, Rc::new(entries));
        }
        Ok(Tree { entries: self.last.1.clone(), reach })
    }
}

/// The wanted entries of a tree, and those that have a link group.
fn read(reader: &Reader, root: &ChunkId, wanted: &HashSet<Vec<u8>>) -> Result<(Entries, Vec<Entry>)> {
    let (mut found, mut linked) = (Entries::new(), Vec::new());
    if wanted.len() <= FEW {
        for path in wanted {
            found.extend(reader.entry(root, path)?.map(|entry| (path.clone(), entry)));
        }
        if found.values().all(|entry| link_of(entry) == 0) {
            return Ok((found, linked));
        }
    }
    for entry in reader.manifest(root)? {
        let entry = entry?;
        if link_of(&entry) != 0 {
            linked.push(entry.clone());
        }
        if wanted.contains(&entry.path) {
            found.insert(entry.path.clone(), entry);
        }
    }
    Ok((found, linked))
}

fn by_path(entries: &[Entry]) -> HashMap<&[u8], &Entry> {
    entries.iter().map(|entry| (entry.path.as_slice(), entry)).collect()
}
