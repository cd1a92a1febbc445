//! Starting and stopping a branch's server, and its URL.

use std::time::{Duration, Instant};

use super::layout::{self, FORMAT, Hold};
use super::shared::{PATIENCE, Place, named};
use super::{Branch, BranchInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ControlFile, Credentials, Server, ServerSpec, ServerStatus, StopMode, UrlForm};
use crate::progress::Control;
use crate::sys;
use crate::sys::lock::Mode;

/// How long a server that is starting or stopping is waited for.
const SETTLE: Duration = Duration::from_secs(60);

/// How to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// The server ends with this process.
    pub bound_to_owner: bool,
}

impl Branch {
    /// Starts the server; one that runs is left as it is. `RecoveryNeeded` while a restore is pending. Two starts at once are
    /// one: the second waits and finds the server running.
    ///
    /// # Errors
    /// `RecoveryNeeded`, `ServerStart`, `Busy`, `PostgresNotFound`, `NotFound` where the branch was deleted, `Cancelled`.
    pub fn start(&self, options: StartOptions, control: &Control) -> Result<BranchInfo> {
        named(&self.record.name, self.start_and_look(options, control))
    }

    /// Stops the server cleanly; one that is stopped is fine.
    ///
    /// # Errors
    /// `ServerStop` names the processes that are left; nothing is killed or deleted then. `Busy`, `Cancelled`.
    pub fn stop(&self, control: &Control) -> Result<()> {
        named(&self.record.name, self.lock(Mode::Exclusive, control).and_then(|_lock| self.stop_locked(control)))
    }

    /// The running server, where it runs.
    ///
    /// # Errors
    /// `Busy` where it neither starts nor stops, or where somebody else runs the cluster.
    pub fn server(&self) -> Result<Option<Server>> {
        named(&self.record.name, self.attach())
    }

    /// Its passwords.
    ///
    /// # Errors
    /// `NotFound` where the branch was deleted, `Corrupt`.
    pub fn credentials(&self) -> Result<Credentials> {
        Credentials::load(&self.folder.credentials())
    }

    /// The URL for clients; the same for the branch's life.
    ///
    /// # Errors
    /// `InvalidArgument` for TCP where the branch has no port.
    pub fn url(&self, form: UrlForm) -> Result<String> {
        let credentials = self.credentials()?;
        named(&self.record.name, self.record.address.url(form, &credentials.url, &credentials.database))
    }

    /// Keeps it from being started (and says why) until [`Branch::release`]: durable, for a restore in progress.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn hold(&self, reason: &str) -> Result<()> {
        let hold = Hold { format: FORMAT, reason: reason.to_owned(), since_ms: sys::id::now_ms() };
        named(&self.record.name, layout::save(&self.folder.hold(), &hold))
    }

    /// Ends a hold, durably; without one there is nothing to do.
    ///
    /// # Errors
    /// `Io`.
    pub fn release(&self) -> Result<()> {
        let release = || {
            sys::fs::remove_file(&self.folder.hold())?;
            sys::fs::Syncs::new().folder(self.folder.path())
        };
        named(&self.record.name, release())
    }

    fn start_and_look(&self, options: StartOptions, control: &Control) -> Result<BranchInfo> {
        self.refuse_held()?;
        // A server that runs is found without waiting for a command that works on the branch.
        if !matches!(self.status()?, ServerStatus::Running { .. }) || !self.record.address.is_public() {
            let _lock = self.lock(Mode::Exclusive, control)?;
            self.refuse_held()?;
            self.sweep_locked()?;
            self.start_locked(options.bound_to_owner, |_| Ok(()), control)?;
        }
        self.info()
    }

    pub(super) fn refuse_held(&self) -> Result<()> {
        match layout::load_optional::<Hold>(&self.folder.hold())? {
            None => Ok(()),
            Some(hold) => {
                Err(Error::new(ErrorKind::RecoveryNeeded, format!("branch {} cannot be started: {}", self.record.name, hold.reason))
                    .with("branch", &self.record.name)
                    .hint("run: forklift project recover"))
            }
        }
    }

    /// Starts it with the lock held; one that runs is left as it is. `prepare` is called before any client can connect.
    pub(super) fn start_locked(&self, bound: bool, prepare: impl FnOnce(&Server) -> Result<()>, control: &Control) -> Result<()> {
        if let Some(server) = self.attach()? {
            return show(&server);
        }
        // Of a cluster that has run, nothing but what a dead server left is removed.
        postgres::prepare_restart(&self.data()?)?;
        let spec = self.start_spec(bound)?;
        let server = Server::start(&spec, prepare, control)?;
        if bound {
            self.shared.bind_server(&self.record.id, server);
        }
        Ok(())
    }

    /// Everything that a start of the current cluster would refuse, asked while its server runs.
    pub(super) fn check_start(&self) -> Result<()> {
        postgres::check_restart(&self.data()?)?;
        self.start_spec(false)?.check()
    }

    fn start_spec(&self, bound: bool) -> Result<ServerSpec> {
        let (data, run) = (self.data()?, self.folder.run());
        let place = Place { data: &data, run: &run, address: &self.record.address };
        self.shared.spec(&self.record, &place, &self.credentials()?, false, bound)
    }

    /// Stops it with the lock held.
    pub(super) fn stop_locked(&self, control: &Control) -> Result<()> {
        if let Some(server) = self.attach()? {
            control.report("stop server", 0, 1, crate::progress::Unit::Items);
            server.stop(StopMode::Fast, PATIENCE, control)?;
        }
        self.shared.unbind_server(&self.record.id);
        Ok(())
    }

    /// Brings a cluster that was not stopped cleanly (a crash, a power cut) to a clean stop. The lock is held, no server runs.
    pub(super) fn recover_locked(&self, control: &Control) -> Result<()> {
        if ControlFile::read(&self.data()?)?.state.is_stopped() {
            return Ok(());
        }
        self.start_locked(true, |_| Ok(()), control)?;
        self.stop_locked(&control.uncancellable())
    }

    pub(super) fn attach(&self) -> Result<Option<Server>> {
        Server::attach(&self.folder.run(), &self.data()?, &self.record.address, &self.credentials()?)
    }

    /// The server's state once it neither starts nor stops.
    pub(super) fn settled_status(&self, control: &Control) -> Result<ServerStatus> {
        let begin = Instant::now();
        loop {
            match self.status()? {
                ServerStatus::InTransition { .. } if begin.elapsed() < SETTLE => {
                    control.check()?;
                    std::thread::sleep(Duration::from_millis(5));
                }
                ServerStatus::InTransition { pids } => {
                    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                    return Err(Error::new(ErrorKind::Busy, format!("its server neither starts nor stops (pid {})", pids.join(", ")))
                        .with("pid", pids.join(", "))
                        .hint("look at what these processes wait for, then try again"));
                }
                settled => return Ok(settled),
            }
        }
    }

    pub(super) fn status(&self) -> Result<ServerStatus> {
        postgres::status(&self.folder.run(), &self.data()?)
    }

    pub(super) fn data(&self) -> Result<std::path::PathBuf> {
        Ok(self.folder.cluster(&self.read_current()?).data())
    }
}

/// Gives the public socket back that a capture took away and was killed over. The branch's lock is held.
pub(super) fn show(server: &Server) -> Result<()> {
    if server.address().is_public() { Ok(()) } else { server.address().publish() }
}
