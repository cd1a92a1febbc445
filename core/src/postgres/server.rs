//! Starting, finding and stopping the server of one cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Address, Credentials, Installation, RunAs, Sql};
use crate::error::Result;
use crate::progress::Control;

/// Everything a start needs.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Programs.
    pub installation: Installation,
    /// As whom.
    pub run_as: RunAs,
    /// The `forklift-keeper` program.
    pub keeper: PathBuf,
    /// PGDATA.
    pub data: PathBuf,
    /// Folder of one branch for server.json, hba and ident files and the log; outside the data.
    pub run: PathBuf,
    /// Sockets and port.
    pub address: Address,
    /// Passwords.
    pub credentials: Credentials,
    /// The passwords are not in the cluster yet: start with a trust hba on the private socket, set them, then load the real hba.
    pub set_passwords: bool,
    /// `name=value` on the command line, over forklift's own (a fork's replication off and so on is decided by the caller).
    pub settings: Vec<(String, String)>,
    /// The server ends with this process (the keeper holds a pipe to it).
    pub bound_to_owner: bool,
    /// How long recovery may stand still before the start is given up (it waits while recovery advances).
    pub patience: Duration,
}

/// How to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for no client: SIGINT, checkpoint, clean.
    Fast,
    /// SIGQUIT: not clean; only for a server that cannot stop otherwise or whose data is thrown away.
    Immediate,
}

/// What is known about the server of a run folder and data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerStatus {
    /// No process has this data folder.
    Stopped,
    /// Ours, with a living keeper.
    Running {
        /// Postmaster.
        pid: u32,
        /// Keeper.
        keeper: u32,
    },
    /// A postmaster of this data folder without a keeper: it can be stopped, not kept.
    Orphaned {
        /// Postmaster.
        pid: u32,
    },
    /// Starting or stopping, or backends without postmaster.
    InTransition {
        /// What is left.
        pids: Vec<u32>,
    },
}

/// Looks, by pid + start ticks + boot id + data folder + system identifier; a stale or reused pid is nobody.
pub fn status(run: &Path, data: &Path) -> Result<ServerStatus> { let _ = (run, data); todo!() }

/// A running server of ours. Dropping it does not stop the server, unless it is bound to its owner.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// Starts a server on its private socket, calls `prepare` before any client can connect, then makes it public.
    /// Where `prepare` fails the server is stopped and the error given. `Busy` where the data folder is in use, naming the pid.
    pub fn start(spec: &ServerSpec, prepare: impl FnOnce(&Server) -> Result<()>, control: &Control) -> Result<Self> { let _ = (spec, control); drop(prepare); todo!() }
    /// The running server of this run and data folder, `None` where there is none. An orphan is stopped (fast, then immediate) and is `None`.
    pub fn attach(run: &Path, data: &Path, address: &Address, credentials: &Credentials) -> Result<Option<Self>> { let _ = (run, data, address, credentials); todo!() }
    /// A session as our superuser in `database`.
    pub fn connect(&self, database: &str) -> Result<Sql> { let _ = database; todo!() }
    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address { todo!() }
    /// Its data folder.
    #[must_use]
    pub fn data(&self) -> &Path { todo!() }
    /// Postmaster's pid.
    #[must_use]
    pub fn pid(&self) -> u32 { todo!() }
    /// Client backends that are not ours.
    pub fn clients(&self) -> Result<u32> { todo!() }
    /// Hides the socket, stops the server and waits until pg_control says "shut down" and no process has the data folder.
    /// `ServerStop` after `patience`, naming the pids that are left; nothing is deleted or killed harder than `mode` says.
    pub fn stop(self, mode: StopMode, patience: Duration, control: &Control) -> Result<()> { let _ = (mode, patience, control); todo!() }
}
