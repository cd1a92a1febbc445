//! Platform code: file system calls that name their path when they fail, locks, processes, namespaces.

pub mod fs;
pub mod holes;
pub mod id;
pub mod lease;
pub mod locale;
pub mod lock;
pub mod parallel;
pub mod tree;
pub mod xattr;
pub mod identity;
pub mod library;
pub mod ports;
pub mod process;
pub mod signals;
pub mod spawn;
#[cfg(test)]
pub mod shared_map;
