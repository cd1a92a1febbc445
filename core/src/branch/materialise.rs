//! Turning a checkpoint's cluster half into a cluster of a branch that can be selected.

use std::path::Path;

use super::facts::CapturedCluster;
use super::layout::{self, ClusterFolder, ClusterRecord, Current, DELETING, FORMAT, MAKING};
use super::making::run_once;
use super::registry::{left_outside, lock_registry};
use super::shared::{Place, Shared, named};
use super::{Branch, cache, space, sweep};
use crate::clone::{self, Method};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Address, Installation, ServerStatus};
use crate::progress::Control;
use crate::store::{Half, Reader};
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::{Lock, Mode};

/// A cluster made ready beside the current one: started once in private, verified, stopped cleanly, synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedCluster {
    /// Its id, for [`Branch::select`] and [`Branch::discard`].
    pub id: String,
    /// What may differ (collation versions and the like), and what of the current cluster lies outside the store.
    pub warnings: Vec<String>,
    /// Whether a ready cache was cloned instead of reading the store.
    pub from_cache: bool,
}

impl Branch {
    /// Makes a new cluster of this branch from a checkpoint's half: written (or cloned from its cache), prepared, started in
    /// private (sequences put back, passwords of this branch set, a connect to the database), stopped, synced. The current one is not touched and may be running.
    /// `checkpoint` is the id of the ref: the key of the cache.
    ///
    /// # Errors
    /// `PostgresMismatch` by name, `Corrupt`, `NoSpace`, `ServerStart`, `Cancelled`: nothing is left then.
    pub fn materialise(&self, reader: &Reader, checkpoint: &str, half: &Half, control: &Control) -> Result<PreparedCluster> {
        named(&self.record.name, self.prepare(reader, checkpoint, half, control))
    }

    /// The id of the current cluster.
    ///
    /// # Errors
    /// `NotFound` where the branch was deleted, `Corrupt`.
    pub fn current(&self) -> Result<String> {
        named(&self.record.name, self.read_current())
    }

    /// The ids of all finished clusters, oldest first: the current one and those that a restore left.
    ///
    /// # Errors
    /// `NotFound` where the branch was deleted, `Io`.
    pub fn clusters(&self) -> Result<Vec<String>> {
        let names = named(&self.record.name, sys::fs::names(&self.folder.clusters()))?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| is_cluster_id(name)).collect())
    }

    /// Bytes on disk of one cluster, counting blocks that are shared with others in full; 0 where there is none.
    #[must_use]
    pub fn cluster_bytes(&self, cluster: &str) -> u64 {
        layout::bytes_on_disk(&self.folder.cluster(cluster).0)
    }

    /// Makes a prepared cluster the current one, by renaming `current.json`, durably. The server must be stopped. Idempotent.
    ///
    /// # Errors
    /// `NotFound` where there is no such cluster, `Busy` where the server runs, `Io`.
    pub fn select(&self, cluster: &str) -> Result<()> {
        named(&self.record.name, self.make_current(cluster))
    }

    /// Removes a cluster that is not the current one; one that is not there is fine.
    ///
    /// # Errors
    /// `InvalidArgument` for the current one, `Io`.
    pub fn discard(&self, cluster: &str) -> Result<()> {
        named(&self.record.name, self.remove_cluster(cluster))
    }

    fn prepare(&self, reader: &Reader, checkpoint: &str, half: &Half, control: &Control) -> Result<PreparedCluster> {
        let installation = self.shared.installation(&self.record.postgres, self.record.version)?;
        let captured = CapturedCluster::of(half)?;
        let credentials = self.credentials()?;
        if captured.superuser != credentials.ours.name {
            return Err(Error::new(
                ErrorKind::PostgresMismatch,
                format!("checkpoint {checkpoint} is of a cluster whose superuser is {}, not {}", captured.superuser, credentials.ours.name),
            )
            .hint("fork that checkpoint into a branch of its own"));
        }
        let making = MakingCluster::begin(self)?;
        // The original keeps its slots as far as their WAL is there; a fork never has any of the source.
        let keep = self.record.keep_replication || (!self.record.fork && captured.report.mode == "stopped");
        let data = making.folder.data();
        let filled = fill(&self.shared, reader, checkpoint, half, &captured, &installation, &data, keep, control)?;
        let run = making.folder.run();
        let place = Place { data: &data, run: &run, address: &making.address };
        let spec = self.shared.spec(&self.record, &place, &credentials, true, true)?;
        let sequences = if filled.cached.is_some() { &[] } else { captured.report.sequences.as_slice() };
        let put_back = run_once(&spec, |server| postgres::put_back(server, sequences), |_| Ok(()), control)?;
        control.check()?;
        if filled.cached.is_none() {
            cache::keep(&self.shared, &filled.key, &data);
        }
        let mut record = ClusterRecord::new(&making.id, &format!("checkpoint:{checkpoint}"));
        record.sequences_put_back = put_back;
        record.mark = Some(postgres::mark_stopped(&data)?);
        record.made_of = Some(half.root);
        record.facts = Some(captured.facts);
        let id = making.finish(&record)?;
        let mut warnings = filled.warnings;
        warnings.extend(left_outside(&self.data()?));
        Ok(PreparedCluster { id, warnings, from_cache: filled.cached.is_some() })
    }

    fn make_current(&self, cluster: &str) -> Result<()> {
        let _lock = self.lock(Mode::Exclusive, &Control::silent())?;
        if self.read_current()? == cluster {
            return Ok(());
        }
        let folder = self.folder.cluster(cluster);
        if !is_cluster_id(cluster) || !folder.record().exists() {
            return Err(Error::new(ErrorKind::NotFound, format!("it has no cluster {cluster:?}")));
        }
        match self.settled_status(&Control::silent())? {
            ServerStatus::Stopped => {}
            _ => {
                return Err(Error::new(ErrorKind::Busy, "its server runs, and another cluster cannot be selected under it")
                    .hint(format!("stop it first: forklift branch stop {}", self.record.name)));
            }
        }
        layout::save(&self.folder.current(), &Current { format: FORMAT, cluster: cluster.to_owned() })
    }

    fn remove_cluster(&self, cluster: &str) -> Result<()> {
        let _lock = self.lock(Mode::Exclusive, &Control::silent())?;
        if self.read_current()? == cluster {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("cluster {cluster} is the current one"))
                .hint("select another one first, or delete the branch"));
        }
        let folder = self.folder.cluster(cluster);
        if !is_cluster_id(cluster) || !folder.path().exists() {
            return Ok(());
        }
        let doomed = self.folder.clusters().join(format!("{DELETING}{cluster}"));
        sys::fs::rename_new(folder.path(), &doomed)?;
        layout::remove_tree(&doomed)
    }
}

