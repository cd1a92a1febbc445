//! The tree that a rewind leaves.

use std::collections::{BTreeMap, HashMap};

use super::history::link_of;
use crate::files::diff::compare;
use crate::store::{Entry, EntryKind};

pub(super) fn merged(disk: &[Entry], changes: &BTreeMap<Vec<u8>, Option<Entry>>, linked: &[Entry]) -> Vec<Entry> {
    let mut tree: BTreeMap<&[u8], Entry> = disk.iter().map(|entry| (entry.path.as_slice(), entry.clone())).collect();
    // The numbers of link groups mean something within one tree only.
    let first = disk.iter().map(link_of).max().unwrap_or(0);
    for (path, change) in changes {
        match change {
            None => drop(tree.remove(path.as_slice())),
            Some(entry) => {
                let mut entry = entry.clone();
                renumber(&mut entry, first);
                tree.insert(path, entry);
            }
        }
    }
    join(&mut tree, changes, linked, first);
    let mut names: HashMap<u64, u32> = HashMap::new();
    for entry in tree.values() {
        *names.entry(link_of(entry)).or_default() += 1;
    }
    let alone = |entry: &Entry| names.get(&link_of(entry)).is_none_or(|count| *count < 2);
    tree.into_values()
        .map(|mut entry| {
            if alone(&entry) {
                set_link(&mut entry, 0);
            }
            entry
        })
        .collect()
}

/// A file that comes back as one of several names of one file is joined with those names that are still as they were.
fn join(tree: &mut BTreeMap<&[u8], Entry>, changes: &BTreeMap<Vec<u8>, Option<Entry>>, linked: &[Entry], first: u64) {
    // Names that are one file still keep their number, and the others get it.
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    for then in linked.iter().filter(|entry| !changes.contains_key(&entry.path)) {
        if let Some(now) = tree.get_mut(then.path.as_slice()).filter(|now| compare(now, then).is_none()) {
            let own = link_of(now);
            let number = *numbers.entry(link_of(then)).or_insert(if own == 0 { first + link_of(then) } else { own });
            if own == 0 {
                set_link(now, number);
            }
        }
    }
    for path in changes.keys() {
        if let Some(entry) = tree.get_mut(path.as_slice())
            && let Some(number) = link_of(entry).checked_sub(first).and_then(|group| numbers.get(&group))
        {
            set_link(entry, *number);
        }
    }
}

fn renumber(entry: &mut Entry, first: u64) {
    let group = link_of(entry);
    if group != 0 {
        set_link(entry, first + group);
    }
}

fn set_link(entry: &mut Entry, group: u64) {
    if let EntryKind::File { link, .. } = &mut entry.kind {
        *link = group;
    }
}
