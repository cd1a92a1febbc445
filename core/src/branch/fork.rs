//! Forking: a new branch with the state of another branch or of a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::capture::elapsed_ms;
use super::create::credentials;
use super::facts::CapturedCluster;
use super::first_work::{self, FirstWork};
use super::layout::{self, ClusterRecord};
use super::making::{Making, Plan};
use super::registry::records;
use super::shared::Shared;
use super::{Branch, BranchRecord, cache, materialise, name, settings, space};
use crate::clone::Method;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{
    self, ClusterFacts, ControlFile, CopyReport, Credentials, Installation, Limits, MovedSequence, SafeMode, SafeReport, ServerStatus,
    TreeSink,
};
use crate::progress::Control;
use crate::store::Ref;
use crate::sys::lock::Mode;

/// What to fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkFrom {
    /// A branch as it is now, by name. A running one is copied online.
    Branch(String),
    /// A checkpoint, by its exact id.
    Checkpoint(String),
}

/// How to copy a running source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkMode {
    /// The way that suits the source: at present always `Online`.
    #[default]
    Auto,
    /// Through the backup interface, file by file: on every file system.
    Online,
    /// By one snapshot of its data folder, a subvolume of btrfs; the fork recovers as after a crash.
    Atomic,
}

/// How to fork.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkOptions {
    /// How to copy a running source; one that is stopped is copied as it is.
    pub mode: ForkMode,
    /// Also a local TCP port.
    pub tcp: bool,
    /// How long its server runs at each start.
    pub limits: Limits,
    /// Keep slots, subscriptions, archiving and standbys as the source has them.
    pub keep_replication: bool,
    /// Keep its server from reaching outside, now and at every later start; as its parent where not said.
    pub safe: Option<SafeMode>,
    /// Clear what opens other systems before anybody can connect: user mappings, options of foreign servers, connection strings
    /// of subscriptions, logins in configuration files, keys of vaults.
    pub blank_credentials: bool,
    /// SQL that psql runs, as superuser in the URL's database, before anybody can connect; where it fails there is no fork.
    pub run: Option<PathBuf>,
    /// Give its sequences ranges that no other branch of this store has.
    pub disjoint_sequences: bool,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
}

/// What a fork cost, in milliseconds, and what it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForkReport {
    /// `online`, `atomic`, `stopped`, `cache` or `checkpoint`.
    pub mode: String,
    /// `snapshot`, `reflink` or `copy`.
    pub method: String,
    /// In all.
    pub total_ms: u64,
    /// By part: checkpoint, files, wal, sequences, start.
    #[serde(serialize_with = "crate::report::parts")]
    pub parts_ms: Vec<(String, u64)>,
    /// Unlogged tables that are empty in the fork.
    pub unlogged: Vec<String>,
    /// Prepared transactions that the fork still holds.
    pub prepared: Vec<String>,
    /// What was switched off in it.
    pub switched_off: Vec<String>,
    /// Of a safe fork: which layers keep its server from reaching outside, and what they leave open.
    pub safe: Option<SafeReport>,
    /// Credentials that were cleared, by what they were for.
    pub blanked: Vec<String>,
    /// The SQL file that was run before anybody could connect.
    #[serde(serialize_with = "crate::report::optional_path")]
    pub ran: Option<PathBuf>,
    /// Sequences that were given ranges of their own.
    pub ranges: Vec<MovedSequence>,
    /// Anything else worth knowing.
    pub warnings: Vec<String>,
}

pub(super) fn fork(
    shared: &Arc<Shared>,
    name: &str,
    from: &ForkFrom,
    source: Option<&Branch>,
    options: &ForkOptions,
    control: &Control,
) -> Result<(Branch, ForkReport)> {
    let off = if options.keep_replication { Vec::new() } else { settings::off_in_forks() };
    name::check_settings(name, &options.settings, &off)?;
    let options = &ForkOptions { safe: options.safe.or(source.map(|source| source.record.safe)), ..options.clone() };
    first_work::check(options)?;
    let begin = Instant::now();
    let (branch, mut report) = match (from, source) {
        (_, Some(source)) => of_branch(shared, name, source, options, control)?,
        (ForkFrom::Checkpoint(id) | ForkFrom::Branch(id), None) => of_checkpoint(shared, name, id, options, control)?,
    };
    report.total_ms = elapsed_ms(begin);
    Ok((branch, report))
}

