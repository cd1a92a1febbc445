//! Platform code: file system calls that name their path when they fail, locks, processes, namespaces.

pub mod fs;
pub mod id;
pub mod lock;
