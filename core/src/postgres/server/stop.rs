//! Stopping, and taking up a server that another process started.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::in_use::list;
use super::super::record::Record;
use super::super::{Address, ControlFile, Credentials};
use super::find::{self, Found};
use super::{Server, StopMode};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::process::{Handle, Identity};

/// How long [`attach`] waits for a server that starts or stops, and for a fast stop of an orphan.
const SETTLE: Duration = Duration::from_secs(20);

pub(super) fn attach(run: &Path, data: &Path, address: &Address, credentials: &Credentials) -> Result<Option<Server>> {
    let begin = Instant::now();
    loop {
        let found = find::look(run, data)?;
        match found {
            Found { ref pids, .. } if pids.is_empty() => return Ok(None),
            Found { postmaster: Some(postmaster), ours: false, .. } => return Err(foreign(data, postmaster.pid)),
            Found { postmaster: Some(postmaster), ready: true, keeper: Some(keeper), .. } => {
                return Ok(Some(Server {
                    data: data.to_owned(),
                    run: run.to_owned(),
                    address: address.clone(),
                    credentials: credentials.clone(),
                    postmaster,
                    keeper,
                    channel: None,
                }));
            }
            Found { postmaster: Some(_), ready: true, keeper: None, .. } => {
                end_orphan(run, data, address, SETTLE)?;
                return Ok(None);
            }
            Found { pids, .. } if begin.elapsed() >= SETTLE => return Err(stuck(data, &pids)),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Stops a server of ours that has lost its keeper: fast, and when that takes too long, immediately.
pub(super) fn end_orphan(run: &Path, data: &Path, address: &Address, patience: Duration) -> Result<()> {
    address.hide()?;
    for (signal, limit) in [(Signal::INT, patience), (Signal::QUIT, Duration::from_secs(10))] {
        let begin = Instant::now();
        let found = find::look(run, data)?;
        if let Some(handle) = found.postmaster.filter(|_| found.ours).and_then(Handle::open) {
            handle.signal(signal)?;
        }
        while begin.elapsed() < limit {
            if find::look(run, data)?.pids.is_empty() {
                return Record::remove(run);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Err(stuck(data, &find::look(run, data)?.pids))
}

pub(super) fn stop(server: &Server, mode: StopMode, patience: Duration, control: &Control) -> Result<()> {
    server.address.hide()?;
    if let Some(postmaster) = Handle::open(server.postmaster) {
        postmaster.signal(match mode {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        })?;
    }
    wait_until_gone(server, patience, control)?;
    if mode == StopMode::Fast && !ControlFile::read(&server.data)?.state.is_stopped() {
        return Err(Error::new(ErrorKind::ServerStop, format!("the server of {} ended without a clean shutdown", server.data.display()))
            .with("path", server.data.display())
            .hint(format!("start and stop it again; the reason is in {}", server.run.join("log").display())));
    }
    Ok(())
}

/// Until neither a process has the data folder nor the keeper holds its lock.
fn wait_until_gone(server: &Server, patience: Duration, control: &Control) -> Result<()> {
    let begin = Instant::now();
    let left = |pause: u64| patience.saturating_sub(begin.elapsed()).min(Duration::from_millis(pause));
    wait_for(server.postmaster, || left(50), control)?;
    loop {
        let found = find::look(&server.run, &server.data)?;
        if found.pids.is_empty() {
            break;
        }
        if left(1).is_zero() {
            return Err(not_stopped(server, &found.pids, patience));
        }
        control.check()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    // It ends with its server; a keeper that does not is no reason to call the cluster running.
    wait_for(server.keeper, || Duration::from_secs(5).saturating_sub(begin.elapsed()).max(left(50)).min(Duration::from_millis(50)), control)
}

fn wait_for(identity: Identity, pause: impl Fn() -> Duration, control: &Control) -> Result<()> {
    let Some(handle) = Handle::open(identity) else { return Ok(()) };
    loop {
        let pause = pause();
        if pause.is_zero() || handle.wait(pause) {
            return Ok(());
        }
        control.check()?;
    }
}

fn not_stopped(server: &Server, pids: &[u32], patience: Duration) -> Error {
    let message =
        format!("the server of {} has not stopped after {:.1} s: {} still there", server.data.display(), patience.as_secs_f64(), who(pids));
    Error::new(ErrorKind::ServerStop, message)
        .with("pids", list(pids))
        .with("path", server.data.display())
        .hint("it goes on stopping and then stays stopped: look at what these processes wait for, let them end, then start it again")
}

/// Somebody else's server.
pub(super) fn foreign(data: &Path, pid: u32) -> Error {
    Error::new(ErrorKind::Busy, format!("the data folder {} is in use by process {pid}, which forklift did not start", data.display()))
        .with("pid", pid)
        .with("path", data.display())
        .hint("stop that server with the program that started it")
}

/// Processes that neither become a running server nor end.
pub(super) fn stuck(data: &Path, pids: &[u32]) -> Error {
    Error::new(ErrorKind::Busy, format!("the data folder {} is in use: {} still there", data.display(), who(pids)))
        .with("pids", list(pids))
        .with("path", data.display())
        .hint("wait until they have ended, or look at what they wait for")
}

fn who(pids: &[u32]) -> String {
    match pids {
        [pid] => format!("process {pid} is"),
        _ => format!("processes {} are", list(pids)),
    }
}
