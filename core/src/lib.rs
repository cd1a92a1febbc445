//! forklift rewinds an agent's work, the files of a worktree and the Postgres database that goes with them, and forks a
//! running, unmodified Postgres without stopping it.
//!
//! The layers, each using only those below it: [`project`] pairs files and database; [`timeline`] tells sessions, turns and who changed what; [`branch`] names and forks clusters;
//! [`postgres`] starts, stops and copies them; [`files`] captures and installs worktrees; [`clone`] copies on write;
//! [`store`] keeps chunks, manifests and refs. The library prints nothing, starts no thread that outlives a call, and reads
//! the process environment only through [`Environment`].

#[cfg(feature = "postgres")]
pub mod branch;
pub mod clone;
pub mod doctor;
pub mod files;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod project;
pub mod store;
pub mod timeline;

mod cancel;
mod environment;
mod error;
mod json;
mod progress;
mod report;
#[allow(unsafe_code, reason = "the only platform code: system calls that rustix does not wrap")]
pub mod sys;

pub use cancel::CancelToken;
pub use environment::Environment;
pub use error::{Error, ErrorKind, Result};
pub use progress::{Control, Progress, ProgressSink, Unit};
pub use report::{Reads, Reasons, Why};

/// The version of the library, as in its manifest.
#[must_use]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
