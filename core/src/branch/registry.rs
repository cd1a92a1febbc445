//! All branches of a store.

use std::path::Path;
use std::sync::Arc;

use super::layout::{self, Current, DELETING, Folder, Hold, MAKING};
use super::shared::{LOCK_PATIENCE, Shared, named};
use super::sweep;
use super::{BranchInfo, BranchRecord, CreateOptions, ForkFrom, ForkOptions, ForkReport, Origin, ServerState};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ServerStatus};
use crate::progress::Control;
use crate::store::Store;
use crate::sys;
use crate::sys::lock::{Lock, Mode};

/// The branches of one store, on this machine. Opening reconciles records with what is on disk: half-made branches whose
/// maker is dead are removed, nothing else.
#[derive(Debug, Clone)]
pub struct Branches {
    pub(super) shared: Arc<Shared>,
}

/// One branch. Cheap to clone; the record is as it was when the branch was found.
#[derive(Debug, Clone)]
pub struct Branch {
    pub(super) shared: Arc<Shared>,
    pub(super) record: BranchRecord,
    pub(super) folder: Folder,
    pub(super) warnings: Vec<String>,
}

impl Branches {
    /// Of this store, with programs found through this environment.
    ///
    /// # Errors
    /// `Io` and its like. A store that cannot be written is opened as it is.
    pub fn open(store: &Store, environment: &Environment) -> Result<Self> {
        let shared = Arc::new(Shared::new(store, environment));
        sweep::leftovers(&shared)?;
        Ok(Self { shared })
    }

    /// Makes a branch. Its server is left stopped. On failure nothing is left.
    ///
    /// # Errors
    /// `InvalidArgument`, `AlreadyExists`, `PostgresNotFound`, `PostgresMismatch`, `Busy` (a data folder in use), `Command` (the
    /// seed or a dump failed), `NoSpace`, `ReadOnly`, `Cancelled`.
    pub fn create(&self, name: &str, origin: &Origin, options: &CreateOptions, control: &Control) -> Result<Branch> {
        super::name::check(name)?;
        named(name, super::create::create(&self.shared, name, origin, options, None, control))
    }

    /// The same; `told` gets what the seed writes to its standard output and error while it runs, in pieces that need not be
    /// lines. It is called on the calling thread, under no lock but the new branch's.
    ///
    /// # Errors
    /// As [`Branches::create`].
    pub fn create_told(
        &self,
        name: &str,
        origin: &Origin,
        options: &CreateOptions,
        told: &mut dyn FnMut(&[u8]),
        control: &Control,
    ) -> Result<Branch> {
        super::name::check(name)?;
        named(name, super::create::create(&self.shared, name, origin, options, Some(told), control))
    }

    /// Forks a branch or a checkpoint; a running source is never interrupted. The fork's server is left stopped.
    ///
    /// # Errors
    /// As [`Branches::create`]; `NotFound` where the source does not exist; `Capture` where it cannot be copied.
    pub fn fork(&self, name: &str, from: &ForkFrom, options: &ForkOptions, control: &Control) -> Result<(Branch, ForkReport)> {
        super::name::check(name)?;
        let source = match from {
            ForkFrom::Branch(source) => Some(self.find(source)?),
            ForkFrom::Checkpoint(_) => None,
        };
        named(name, super::fork::fork(&self.shared, name, from, source.as_ref(), options, control))
    }

    /// By name (or id). `NotFound` lists what there is.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `UnsupportedFormat`.
    pub fn find(&self, name: &str) -> Result<Branch> {
        let all = records(&self.shared)?;
        let found = all.iter().find(|record| record.name == name).or_else(|| all.iter().find(|record| record.id == name));
        match found {
            Some(record) => Ok(Branch::of(&self.shared, record.clone())),
            None => Err(not_found(name, &all)),
        }
    }

