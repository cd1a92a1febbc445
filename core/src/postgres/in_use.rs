//! Whether a process works in a data folder.

use std::path::Path;

use super::lock_file::LockFile;
use crate::error::Result;
use crate::sys::process::{self, Identity};

/// Name of the server's program.
const POSTGRES: &str = "postgres";

/// The processes of Postgres whose working folder is `data`: each of a server's makes it that. One of another user, into
/// which this user may not look, is known by its pid file alone. A shell that somebody opened there is not a server.
pub(super) fn pids_in(data: &Path) -> Result<Vec<u32>> {
    let mut pids = process::working_in(data, POSTGRES)?;
    if let Some(lock) = LockFile::of_cluster(data)? {
        let hidden = process::folder_of(lock.pid).is_none() && process::runs(lock.pid, POSTGRES) && Identity::of(lock.pid).is_some();
        if hidden && !pids.contains(&lock.pid) {
            pids.push(lock.pid);
        }
    }
    Ok(pids)
}

/// `1234, 1235` for a message.
pub(super) fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
