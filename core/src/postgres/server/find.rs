//! Who has a data folder: by pid, start ticks, boot, working folder and command line, never by a pid alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::super::ControlFile;
use super::super::in_use::pids_in;
use super::super::lock_file::LockFile;
use super::super::record::Record;
use super::ServerStatus;
use crate::error::Result;
use crate::sys::process::{self, Identity};

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
    let pids = pids_in(data)?;
    let lock = LockFile::of_cluster(data)?;
    let postmaster = lock.as_ref().map(|lock| lock.pid).filter(|pid| pids.contains(pid)).or_else(|| eldest(&pids)).and_then(Identity::of);
    let record = Record::read(run)?.filter(|record| postmaster == Some(record.postmaster));
    let record = record.filter(|record| ControlFile::read(data).is_ok_and(|control| control.system_identifier == record.system_identifier));
    let ours = record.is_some() || postmaster.is_some_and(|postmaster| is_told_of(postmaster.pid, run));
    let ready = lock.is_some_and(|lock| lock.is_ready() && postmaster.is_some_and(|postmaster| postmaster.pid == lock.pid));
    let keeper = record.map(|record| record.keeper).filter(|keeper| keeper.is_alive());
    Ok(Found { pids, postmaster, ours, ready, keeper })
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
