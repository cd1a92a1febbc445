//! Removing what dead processes left half made. Nothing else is ever removed.

use std::path::Path;

use super::layout::{self, ANONYMOUS, ClusterFolder, DELETING, Folder, MAKING};
use super::registry::lock_registry;
use super::shared::{PATIENCE, Shared};
use super::{Branch, BranchRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Address, Credentials, Role, Server, ServerStatus, StopMode};
use crate::progress::Control;
use crate::sys;
use crate::sys::lock::{Lock, Mode};

/// At every open: half-made branches of dead makers, and removals that were cut short.
pub(super) fn leftovers(shared: &Shared) -> Result<()> {
    let Ok(names) = sys::fs::names(&shared.root) else { return Ok(()) };
    let any = names
        .iter()
        .filter_map(|name| name.to_str())
        .any(|name| name.starts_with(MAKING) || name.starts_with(DELETING) || name.starts_with(ANONYMOUS));
    if !any {
        return Ok(());
    }
    match lock_registry(shared, &Control::silent()).and_then(|_registry| dead_makings(shared)) {
        Ok(()) => {}
        // What cannot be written can still be looked at.
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Permission) => return Ok(()),
        Err(error) => return Err(error),
    }
    for name in sys::fs::names(&shared.root)? {
        let path = shared.root.join(&name);
        match name.to_str() {
            Some(name) if name.starts_with(DELETING) => remove_deleted(&path),
            // Its maker, if it lives, removes the name itself in the next moment.
            Some(name) if name.starts_with(ANONYMOUS) => sys::fs::remove_file(&path)?,
            _ => {}
        }
    }
    Ok(())
}

/// Removes half-made branches whose maker's lock is free. The registry's lock is held.
pub(super) fn dead_makings(shared: &Shared) -> Result<()> {
    for name in sys::fs::names(&shared.root)? {
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(MAKING)) else { continue };
        let folder = Folder::new(shared.root.join(&name));
        let lock = match Lock::attempt(&folder.lock(), Mode::Exclusive) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let record: Option<BranchRecord> = layout::load(&folder.record()).ok();
        let address = record.map(|record| record.address);
        if !every_server_stopped(&folder, address.as_ref()) {
            continue;
        }
        let doomed = shared.root.join(format!("{DELETING}{id}"));
        sys::fs::rename_new(folder.path(), &doomed)?;
        drop(lock);
        if let Some(address) = address {
            layout::remove_address(&address)?;
        }
        remove_deleted(&doomed);
    }
    Ok(())
}

/// Two processes may remove the same tree; what is left is removed at the next open.
fn remove_deleted(doomed: &Path) {
    let removed = sys::fs::remove_tree(doomed);
    drop(removed);
}

pub(super) fn every_server_stopped(folder: &Folder, address: Option<&Address>) -> bool {
    let Ok(clusters) = sys::fs::names(&folder.clusters()) else { return true };
    clusters.iter().all(|name| {
        let cluster = ClusterFolder(folder.clusters().join(name));
        stopped(&folder.run(), &cluster.data(), address)
    })
}

/// Whether no process has the data folder of a dead maker; one that still runs (its keeper is about to stop it) is stopped.
pub(super) fn stopped(run: &Path, data: &Path, address: Option<&Address>) -> bool {
    if !data.exists() {
        return true;
    }
    let free = || matches!(postgres::status(run, data), Ok(ServerStatus::Stopped));
    if free() {
        return true;
    }
    let Some(address) = address else { return false };
    let nobody = || Role { name: "forklift".to_owned(), password: String::new() };
    let credentials = Credentials { ours: nobody(), url: nobody(), database: "postgres".to_owned() };
    if let Ok(Some(server)) = Server::attach(run, data, address, &credentials) {
        let ended = server.stop(StopMode::Immediate, PATIENCE, &Control::silent());
        drop(ended);
    }
    free()
}

impl Branch {
    /// Removes what a killed materialise or discard of this branch left. The branch's lock is held alone.
    pub(super) fn sweep_locked(&self) -> Result<()> {
        for name in sys::fs::names(&self.folder.clusters())? {
            let path = self.folder.clusters().join(&name);
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(DELETING) {
                sys::fs::remove_tree(&path)?;
            } else if name.starts_with(MAKING) {
                self.sweep_cluster(&ClusterFolder(path))?;
            }
        }
        Ok(())
    }

    fn sweep_cluster(&self, cluster: &ClusterFolder) -> Result<()> {
        // A maker makes the folder and takes its lock under the registry's.
        let registry = lock_registry(&self.shared, &Control::silent())?;
        let attempt = Lock::attempt(&cluster.lock(), Mode::Exclusive);
        drop(registry);
        let lock = match attempt {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ok(()),
            // Finished or removed by its maker meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let address: Option<Address> = sys::fs::read_optional(&cluster.address())?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if !stopped(&cluster.run(), &cluster.data(), address.as_ref()) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("a server of the unfinished cluster {} does not end", cluster.path().display()),
            )
            .with("path", cluster.path().display())
            .hint("end that server and try again"));
        }
        if let Some(address) = address {
            layout::remove_address(&address)?;
        }
        drop(lock);
        sys::fs::remove_tree(cluster.path())
    }

    /// A cluster of this branch that a living process is making.
    pub(super) fn cluster_in_the_making(&self) -> Result<Option<String>> {
        let names = sys::fs::names(&self.folder.clusters())?;
        Ok(names.into_iter().filter_map(|name| name.to_str().and_then(|name| name.strip_prefix(MAKING)).map(str::to_owned)).next())
    }
}