    /// All, by name.
    ///
    /// # Errors
    /// `Corrupt`, `UnsupportedFormat`, `Io`.
    pub fn list(&self) -> Result<Vec<BranchInfo>> {
        let mut infos = Vec::new();
        for record in records(&self.shared)? {
            match Branch::of(&self.shared, record).info() {
                Ok(info) => infos.push(info),
                // Deleted while we were looking.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(infos)
    }

    /// Stops its server and removes it. `HasDependents` names the forks and the project that depend on it. Gives warnings: the
    /// folders of tablespaces outside the store are not ours to remove and stay.
    ///
    /// # Errors
    /// `NotFound`, `HasDependents`, `Busy`, `ServerStop` (nothing is removed then), `Io`.
    pub fn delete(&self, name: &str, control: &Control) -> Result<Vec<String>> {
        let branch = self.find(name)?;
        named(name, branch.delete(control))
    }
}

impl Branch {
    pub(super) fn of(shared: &Arc<Shared>, record: BranchRecord) -> Self {
        let folder = Folder::new(shared.root.join(&record.id));
        Self { shared: Arc::clone(shared), record, folder, warnings: Vec::new() }
    }

    /// Its record.
    #[must_use]
    pub fn record(&self) -> &BranchRecord {
        &self.record
    }

    /// What its making had to say: of this handle only, which [`Branches::create`] or [`Branches::fork`] gave.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What `inspect` shows.
    ///
    /// # Errors
    /// `NotFound` where it was deleted, `Corrupt`, `Io`.
    pub fn info(&self) -> Result<BranchInfo> {
        named(&self.record.name, self.look())
    }

    /// Binds it to a project, or to none.
    ///
    /// # Errors
    /// `AlreadyExists` where it belongs to another project, `NotFound`, `Io`.
    pub fn bind(&self, project: Option<&str>) -> Result<()> {
        named(&self.record.name, self.rebind(project))
    }

    fn look(&self) -> Result<BranchInfo> {
        let record: BranchRecord = layout::load(&self.folder.record())?;
        let data = self.folder.cluster(&self.current()?).data();
        let (state, pid) = match postgres::status(&self.folder.run(), &data)? {
            ServerStatus::Stopped => (ServerState::Stopped, None),
            ServerStatus::Running { pid, .. } => (ServerState::Running, Some(pid)),
            ServerStatus::Orphaned { pid } | ServerStatus::Foreign { pid } => (ServerState::InTransition, Some(pid)),
            ServerStatus::InTransition { pids } => (ServerState::InTransition, pids.first().copied()),
        };
        let credentials = self.credentials()?;
        let parent = match &record.parent {
            Some(id) => layout::load_optional::<BranchRecord>(&Folder::new(self.shared.root.join(id)).record())?.map(|parent| parent.name),
            None => None,
        };
        let hold: Option<Hold> = layout::load_optional(&self.folder.hold())?;
        Ok(BranchInfo {
            created: sys::id::rfc3339(record.created_ms),
            parent,
            state,
            pid,
            version: format!("{}.{}", record.version.major, record.version.minor),
            database: credentials.database,
            user: credentials.url.name,
            socket: record.address.public.clone(),
            port: record.address.port,
            data,
            bytes: layout::bytes_on_disk(self.folder.path()),
            held: hold.map(|hold| hold.reason),
            name: record.name,
            id: record.id,
            origin: record.origin,
            project: record.project,
        })
    }

    fn rebind(&self, project: Option<&str>) -> Result<()> {
        let _registry = lock_registry(&self.shared, &Control::silent())?;
        let mut record: BranchRecord = layout::load(&self.folder.record())?;
        if let (Some(bound), Some(wanted)) = (&record.project, project)
            && bound != wanted
        {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("it belongs to project {bound}"))
                .hint(format!("fork it with `forklift project setup --from {}`", record.name)));
        }
        record.project = project.map(str::to_owned);
        layout::save(&self.folder.record(), &record)
    }

    fn delete(&self, control: &Control) -> Result<Vec<String>> {
        let lock = self.lock(Mode::Exclusive, control)?;
        self.refuse_dependents(&records(&self.shared)?)?;
        self.sweep_locked()?;
        if let Some(cluster) = self.cluster_in_the_making()? {
            return Err(Error::new(ErrorKind::Busy, format!("cluster {cluster} of it is being made by another command"))
                .hint("wait for the other command to end and try again"));
        }
        self.stop_locked(control)?;
        let clusters = self.clusters()?;
        let warnings = clusters.iter().flat_map(|cluster| left_outside(&self.folder.cluster(cluster).data())).collect();
        let registry = lock_registry(&self.shared, control)?;
        self.refuse_dependents(&records(&self.shared)?)?;
        let record: BranchRecord = layout::load(&self.folder.record())?;
        let doomed = self.shared.root.join(format!("{DELETING}{}", self.record.id));
        sys::fs::rename_new(self.folder.path(), &doomed)?;
        sys::fs::Syncs::new().folder(&self.shared.root)?;
        drop(registry);
        drop(lock);
        layout::remove_address(&record.address)?;
        sys::fs::remove_tree(&doomed)?;
        Ok(warnings)
    }

