//! Platform code: file system calls that name their path when they fail, locks, processes, namespaces.

pub mod fs;
pub mod id;
pub mod identity;
pub mod library;
pub mod lock;
pub mod ports;
pub mod process;
pub mod signals;
pub mod spawn;
