//! What the branches of a store need of a machine, read without changing anything.

use super::BranchRecord;
use super::layout::{self, Folder};
use crate::store::Store;
use crate::sys;

/// Name and major version of Postgres of each branch, sorted. A record that cannot be read counts as none: opening the branches
/// says what is wrong with it.
#[must_use]
pub fn needed_versions(store: &Store) -> Vec<(String, u32)> {
    let root = store.branches();
    let names = sys::fs::names(&root).unwrap_or_default();
    let folders = names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")).map(|name| Folder::new(root.join(name)));
    let records = folders.filter_map(|folder| layout::load::<BranchRecord>(&folder.record()).ok());
    let mut needed: Vec<(String, u32)> = records.map(|record| (record.name, record.version.major)).collect();
    needed.sort();
    needed
}