    fn refuse_dependents(&self, all: &[BranchRecord]) -> Result<()> {
        let mut dependents: Vec<String> = all
            .iter()
            .chain(&making_records(&self.shared)?)
            .filter(|record| record.parent.as_deref() == Some(self.record.id.as_str()))
            .map(|record| format!("branch {}", record.name))
            .collect();
        let own: BranchRecord = layout::load(&self.folder.record())?;
        let mut hints = Vec::new();
        if !dependents.is_empty() {
            hints.push(format!("delete the {} made from it first", if dependents.len() == 1 { "branch" } else { "branches" }));
        }
        if let Some(project) = own.project {
            dependents.push(format!("project {project}"));
            hints.push(
                "it goes with its project: delete the worktree, then run `forklift project prune --yes` in another worktree of this store"
                    .to_owned(),
            );
        }
        let verb = match dependents.len() {
            0 => return Ok(()),
            1 => "depends",
            _ => "depend",
        };
        let message = format!("branch {} cannot be deleted: {} {verb} on it", self.record.name, dependents.join(", "));
        Err(Error::new(ErrorKind::HasDependents, message)
            .with("branch", &self.record.name)
            .with("dependents", dependents.join(", "))
            .hint(hints.join("\n")))
    }

    /// The branch's own lock; fails where the branch was deleted meanwhile.
    pub(super) fn lock(&self, mode: Mode, control: &Control) -> Result<Lock> {
        if !self.folder.record().exists() {
            return Err(self.deleted());
        }
        let lock = Lock::wait(&self.folder.lock(), mode, LOCK_PATIENCE, control)?;
        // It may have been deleted while we waited: then the locked file lies in another folder.
        if self.folder.record().exists() { Ok(lock) } else { Err(self.deleted()) }
    }

    fn deleted(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("branch {} was deleted", self.record.name)).with("branch", &self.record.name)
    }

    pub(super) fn read_current(&self) -> Result<String> {
        let current: Current = layout::load(&self.folder.current())?;
        if super::materialise::is_cluster_id(&current.cluster) {
            Ok(current.cluster)
        } else {
            Err(Error::new(ErrorKind::Corrupt, format!("{} names no cluster", self.folder.current().display())))
        }
    }
}

/// Says which folders outside stay when a cluster goes: who else uses them cannot be known.
pub(super) fn left_outside(data: &Path) -> Vec<String> {
    let outside = postgres::outside_tablespaces(data).unwrap_or_default();
    outside.iter().map(|(_, folder)| format!("the tablespace folder {} lies outside the store and stays", folder.display())).collect()
}

/// The registry's lock: held briefly, for names and for what appears or vanishes.
pub(super) fn lock_registry(shared: &Shared, control: &Control) -> Result<Lock> {
    Lock::wait(&shared.root.join("registry.lock"), Mode::Exclusive, LOCK_PATIENCE, control)
}

/// All finished branches, by name.
pub(super) fn records(shared: &Shared) -> Result<Vec<BranchRecord>> {
    let mut records = read_records(shared, |name| !name.starts_with('.'))?;
    records.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(records)
}

/// Those that are being made.
pub(super) fn making_records(shared: &Shared) -> Result<Vec<BranchRecord>> {
    read_records(shared, |name| name.starts_with(MAKING))
}

fn read_records(shared: &Shared, wanted: impl Fn(&str) -> bool) -> Result<Vec<BranchRecord>> {
    if !shared.root.exists() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for name in sys::fs::names(&shared.root)? {
        let Some(name) = name.to_str().filter(|name| wanted(name)) else { continue };
        let folder = Folder::new(shared.root.join(name));
        if folder.path().is_dir()
            && let Some(record) = layout::load_optional(&folder.record())?
        {
            records.push(record);
        }
    }
    Ok(records)
}

fn not_found(name: &str, all: &[BranchRecord]) -> Error {
    let names: Vec<&str> = all.iter().map(|record| record.name.as_str()).collect();
    let there = if names.is_empty() { "there are no branches".to_owned() } else { format!("there are: {}", names.join(", ")) };
    let hint = if names.is_empty() { "make one with `forklift branch create NAME`" } else { "`forklift branch list` shows them" };
    Error::new(ErrorKind::NotFound, format!("there is no branch {name:?}; {there}")).with("branch", name.escape_default()).hint(hint)
}
