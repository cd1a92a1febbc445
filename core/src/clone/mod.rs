//! Copying files and trees the cheapest way that the file system really has, found by trying it.
//!
//! Read in this order: `backend` (one file) with `zfs`, `snapshot` (a subvolume at one instant), `probe` (which of them works
//! here), `tree` (a folder with all below it), `usage` (what a clone has for itself), `trial` (all of them, for the doctor).

mod backend;
mod probe;
mod snapshot;
mod tree;
mod trial;
mod usage;
mod zfs;

#[cfg(test)]
pub(crate) mod tests;

pub use backend::{Backend, Cost, Method};
pub use probe::{choose, choose_for_tree};
pub use snapshot::{make_folder, remove_tree};
pub use tree::{TreeOptions, TreeReport, copy_tree};
pub use trial::{Trial, trials};
pub use usage::{Usage, usage};
