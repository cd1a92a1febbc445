//! Branches: named clusters owned by forklift, and forks of them.
//!
//! Read in this order: `record` (what is on disk), `registry` (names, create, find, delete), `create`, `fork`, `lifecycle`
//! (start, stop, url), `capture` (a cluster into a checkpoint), `materialise` (a checkpoint into a cluster), `cache`.

mod cache;
mod capture;
mod create;
mod fork;
mod lifecycle;
mod materialise;
mod record;
mod registry;

pub use capture::{CaptureMode, ClusterCapture};
pub use create::{CreateOptions, Origin};
pub use fork::{ForkFrom, ForkOptions, ForkReport};
pub use lifecycle::StartOptions;
pub use materialise::PreparedCluster;
pub use record::{BranchInfo, BranchRecord, ServerState};
pub use registry::{Branch, Branches};
