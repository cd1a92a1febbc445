//! A branch under construction: `.making-<id>`, locked by its maker, renamed to its id as the last step.

use std::sync::Arc;
use std::time::Duration;

use super::layout::{self, ClusterFolder, ClusterRecord, Current, FORMAT, Folder, MAKING};
use super::registry::{lock_registry, making_records, records};
use super::shared::{LOCK_PATIENCE, PATIENCE, Place, Shared};
use super::{Branch, BranchRecord, sweep};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Address, Credentials, Installation, Limits, Ranges, SafeMode, Server, StopMode};
use crate::progress::Control;
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::{Lock, Mode};

/// What is decided before a branch is begun.
pub(super) struct Plan<'a> {
    pub(super) name: &'a str,
    pub(super) origin: String,
    pub(super) parent: Option<String>,
    pub(super) installation: &'a Installation,
    pub(super) fork: bool,
    pub(super) keep_replication: bool,
    pub(super) safe: SafeMode,
    /// Its sequences get ranges of their own.
    pub(super) disjoint: bool,
    pub(super) tcp: bool,
    pub(super) limits: Limits,
    pub(super) settings: &'a [(String, String)],
}

/// A branch that does not exist yet. Dropping it unfinished removes everything it made.
pub(super) struct Making {
    pub(super) shared: Arc<Shared>,
    pub(super) record: BranchRecord,
    pub(super) folder: Folder,
    pub(super) cluster: String,
    lock: Option<Lock>,
    finished: bool,
}

impl Making {
    /// Reserves the name and makes the folders. Where another process is making a branch of that name its end is waited for.
    pub(super) fn begin(shared: &Arc<Shared>, plan: &Plan<'_>, control: &Control) -> Result<Self> {
        shared.check_way(plan.installation)?;
        shared.ensure_root()?;
        loop {
            control.check()?;
            let registry = lock_registry(shared, control)?;
            sweep::dead_makings(shared)?;
            let existing = records(shared)?;
            if existing.iter().any(|record| record.name == plan.name) {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("branch {} exists", plan.name))
                    .with("branch", plan.name)
                    .hint("choose another name, or delete that branch first"));
            }
            let making = making_records(shared)?;
            if let Some(rival) = making.iter().find(|record| record.name == plan.name) {
                let lock = Folder::new(shared.root.join(format!("{MAKING}{}", rival.id))).lock();
                drop(registry);
                wait_for(&lock, control)?;
                continue;
            }
            let taken: Vec<u16> = existing.iter().chain(&making).filter_map(|record| record.address.port).collect();
            let ranges = ranges(plan, &existing, &making);
            return Self::make(shared, plan, &taken, ranges);
        }
    }

    fn make(shared: &Arc<Shared>, plan: &Plan<'_>, taken: &[u16], ranges: Option<Ranges>) -> Result<Self> {
        let id = sys::id::sortable()?;
        let record = BranchRecord {
            format: FORMAT,
            name: plan.name.to_owned(),
            created_ms: sys::id::now_ms(),
            origin: plan.origin.clone(),
            parent: plan.parent.clone(),
            address: new_address(shared, &id, plan.tcp, taken)?,
            postgres: plan.installation.bin.clone(),
            version: plan.installation.version,
            fork: plan.fork,
            keep_replication: plan.keep_replication,
            safe: plan.safe,
            ranges,
            limits: plan.limits,
            protected: false,
            settings: plan.settings.to_vec(),
            project: None,
            id: id.clone(),
        };
        let run_as = shared.run_as()?;
        let folder = Folder::new(shared.root.join(format!("{MAKING}{id}")));
        let mut making = Self { shared: Arc::clone(shared), record, folder, cluster: sys::id::sortable()?, lock: None, finished: false };
        run_as.make_folder(making.folder.path())?;
        making.lock = Lock::attempt(&making.folder.lock(), Mode::Exclusive)?;
        layout::save(&making.folder.record(), &making.record)?;
        run_as.make_folder(&making.folder.clusters())?;
        run_as.make_folder(making.cluster_folder().path())?;
        run_as.make_folder(&making.folder.run())?;
        Ok(making)
    }

    pub(super) fn cluster_folder(&self) -> ClusterFolder {
        self.folder.cluster(&self.cluster)
    }

    /// Starts the new cluster for the first time, calls `inside` before anybody can connect and `outside` (which may use the
    /// public address) after that, and stops it cleanly. Gives what they give.
    pub(super) fn first_start<T>(
        &self,
        credentials: &Credentials,
        inside: impl FnOnce(&Server) -> Result<T>,
        outside: impl FnOnce(&Server) -> Result<()>,
        control: &Control,
    ) -> Result<T> {
        let data = self.cluster_folder().data();
        let run = self.folder.run();
        let place = Place { data: &data, run: &run, address: &self.record.address };
        let spec = self.shared.spec(&self.record, &place, credentials, true, true)?;
        run_once(&spec, inside, outside, control).map_err(|error| match error.kind() {
            // Its log goes with the unfinished branch: the message and the context say what stood in it.
            ErrorKind::ServerStart => error.hint("nothing was left; correct what the server refuses and make the branch again"),
            _ => error,
        })
    }

    /// Writes the last records, makes everything durable and lets the branch exist.
    pub(super) fn finish(mut self, credentials: &Credentials, cluster: &ClusterRecord, warnings: Vec<String>) -> Result<Branch> {
        credentials.save(&self.folder.credentials())?;
        layout::save(&self.cluster_folder().record(), cluster)?;
        layout::save(&self.folder.current(), &Current { format: FORMAT, cluster: self.cluster.clone() })?;
        let syncs = Syncs::new();
        syncs.file_system(self.folder.path())?;
        let silent = Control::silent();
        let registry = lock_registry(&self.shared, &silent)?;
        let place = self.shared.root.join(&self.record.id);
        sys::fs::rename_new(self.folder.path(), &place)?;
        // From here on it exists: a failed fsync is told, and nothing is taken back.
        self.finished = true;
        syncs.folder(&self.shared.root)?;
        drop(registry);
        self.lock = None;
        let mut branch = Branch::of(&self.shared, self.record.clone());
        branch.warnings = warnings;
        Ok(branch)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What cannot be removed now is removed when the store is opened next.
        if !sweep::every_server_stopped(&self.folder, Some(&self.record.address)) {
            return;
        }
        let address = layout::remove_address(&self.record.address);
        let folder = layout::remove_tree(self.folder.path());
        drop((address, folder));
    }
}

