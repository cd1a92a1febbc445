//! Starting, finding and stopping the server of one cluster.
//!
//! Read in this order: this file, `start`, `passwords`, `find` (who has a data folder), `stop`, `superuser`.

mod find;
mod passwords;
mod start;
mod stop;
mod superuser;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keeper::Channel;
use super::{Address, Containment, Credentials, Installation, RunAs, Sql};
use crate::error::Result;
use crate::progress::Control;
use crate::sys::process::Identity;

pub use find::status;
pub use superuser::bootstrap_superuser;

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
    /// It is kept from reaching outside by these layers; a start fails where one of them cannot be applied.
    pub contain: Option<Containment>,
    /// How long it runs.
    pub limits: Limits,
    /// The server ends with this process (the keeper holds a pipe to it).
    pub bound_to_owner: bool,
    /// How long recovery may stand still before the start is given up (it waits while recovery advances).
    pub patience: Duration,
}

impl ServerSpec {
    /// The checks of a start that need no stopped cluster: versions, programs, and folders that can be reached.
    ///
    /// # Errors
    /// As the checks of [`Server::start`].
    pub fn check(&self) -> Result<()> {
        start::check(self)
    }
}

/// How long a server runs once clients are let in, by the kernel's clock since boot; nothing is deleted by either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Milliseconds after which it is stopped, clients or not.
    pub ttl_ms: Option<u64>,
    /// Milliseconds without any client after which it is stopped.
    pub idle_ms: Option<u64>,
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
    /// A postmaster or single-user backend that forklift did not start: it is never signalled.
    Foreign {
        /// Its pid.
        pid: u32,
    },
    /// Starting or stopping, or backends without postmaster.
    InTransition {
        /// What is left.
        pids: Vec<u32>,
    },
}

/// A running server of ours. Dropping it does not stop the server, unless it is bound to its owner.
#[derive(Debug)]
pub struct Server {
    data: PathBuf,
    run: PathBuf,
    address: Address,
    credentials: Credentials,
    postmaster: Identity,
    keeper: Identity,
    /// Open only while it is not public yet, or bound to its owner: its end stops the server.
    channel: Option<Channel>,
}

impl Server {
    /// Starts a server on its private socket, calls `prepare` before any client can connect, then makes it public.
    /// The process may be killed at any point: until the server is public its keeper stops it then.
    ///
    /// # Errors
    /// `Busy` where the data folder or the TCP port is in use, naming the pid; `ServerStart` with the reason as message and
    /// the log's end as context `log`; `Permission` and its like from the checks before; `Cancelled`. Where `prepare` fails,
    /// its error. In every case the server is stopped and the data folder is still there.
    pub fn start(spec: &ServerSpec, prepare: impl FnOnce(&Server) -> Result<()>, control: &Control) -> Result<Self> {
        start::start(spec, prepare, control)
    }

    /// The running server of this run and data folder, `None` where there is none. An orphan is stopped (fast, then
    /// immediate) and is `None`; one that is starting or stopping is waited for.
    ///
    /// # Errors
    /// `Busy` naming the pid of a server that forklift did not start, or of one that neither starts nor stops.
    pub fn attach(run: &Path, data: &Path, address: &Address, credentials: &Credentials) -> Result<Option<Self>> {
        stop::attach(run, data, address, credentials)
    }

    /// A session as our superuser in `database`.
    ///
    /// # Errors
    /// As [`Sql::connect`].
    pub fn connect(&self, database: &str) -> Result<Sql> {
        Sql::connect(&self.address, &self.credentials.ours, database)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Postmaster's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.postmaster.pid
    }

    /// Client backends that are not ours.
    ///
    /// # Errors
    /// As [`Sql::connect`].
    pub fn clients(&self) -> Result<u32> {
        self.count("backend_type = 'client backend'")
    }

    /// Backends that are not ours and could change what is in the database: clients, and workers that Postgres itself does not need.
    ///
    /// # Errors
    /// As [`Sql::connect`].
    pub fn writers(&self) -> Result<u32> {
        self.count(
            "backend_type NOT IN ('archiver', 'autovacuum launcher', 'autovacuum worker', 'background writer', 'checkpointer', \
             'io worker', 'logical replication launcher', 'startup', 'walsender', 'walsummarizer', 'walwriter')",
        )
    }

    /// Ends the sessions of all clients but ours; what they had not committed is rolled back.
    ///
    /// # Errors
    /// `Sql`.
    pub fn end_clients(&self) -> Result<()> {
        self.count("backend_type = 'client backend' AND pg_terminate_backend(pid)").map(drop)
    }

    /// Other backends than ours for which `condition` holds.
    fn count(&self, condition: &str) -> Result<u32> {
        let mut sql = passwords::connect_somewhere(&self.address, &self.credentials.ours)?;
        let count = sql.value(&format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE CASE WHEN application_name = 'forklift' AND usename = current_user THEN false ELSE {condition} END"
        ))?;
        count.parse().map_err(|_| crate::Error::new(crate::ErrorKind::Sql, format!("the server counts {count} backends")))
    }

    /// Hides the socket, stops the server and waits until pg_control says "shut down" and no process has the data folder.
    /// Once called, the server goes on stopping, also after an error.
    ///
    /// # Errors
    /// `ServerStop` after `patience`, naming the pids that are left (nothing is deleted or killed harder than `mode` says),
    /// and where it stopped but not cleanly; `Cancelled`.
    pub fn stop(self, mode: StopMode, patience: Duration, control: &Control) -> Result<()> {
        stop::stop(&self, mode, patience, control)
    }
}