fn plan<'a>(name: &'a str, origin: String, parent: Option<String>, installation: &'a Installation, options: &'a ForkOptions) -> Plan<'a> {
    Plan {
        name,
        origin,
        parent,
        installation,
        fork: true,
        keep_replication: options.keep_replication,
        safe: options.safe.unwrap_or_default(),
        disjoint: options.disjoint_sequences,
        tcp: options.tcp,
        limits: options.limits,
        settings: &options.settings,
    }
}

/// What keeps the new fork's server from reaching outside, refused before anything is made; `None` for one that is not safe.
fn contained(shared: &Shared, name: &str, options: &ForkOptions) -> Result<Option<SafeReport>> {
    let mode = options.safe.unwrap_or_default();
    if mode == SafeMode::Off {
        return Ok(None);
    }
    settings::check_safe(name, &options.settings)?;
    let layers = shared.layers()?;
    layers.decide(mode)?;
    Ok(Some(layers.clone()))
}

fn of_branch(shared: &Arc<Shared>, name: &str, source: &Branch, options: &ForkOptions, control: &Control) -> Result<(Branch, ForkReport)> {
    // Shared: forks of one source run beside each other, and nobody starts or stops it meanwhile.
    let mut lock = source.lock(Mode::Shared, control)?;
    let mut server = running(source, control)?;
    if server.is_none() && !ControlFile::read(&source.data()?)?.state.is_stopped() {
        drop(lock);
        let alone = source.lock(Mode::Exclusive, control)?;
        if running(source, control)?.is_none() {
            source.recover_locked(control)?;
        }
        drop(alone);
        lock = source.lock(Mode::Shared, control)?;
        server = running(source, control)?;
    }
    let installation = shared.installation(&source.record.postgres, source.record.version)?;
    let origin = format!("branch:{}", source.record.id);
    let contained = contained(shared, name, options)?;
    let making = Making::begin(shared, &plan(name, origin.clone(), Some(source.record.id.clone()), &installation, options), control)?;
    let (from, data) = (source.data()?, making.cluster_folder().data());
    let mut switched_off =
        if options.keep_replication { Vec::new() } else { settings::switched_off(&from, &source.record.settings, server.as_ref())? };
    if contained.is_some() {
        switched_off.extend(settings::workers(&from, server.as_ref())?);
    }
    let known: Option<ClusterRecord> = layout::load_optional(&source.folder.cluster(&source.read_current()?).record())?;
    let of_source = source.credentials()?;
    let (copy, how) = copy(&from, &data, server.as_ref(), options.mode, control)?;
    drop(lock);
    if copy.mode == "online" {
        postgres::check_online_copy(&data)?;
    }
    postgres::prepare_copy(&data, options.keep_replication)?;
    shared.run_as()?.give(&data)?;
    let mut report = ForkReport {
        mode: copy.mode,
        method: how.name().to_owned(),
        parts_ms: copy.parts_ms,
        unlogged: copy.unlogged,
        prepared: copy.prepared,
        switched_off,
        safe: contained,
        ..ForkReport::default()
    };
    let facts = known.and_then(|known| known.facts);
    let work = FirstWork { options, sequences: &copy.sequences, ranges: source.record.ranges };
    let branch = bring_up(making, &of_source, &origin, &work, facts, &mut report, None, control)?;
    Ok((branch, report))
}

/// Fills the new folder `data` from the source in the cheapest way, and says which.
fn copy(from: &Path, data: &Path, server: Option<&postgres::Server>, mode: ForkMode, control: &Control) -> Result<(CopyReport, Method)> {
    match (server, mode) {
        (Some(server), ForkMode::Atomic) => {
            space::for_copy(from, Method::Snapshot)?;
            return Ok((postgres::copy_atomic(server, data, control)?, Method::Snapshot));
        }
        (Some(_), ForkMode::Auto | ForkMode::Online) => {}
        (None, _) => {
            space::for_copy(from, Method::Snapshot)?;
            if let Some(copy) = postgres::snapshot_stopped(from, data, control)? {
                return Ok((copy, Method::Snapshot));
            }
        }
    }
    let mut sink = TreeSink::new(from, data)?;
    space::for_copy(from, sink.method())?;
    let copy = match server {
        Some(server) => postgres::copy_online(server, &mut sink, control)?,
        None => postgres::copy_stopped(from, &mut sink, control)?,
    };
    Ok((copy, sink.method()))
}

