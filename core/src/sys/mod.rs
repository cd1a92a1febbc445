//! Platform code: file system calls that name their path when they fail, locks, processes, namespaces.

pub mod extents;
pub mod fs;
pub mod holes;
pub mod id;
pub mod identity;
pub mod lease;
pub mod library;
pub mod locale;
pub mod lock;
pub mod parallel;
pub mod ports;
pub mod process;
pub mod shared_map;
pub mod signals;
pub mod spawn;
pub mod tree;
pub mod xattr;
