//! Making a branch from nothing, from a command, from a data folder, or from another server's dump.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a new branch holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The empty database.
    Empty,
    /// What this command (program and arguments) puts in, run in `folder` with `DATABASE_URL` and PG* set.
    Seed {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Working directory.
        folder: PathBuf,
    },
    /// A copy of the cluster in a stopped data folder, which is only read.
    DataDir(PathBuf),
    /// What pg_dump reads from another server, of the same or an older major. The URL's password is never put in an argument.
    Url(String),
}

/// How to make a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Major version; the best installation where not said (for a data folder: the one that fits it).
    pub major: Option<u32>,
    /// Database of the URL; `app` where not said (for `DataDir`: the first that is not a template; for `Url`: the URL's).
    pub database: Option<String>,
    /// Role of the URL; `app` where not said.
    pub user: Option<String>,
    /// Also a local TCP port.
    pub tcp: bool,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
}
