//! Copying files and trees the cheapest way that the file system really has, found by trying it.
//!
//! Read in this order: `backend` (one file) with `zfs`, `snapshot` (a subvolume at one instant), `probe` (which of them works
//! here), `tree` (a folder with all below it), `usage` (what a clone has for itself), `trial` (all of them, for the doctor),
//! `pool` (a file system that shares blocks, for hosts that have none).

mod backend;
mod pool;
mod probe;
mod snapshot;
mod tree;
mod trial;
mod usage;
mod zfs;

#[cfg(test)]
pub(crate) mod tests;

pub use backend::{Backend, Cost, Method};
pub use pool::{Pool, PoolCreated, PoolHost, PoolKind, PoolRemoved, PoolState, PoolStatus, SMALLEST_POOL};
pub use probe::{choose, choose_for_tree};
pub use snapshot::{make_folder, remove_tree};
pub use tree::{TreeOptions, TreeReport, copy_tree};
pub use trial::{Trial, trials};
pub use usage::{Usage, usage};