/// The source's server where it runs.
fn running(source: &Branch, control: &Control) -> Result<Option<postgres::Server>> {
    match source.settled_status(control)? {
        ServerStatus::Stopped => Ok(None),
        _ => source.attach(),
    }
}

fn of_checkpoint(shared: &Arc<Shared>, name: &str, id: &str, options: &ForkOptions, control: &Control) -> Result<(Branch, ForkReport)> {
    let reference = shared.store.find_ref(id)?;
    let half = reference.cluster.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("checkpoint {id} holds no database")).hint("name a checkpoint of a project with a database")
    })?;
    let captured = CapturedCluster::of(half)?;
    let (installation, parent) = place_of(shared, &reference, &captured)?;
    let ranges = parent.as_ref().and_then(|parent| parent.ranges);
    let options = &ForkOptions { safe: options.safe.or(Some(captured.safe)), ..options.clone() };
    let contained = contained(shared, name, options)?;
    let begin = Instant::now();
    let reader = shared.store.reader(control)?;
    let origin = format!("checkpoint:{id}");
    let making = Making::begin(shared, &plan(name, origin.clone(), parent.map(|parent| parent.id), &installation, options), control)?;
    let data = making.cluster_folder().data();
    let filled = materialise::fill(shared, &reader, id, half, &captured, &installation, &data, options.keep_replication, control)?;
    drop(reader);
    let mut switched_off = if options.keep_replication { Vec::new() } else { settings::switched_off(&data, &[], None)? };
    if contained.is_some() {
        switched_off.extend(settings::workers(&data, None)?);
    }
    let of_source = credentials(&captured.superuser, &captured.user, &captured.database)?;
    let (mode, how) = filled.cached.map_or(("checkpoint", Method::Copy), |method| ("cache", method));
    let mut report = ForkReport {
        mode: mode.to_owned(),
        method: how.name().to_owned(),
        parts_ms: vec![("files".to_owned(), elapsed_ms(begin))],
        unlogged: captured.report.unlogged.clone(),
        prepared: captured.report.prepared.clone(),
        switched_off,
        safe: contained,
        warnings: filled.warnings,
        ..ForkReport::default()
    };
    let sequences = if filled.cached.is_some() { &[] } else { captured.report.sequences.as_slice() };
    let key = filled.cached.is_none().then_some(filled.key.as_str());
    let work = FirstWork { options, sequences, ranges };
    let branch = bring_up(making, &of_source, &origin, &work, Some(captured.facts.clone()), &mut report, key, control)?;
    Ok((branch, report))
}

/// The programs for a checkpoint's cluster, and the branch it was taken of where that still exists.
pub(super) fn place_of(shared: &Shared, reference: &Ref, captured: &CapturedCluster) -> Result<(Installation, Option<BranchRecord>)> {
    let of = reference.branch.as_deref().unwrap_or(&captured.branch);
    let origin = records(shared)?.into_iter().find(|record| record.id == of && record.version.major == captured.facts.version.major);
    match origin {
        Some(record) => Ok((shared.installation(&record.postgres, record.version)?, Some(record))),
        None => Ok((postgres::choose(&shared.environment, Some(captured.facts.version.major))?, None)),
    }
}

/// The fork's first start: sequences, new passwords, a connect, a clean stop; then it exists.
#[allow(clippy::too_many_arguments, reason = "the common end of the two ways to fork")]
fn bring_up(
    making: Making,
    of_source: &Credentials,
    origin: &str,
    work: &FirstWork<'_>,
    facts: Option<ClusterFacts>,
    report: &mut ForkReport,
    cache_key: Option<&str>,
    control: &Control,
) -> Result<Branch> {
    let begin = Instant::now();
    let own = credentials(&of_source.ours.name, &of_source.url.name, &of_source.database)?;
    work.on_files(&making, report)?;
    let inside = |server: &postgres::Server| work.on_server(&making, server, &own, report, control);
    let put_back = making.first_start(&own, inside, |_| Ok(()), control)?;
    control.check()?;
    report.parts_ms.push(("start".to_owned(), elapsed_ms(begin)));
    let data = making.cluster_folder().data();
    if let Some(key) = cache_key.filter(|_| !work.changes_the_copy()) {
        cache::keep(&making.shared, key, &data);
    }
    let mut record = ClusterRecord::new(&making.cluster, origin);
    record.sequences_put_back = put_back;
    record.mark = Some(postgres::mark_stopped(&data)?);
    record.facts = facts;
    making.finish(&own, &record, report.warnings.clone())
}
