//! Forking: a new branch with the state of another branch or of a checkpoint.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::capture::elapsed_ms;
use super::create::credentials;
use super::facts::CapturedCluster;
use super::layout::{self, ClusterRecord};
use super::making::{Making, Plan};
use super::registry::records;
use super::shared::Shared;
use super::{Branch, cache, materialise, name, settings, space};
use crate::clone::Method;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ClusterFacts, ControlFile, Credentials, Installation, SequenceState, ServerStatus, TreeSink};
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

/// How to fork.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkOptions {
    /// Also a local TCP port.
    pub tcp: bool,
    /// Keep slots, subscriptions, archiving and standbys as the source has them.
    pub keep_replication: bool,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
}

/// What a fork cost, in milliseconds, and what it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForkReport {
    /// `online`, `stopped`, `cache` or `checkpoint`.
    pub mode: String,
    /// `reflink` or `copy`.
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
        tcp: options.tcp,
        settings: &options.settings,
    }
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
    let making = Making::begin(shared, &plan(name, origin.clone(), Some(source.record.id.clone()), &installation, options), control)?;
    let (from, data) = (source.data()?, making.cluster_folder().data());
    let switched_off = if options.keep_replication { Vec::new() } else { settings::switched_off(&from, server.as_ref())? };
    let known: Option<ClusterRecord> = layout::load_optional(&source.folder.cluster(&source.read_current()?).record())?;
    let of_source = source.credentials()?;
    let mut sink = TreeSink::new(&from, &data)?;
    space::for_copy(&from, sink.method())?;
    let copy = match &server {
        Some(server) => postgres::copy_online(server, &mut sink, control)?,
        None => postgres::copy_stopped(&from, &mut sink, control)?,
    };
    drop(lock);
    if server.is_some() {
        postgres::check_online_copy(&data)?;
    }
    postgres::prepare_copy(&data, options.keep_replication)?;
    shared.run_as()?.give(&data)?;
    let mut report = ForkReport {
        mode: copy.mode,
        method: method(sink.method()),
        parts_ms: copy.parts_ms,
        unlogged: copy.unlogged,
        prepared: copy.prepared,
        switched_off,
        ..ForkReport::default()
    };
    let facts = known.and_then(|known| known.facts);
    let branch = bring_up(making, &of_source, &origin, &copy.sequences, facts, options, &mut report, None, control)?;
    Ok((branch, report))
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
    let begin = Instant::now();
    let reader = shared.store.reader(control)?;
    let origin = format!("checkpoint:{id}");
    let making = Making::begin(shared, &plan(name, origin.clone(), parent, &installation, options), control)?;
    let data = making.cluster_folder().data();
    let filled = materialise::fill(shared, &reader, id, half, &captured, &installation, &data, options.keep_replication, control)?;
    drop(reader);
    let switched_off = if options.keep_replication { Vec::new() } else { settings::switched_off(&data, None)? };
    let of_source = credentials(&captured.superuser, &captured.user, &captured.database)?;
    let (mode, how) = if filled.from_cache { ("cache", Method::Reflink) } else { ("checkpoint", Method::Copy) };
    let mut report = ForkReport {
        mode: mode.to_owned(),
        method: method(how),
        parts_ms: vec![("files".to_owned(), elapsed_ms(begin))],
        unlogged: captured.report.unlogged.clone(),
        prepared: captured.report.prepared.clone(),
        switched_off,
        warnings: filled.warnings,
        ..ForkReport::default()
    };
    let sequences = if filled.from_cache { &[] } else { captured.report.sequences.as_slice() };
    let key = (!filled.from_cache).then_some(filled.key.as_str());
    let branch = bring_up(making, &of_source, &origin, sequences, Some(captured.facts.clone()), options, &mut report, key, control)?;
    Ok((branch, report))
}

/// The programs for a checkpoint's cluster, and the branch it was taken of where that still exists.
pub(super) fn place_of(shared: &Shared, reference: &Ref, captured: &CapturedCluster) -> Result<(Installation, Option<String>)> {
    let of = reference.branch.as_deref().unwrap_or(&captured.branch);
    let origin = records(shared)?.into_iter().find(|record| record.id == of && record.version.major == captured.facts.version.major);
    match origin {
        Some(record) => Ok((shared.installation(&record.postgres, record.version)?, Some(record.id))),
        None => Ok((postgres::choose(&shared.environment, Some(captured.facts.version.major))?, None)),
    }
}

/// The fork's first start: sequences, new passwords, a connect, a clean stop; then it exists.
#[allow(clippy::too_many_arguments, reason = "the common end of the two ways to fork")]
fn bring_up(
    making: Making,
    of_source: &Credentials,
    origin: &str,
    sequences: &[SequenceState],
    facts: Option<ClusterFacts>,
    options: &ForkOptions,
    report: &mut ForkReport,
    cache_key: Option<&str>,
    control: &Control,
) -> Result<Branch> {
    let begin = Instant::now();
    let own = credentials(&of_source.ours.name, &of_source.url.name, &of_source.database)?;
    let inside = |server: &postgres::Server| {
        let put_back = postgres::put_back(server, sequences)?;
        let subscriptions = if options.keep_replication { Vec::new() } else { settings::subscriptions(server)? };
        Ok((put_back, subscriptions))
    };
    let (put_back, subscriptions) = making.first_start(&own, inside, |_| Ok(()), control)?;
    control.check()?;
    report.switched_off.extend(subscriptions);
    report.parts_ms.push(("start".to_owned(), elapsed_ms(begin)));
    let data = making.cluster_folder().data();
    if let Some(key) = cache_key {
        cache::keep(&making.shared, key, &data);
    }
    let mut record = ClusterRecord::new(&making.cluster, origin);
    record.sequences_put_back = put_back;
    record.mark = Some(postgres::mark_stopped(&data)?);
    record.facts = facts;
    making.finish(&own, &record, report.warnings.clone())
}

fn method(method: Method) -> String {
    match method {
        Method::Reflink => "reflink",
        Method::Copy => "copy",
    }
    .to_owned()
}