/// Whether this is the id of a cluster, as [`sys::id::sortable`] makes them: never a path.
pub(super) fn is_cluster_id(id: &str) -> bool {
    id.len() == 26 && id.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
}

/// A data folder that was filled and made safe to start.
pub(super) struct Filled {
    /// How a ready cache was cloned; `None` where the store was read.
    pub(super) cached: Option<Method>,
    pub(super) warnings: Vec<String>,
    /// Of the cache.
    pub(super) key: String,
}

/// Fills the new folder `data` from the checkpoint's cache or from the store, and makes it safe to start.
#[allow(clippy::too_many_arguments, reason = "one step of two operations that have little else in common")]
pub(super) fn fill(
    shared: &Shared,
    reader: &Reader,
    checkpoint: &str,
    half: &Half,
    captured: &CapturedCluster,
    installation: &Installation,
    data: &Path,
    keep_replication: bool,
    control: &Control,
) -> Result<Filled> {
    let warnings = captured.facts.check(installation)?;
    let with_slots = format!("{checkpoint}-slots");
    let key = if keep_replication { with_slots.clone() } else { checkpoint.to_owned() };
    // Slots can be taken away from a clone, not added.
    let mut cached = cache::take(shared, &key, data, control)?;
    if cached.is_none() && key != with_slots {
        cached = cache::take(shared, &with_slots, data, control)?;
    }
    if cached.is_none() {
        let segments = 2 * u64::from(captured.facts.control.wal_segment_size);
        space::require(data.parent().unwrap_or(data), half.bytes + segments)?;
        // Such that it can be cloned whole: the cache of this checkpoint is made of it.
        clone::make_folder(data, 0o700)?;
        postgres::write_cluster(reader, half, captured.root_mode, data, control)?;
        if captured.report.mode == "online" {
            postgres::check_online_copy(data)?;
        }
    }
    postgres::prepare_copy(data, keep_replication)?;
    shared.run_as()?.give(data)?;
    Ok(Filled { cached, warnings, key })
}

/// A cluster that does not exist yet: `clusters/.making-<id>`, locked by its maker. Dropping it unfinished removes it.
struct MakingCluster {
    id: String,
    folder: ClusterFolder,
    clusters: std::path::PathBuf,
    address: Address,
    lock: Option<Lock>,
    finished: bool,
}

impl MakingCluster {
    fn begin(branch: &Branch) -> Result<Self> {
        let id = sys::id::sortable()?;
        let clusters = branch.folder.clusters();
        let folder = ClusterFolder(clusters.join(format!("{MAKING}{id}")));
        let address = Address::new(&branch.shared.sockets(), &id, false)?;
        let mut making = Self { id, folder, clusters, address, lock: None, finished: false };
        let run_as = branch.shared.run_as()?;
        // A sweep looks for free locks under the registry's lock.
        let registry = lock_registry(&branch.shared, &Control::silent())?;
        run_as.make_folder(making.folder.path())?;
        making.lock = Lock::attempt(&making.folder.lock(), Mode::Exclusive)?;
        drop(registry);
        let address = serde_json::to_vec(&making.address)
            .map_err(|source| Error::new(ErrorKind::Internal, format!("cannot write an address as JSON: {source}")))?;
        sys::fs::replace(&making.folder.address(), &address, 0o600, &Syncs::new())?;
        run_as.make_folder(&making.folder.run())?;
        Ok(making)
    }

    /// Makes it durable and lets it exist; gives its id.
    fn finish(mut self, record: &ClusterRecord) -> Result<String> {
        layout::save(&self.folder.record(), record)?;
        layout::remove_address(&self.address)?;
        sys::fs::remove_file(&self.folder.address())?;
        sys::fs::remove_tree(&self.folder.run())?;
        let syncs = Syncs::new();
        syncs.file_system(self.folder.path())?;
        sys::fs::rename_new(self.folder.path(), &self.clusters.join(&self.id))?;
        self.finished = true;
        syncs.folder(&self.clusters)?;
        self.lock = None;
        Ok(self.id.clone())
    }
}

impl Drop for MakingCluster {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next command on the branch.
        if !self.finished && sweep::stopped(&self.folder.run(), &self.folder.data(), Some(&self.address)) {
            let address = layout::remove_address(&self.address);
            let folder = layout::remove_tree(self.folder.path());
            drop((address, folder));
        }
    }
}
