//! Branches: named clusters owned by forklift, and forks of them.
//!
//! Read in this order: `record` and `layout` (what is on disk), `registry` (names, find, delete), `making` (a branch that does
//! not exist yet), `sweep` (what dead processes left), `create` with `program`, `datadir`, `conf`, `libraries`, `url` and `source_url`,
//! `settings` (what a fork's server is told), `space`, `fork` with `first_work`, `lifecycle` (start, stop, url), `change` (name, protection), `capture` (a cluster into a checkpoint)
//! with `storing` and `facts`, `closing` (leaving a database alone), `same` (comparing by marks), `materialise` (a checkpoint into a cluster) with `cache`, `drill`;
//! `shared` is what the handles have in common, `needs` what the doctor asks.
//!
//! Locks, always taken in this order: a branch's own, the registry's (held briefly), a cluster's that is being made.

mod cache;
mod capture;
mod change;
mod closing;
mod conf;
mod create;
mod datadir;
mod drill;
mod facts;
mod first_work;
mod fork;
mod layout;
mod libraries;
mod lifecycle;
mod making;
mod materialise;
mod name;
mod needs;
mod program;
mod record;
mod registry;
mod same;
mod settings;
mod shared;
mod source_url;
mod space;
mod storing;
mod sweep;
mod url;

pub use capture::{CaptureMode, ClusterCapture};
pub use create::{CreateOptions, Origin};
pub use fork::{ForkFrom, ForkMode, ForkOptions, ForkReport};
pub use lifecycle::StartOptions;
pub use materialise::PreparedCluster;
pub use needs::needed_versions;
pub use record::{BranchInfo, BranchRecord, ServerState};
pub use registry::{Branch, Branches};
