//! Copying files and trees the cheapest way that the file system really has, found by trying it.
//!
//! Read in this order: `backend` (one file), `tree` (a folder with all below it).

mod backend;
mod tree;

#[cfg(test)]
pub(crate) mod tests;

pub use backend::{Backend, Method, choose};
pub use tree::{TreeOptions, TreeReport, copy_tree};
