//! Platform code: file system calls that name their path when they fail, locks, processes, namespaces.

pub mod fs;
pub mod holes;
pub mod id;
pub mod lease;
pub mod locale;
pub mod lock;
pub mod tree;
pub mod xattr;
