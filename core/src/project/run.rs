//! Running a command with the project's database.

use std::ffi::OsString;

use super::Project;
use crate::error::Result;
use crate::progress::Control;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Program and arguments; a single word that names one of the configuration's `commands` runs that.
    pub command: Vec<OsString>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// Exit code, where it exited.
    pub code: Option<i32>,
    /// Signal, where it was killed by one.
    pub signal: Option<i32>,
}

impl Project {
    /// Starts the server where there is one, runs the command in the worktree with the URL in `connection_env`, PGHOST,
    /// PGPORT, PGUSER, PGPASSWORD, PGDATABASE and a token that lets its own forklift calls pass the command lock, which is held shared meanwhile.
    /// Standard streams are inherited. A server that this call started is stopped afterwards. `RecoveryNeeded` while a journal is pending.
    pub fn run(&self, options: &RunOptions, control: &Control) -> Result<RunOutcome> {
        let _ = (options, control);
        todo!()
    }
}