/// One private start and a clean stop of a cluster that nobody uses yet.
pub(super) fn run_once<T>(
    spec: &postgres::ServerSpec,
    inside: impl FnOnce(&Server) -> Result<T>,
    outside: impl FnOnce(&Server) -> Result<()>,
    control: &Control,
) -> Result<T> {
    let mut given = None;
    let prepare = |server: &Server| {
        given = Some(inside(server)?);
        server.connect(&spec.credentials.database)?.run("select 1")
    };
    let server = Server::start(spec, prepare, control)?;
    let done = outside(&server);
    let stopped = server.stop(StopMode::Fast, PATIENCE, &control.uncancellable());
    done?;
    stopped?;
    given.ok_or_else(|| Error::new(ErrorKind::Internal, "a server started without being prepared"))
}

fn wait_for(lock: &std::path::Path, control: &Control) -> Result<()> {
    match Lock::wait(lock, Mode::Shared, LOCK_PATIENCE, control) {
        Ok(_) => Ok(()),
        // Finished, or given up and removed.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The ranges of sequences of a new branch: those of its parent, or the first behind them that no other branch has.
fn ranges(plan: &Plan<'_>, existing: &[BranchRecord], making: &[BranchRecord]) -> Option<Ranges> {
    let of_parent = existing.iter().find(|record| plan.parent.as_ref() == Some(&record.id)).and_then(|parent| parent.ranges);
    if !plan.disjoint {
        return of_parent;
    }
    let given: Vec<u32> = existing.iter().chain(making).filter_map(|record| Some(record.ranges?.index)).collect();
    let above = of_parent.map_or(0, |ranges| ranges.index);
    (above + 1..u32::MAX).find(|index| !given.contains(index)).map(Ranges::new)
}

/// An address whose port no other branch of this store has, whether its server runs or not.
fn new_address(shared: &Shared, id: &str, tcp: bool, taken: &[u16]) -> Result<Address> {
    for _ in 0..100 {
        let address = Address::new(&shared.sockets(), id, tcp)?;
        if address.port.is_none_or(|port| !taken.contains(&port)) {
            return Ok(address);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::new(ErrorKind::Busy, "no free TCP port was found that no other branch has")
        .hint("use the socket, or delete branches that have a port"))
}
