//! Copying files and trees the cheapest way that the file system really has, found by trying it.

mod backend;
mod tree;

pub use backend::{Backend, Method, choose};
pub use tree::{TreeOptions, TreeReport, copy_tree};
