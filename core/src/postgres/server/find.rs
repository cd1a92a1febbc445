//! Who has a data folder: by pid, start ticks, boot, working folder and command line, never by a pid alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::super::lock_file::LockFile;
use super::super::record::Record;
use super::ServerStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::process::{self, Identity};

/// Name of the server's program.
const POSTGRES: &str = "postgres";

/// Looks, by pid + start ticks + boot id + data folder + system identifier; a stale or reused pid is nobody.
///
/// # Errors
/// `Permission`, `Io` where the folders cannot be read.
pub fn status(run: &Path, data: &Path) -> Result<ServerStatus> {
    Ok(match look(run, data)? {
        Found { pids, .. } if pids.is_empty() => ServerStatus::Stopped,
        Found { postmaster: None, pids, .. } => ServerStatus::InTransition { pids },
        Found { postmaster: Some(postmaster), ours: false, .. } => ServerStatus::Foreign { pid: postmaster.pid },
        Found { ready: false, pids, .. } => ServerStatus::InTransition { pids },
        Found { postmaster: Some(postmaster), keeper: Some(keeper), .. } => {
            ServerStatus::Running { pid: postmaster.pid, keeper: keeper.pid }
        }
        Found { postmaster: Some(postmaster), keeper: None, .. } => ServerStatus::Orphaned { pid: postmaster.pid },
    })
}

/// The processes of one data folder.
#[derive(Debug)]
pub(super) struct Found {
    /// All of them.
    pub(super) pids: Vec<u32>,
    /// The first of them, whose children the others are.
    pub(super) postmaster: Option<Identity>,
    /// forklift started it for this run folder.
    pub(super) ours: bool,
    /// It accepts sessions.
    pub(super) ready: bool,
    /// Its living keeper.
    pub(super) keeper: Option<Identity>,
}

pub(super) fn look(run: &Path, data: &Path) -> Result<Found> {
    let pids = holders(data)?;
    let lock = LockFile::of_cluster(data)?;
    let postmaster = lock.as_ref().map(|lock| lock.pid).filter(|pid| pids.contains(pid)).or_else(|| eldest(&pids)).and_then(Identity::of);
    let record = Record::read(run)?.filter(|record| postmaster == Some(record.postmaster));
    let record = record.filter(|record| system_identifier(data).is_ok_and(|identifier| identifier == record.system_identifier));
    let ours = record.is_some() || postmaster.is_some_and(|postmaster| is_told_of(postmaster.pid, run));
    let ready = lock.is_some_and(|lock| lock.is_ready() && postmaster.is_some_and(|postmaster| postmaster.pid == lock.pid));
    let keeper = record.map(|record| record.keeper).filter(|keeper| keeper.is_alive());
    Ok(Found { pids, postmaster, ours, ready, keeper })
}

/// Every process of Postgres that works in this folder. One that another user runs is known by its pid file alone.
fn holders(data: &Path) -> Result<Vec<u32>> {
    let mut pids = process::working_in(data, POSTGRES)?;
    if let Some(lock) = LockFile::of_cluster(data)? {
        let hidden = process::folder_of(lock.pid).is_none() && process::runs(lock.pid, POSTGRES) && Identity::of(lock.pid).is_some();
        if hidden && !pids.contains(&lock.pid) {
            pids.push(lock.pid);
        }
    }
    Ok(pids)
}

/// The one whose parent is not among them, where it has children or is alone; backends whose postmaster died have none.
fn eldest(pids: &[u32]) -> Option<u32> {
    let parent = |pid: u32| process::stat(pid).map(|stat| stat.parent);
    pids.iter().copied().find(|pid| pids.iter().any(|other| parent(*other) == Some(*pid)))
}

/// Whether its command line names the access file of this run folder.
fn is_told_of(pid: u32, run: &Path) -> bool {
    let mut wanted = OsString::from("hba_file=");
    wanted.push(run.join("hba.conf"));
    let wanted = wanted.into_vec();
    process::arguments(pid).contains(&wanted)
}

/// The first field of pg_control: which cluster it is, whatever its folder is called.
pub(super) fn system_identifier(data: &Path) -> Result<u64> {
    let path = data.join("global/pg_control");
    let bytes = sys::fs::read(&path)?;
    let first = bytes
        .first_chunk()
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{} is empty", path.display())).with("path", path.display()))?;
    Ok(u64::from_ne_bytes(*first))
}

/// Whether pg_control says that the cluster was shut down cleanly.
pub(super) fn is_shut_down(data: &Path) -> Result<bool> {
    let path = data.join("global/pg_control");
    let bytes = sys::fs::read(&path)?;
    let state = bytes.get(16..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_ne_bytes);
    Ok(matches!(state, Some(1 | 2)))
}
