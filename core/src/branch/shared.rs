//! What all handles of one store's branches share: programs, accounts, bound servers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::BranchRecord;
use super::settings;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{
    self, Address, Containment, Credentials, Installation, Limits, RunAs, SafeMode, SafeReport, Server, ServerSpec, Version,
};
use crate::store::Store;
use crate::sys;

/// How long recovery may stand still, and how long a stop may take, before it is an error.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// How long another command's work on a branch is waited for.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(600);

/// What forklift's data folder holds beside the store.
const OF_DATA: &[&str] = &["postgres", "pool", "worktrees"];

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) environment: Environment,
    /// `branches/` of the store.
    pub(super) root: PathBuf,
    run_as: OnceLock<RunAs>,
    layers: OnceLock<SafeReport>,
    installations: Mutex<HashMap<PathBuf, Installation>>,
    /// Servers that end with this process, by branch id: their handles hold the pipe to the keeper.
    bound: Mutex<HashMap<String, Server>>,
}

/// Where a server runs: of a branch, or of a cluster that is being made.
pub(super) struct Place<'a> {
    pub(super) data: &'a Path,
    pub(super) run: &'a Path,
    pub(super) address: &'a Address,
}

impl Shared {
    pub(super) fn new(store: &Store, environment: &Environment) -> Self {
        Self {
            store: store.clone(),
            environment: environment.clone(),
            root: store.branches(),
            run_as: OnceLock::new(),
            layers: OnceLock::new(),
            installations: Mutex::default(),
            bound: Mutex::default(),
        }
    }

    /// Sockets of this store's branches.
    pub(super) fn sockets(&self) -> PathBuf {
        self.store.path().join("sockets")
    }

    /// As whom servers run, found out once.
    pub(super) fn run_as(&self) -> Result<&RunAs> {
        if let Some(known) = self.run_as.get() {
            return Ok(known);
        }
        let found = RunAs::detect(&self.environment)?;
        Ok(self.run_as.get_or_init(|| found))
    }

    /// What this machine has to keep a server from reaching outside, found out once.
    pub(super) fn layers(&self) -> Result<&SafeReport> {
        let run_as = self.run_as()?;
        Ok(self.layers.get_or_init(|| postgres::layers(run_as, &self.environment)))
    }

    /// The programs of a branch: those it was made with, else others of the same major version.
    pub(super) fn installation(&self, bin: &Path, version: Version) -> Result<Installation> {
        if let Some(known) = lock(&self.installations).get(bin) {
            return Ok(known.clone());
        }
        let found = match Installation::at(bin, postgres::Origin::Explicit) {
            Ok(found) if found.version.major == version.major => found,
            _ => postgres::choose(&self.environment, Some(version.major))
                .map_err(|error| error.while_doing(format!("Postgres {} in {} is not usable any more", version.major, bin.display())))?,
        };
        lock(&self.installations).insert(bin.to_owned(), found.clone());
        Ok(found)
    }

    /// Everything a start needs.
    pub(super) fn spec(
        &self,
        record: &BranchRecord,
        place: &Place<'_>,
        credentials: &Credentials,
        set_passwords: bool,
        bound_to_owner: bool,
    ) -> Result<ServerSpec> {
        let installation = self.installation(&record.postgres, record.version)?;
        let run_as = self.run_as()?.clone();
        run_as.check(&installation, place.data)?;
        let settings = settings::command_line(record, place.data, &installation)?;
        let contain = if record.safe == SafeMode::Off { None } else { self.layers()?.decide(record.safe)? };
        let store = self.store.path();
        let contain = contain.map(|with| Containment { closed: vec![store.canonicalize().unwrap_or_else(|_| store.to_owned())], ..with });
        Ok(ServerSpec {
            installation,
            run_as,
            keeper: postgres::keeper::locate(&self.environment)?,
            data: place.data.to_owned(),
            run: place.run.to_owned(),
            address: place.address.clone(),
            credentials: credentials.clone(),
            set_passwords,
            settings,
            contain,
            limits: Limits::default(),
            bound_to_owner,
            patience: PATIENCE,
        })
    }

    /// Makes the folder of all branches; the parents of an account's folders are opened by [`RunAs::make_folder`].
    pub(super) fn ensure_root(&self) -> Result<()> {
        sys::fs::make_folder(&self.root, 0o700)
    }

    /// Checks, before anything is made, that those who run the servers can come to the store and to the programs.
    pub(super) fn check_way(&self, installation: &Installation) -> Result<()> {
        let run_as = self.run_as()?;
        if matches!(run_as, RunAs::Account { .. }) {
            self.open_data_folder()?;
        }
        run_as.check_way(installation, self.store.path())
    }

    /// Lets an account pass the folder that the store lies in where that is forklift's own: it holds nothing else.
    fn open_data_folder(&self) -> Result<()> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let data = self.environment.data_folder().ok().and_then(|data| data.canonicalize().ok());
        let Some(data) = data.filter(|data| self.store.path().parent() == Some(data)) else { return Ok(()) };
        let metadata = std::fs::metadata(&data).map_err(|source| Error::io("examine", &data, source))?;
        let mode = metadata.permissions().mode() & 0o7777;
        let ours = |name: &std::ffi::OsString| self.store.path().file_name() == Some(name) || OF_DATA.iter().any(|known| name == known);
        if mode & 0o001 != 0 || metadata.uid() != rustix::process::geteuid().as_raw() || !sys::fs::names(&data)?.iter().all(ours) {
            return Ok(());
        }
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode | 0o011))
            .map_err(|source| Error::io("open to others", &data, source))
    }

    /// Keeps the handle of a server that ends with this process.
    pub(super) fn bind_server(&self, branch: &str, server: Server) {
        lock(&self.bound).insert(branch.to_owned(), server);
    }

    /// Whether this process holds the server's pipe.
    pub(super) fn is_bound(&self, branch: &str) -> bool {
        lock(&self.bound).contains_key(branch)
    }

    /// Lets go of a stopped server's pipe.
    pub(super) fn unbind_server(&self, branch: &str) {
        let released = lock(&self.bound).remove(branch);
        drop(released);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the branch's name into an error that does not say it yet.
pub(super) fn named<T>(name: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| {
        if error.context().iter().any(|(key, _)| *key == "branch") || error.kind() == ErrorKind::Cancelled {
            return error;
        }
        let error = error.while_doing(format!("branch {name}")).with("branch", name);
        match error.sqlstate() {
            Some("28P01" | "28000") => error.hint(format!(
                "the role of forklift or its password was changed; a start sets it again: forklift branch stop {name}, then forklift branch start {name}"
            )),
            _ => error,
        }
    })
}

/// An argument that cannot be.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
