//! One step of the store benchmark, as a process of its own: its time and memory are measured from outside, as those of the
//! peers are. Uses the layers directly, in the way that a project's capture and restore do. Prints what it did as JSON.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a program that is run by the benchmark; JSON objects take new members by index"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use forklift::files::{self, InstallRequest, Scope, StatCache};
use forklift::postgres::{self, CloneSink, ClusterCache, Mark, StoreSink};
use forklift::store::{Half, PruneOptions, Ref, RefKind, Session, SessionReport, Store};
use forklift::sys::fs::Syncs;
use forklift::{Control, Error, ErrorKind, Result, sys};
use serde_json::{Value, json};

const USAGE: &str = "usage: bench-store init STORE
       bench-store capture cluster|tree STORE ID SOURCE STATE
       bench-store restore cluster|tree STORE ID TARGET STATE
       bench-store prune STORE ID
       bench-store turns STORE MILLISECONDS
       bench-store chunks STORE COUNT
       bench-store open STORE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match *words {
        ["init", store] => Store::create(Path::new(store)).map(|_| json!({})),
        ["capture", what, store, id, source, state] => capture(what, Path::new(store), id, Path::new(source), Path::new(state)),
        ["restore", what, store, id, target, state] => restore(what, Path::new(store), id, Path::new(target), Path::new(state)),
        ["prune", store, id] => prune(Path::new(store), id),
        ["turns", store, milliseconds] => turns(Path::new(store), milliseconds),
        ["chunks", store, count] => chunks(Path::new(store), count),
        ["open", store] => Store::open(Path::new(store)).and_then(|store| store.reader(&Control::silent()).map(|_| json!({}))),
        _ => Err(usage()),
    };
    match done {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-store: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> Error {
    Error::new(ErrorKind::InvalidArgument, USAGE)
}

fn capture(what: &str, store: &Path, id: &str, source: &Path, state: &Path) -> Result<Value> {
    let store = Store::open(store)?;
    match what {
        "cluster" => capture_cluster(&store, id, source, state),
        "tree" => capture_tree(&store, id, source, state),
        _ => Err(usage()),
    }
}

/// The last checkpoint and what it holds, where there is one.
fn last(store: &Store) -> Result<Option<Ref>> {
    Ok(store.refs()?.0.pop())
}

/// A stopped cluster: nothing is read where the last checkpoint's mark still holds.
fn capture_cluster(store: &Store, id: &str, data: &Path, state: &Path) -> Result<Value> {
    let control = Control::silent();
    let previous = last(store)?.and_then(|reference| reference.cluster);
    let mark = previous.and_then(|half| serde_json::from_value::<Mark>(half.facts.get("mark")?.clone()).ok());
    if mark.is_some_and(|mark| postgres::mark_stopped(data).is_ok_and(|now| mark.same(&now))) {
        return Ok(json!({ "unchanged": true, "fsyncs": 0 }));
    }
    let boot = sys::process::boot_id()?;
    let cache = state.join("cluster.cache");
    let session = store.session(&control)?;
    let known = ClusterCache::load(&cache, &boot);
    let compares = std::env::var_os("FORKLIFT_NO_EXTENTS").is_none();
    let (copied, mut half, seen) = match CloneSink::new(&session, known.clone(), data, &state.join("kept"), compares)? {
        Some(mut sink) => {
            let copied = postgres::copy_stopped(data, &mut sink, &control)?;
            let stored = sink.store(&control)?;
            (copied, stored.half, stored.cache)
        }
        None => {
            let mut sink = StoreSink::new(&session, known);
            let copied = postgres::copy_stopped(data, &mut sink, &control)?;
            let (half, seen) = sink.finish()?;
            (copied, half, seen)
        }
    };
    half.facts["mark"] = json!(copied.mark);
    let report = commit(session, id, None, Some(half))?;
    seen.save(&cache, &boot);
    Ok(told(&report))
}

/// A tree whose manifest is that of the last checkpoint makes no new one.
fn capture_tree(store: &Store, id: &str, root: &Path, state: &Path) -> Result<Value> {
    let control = Control::silent();
    let scope = scope(root);
    let path = state.join("tree.cache");
    let mut cache = StatCache::load(&path);
    let previous = last(store)?.and_then(|reference| reference.files);
    let session = store.session(&control)?;
    let captured = files::capture(&scope, &session, &mut cache, &control)?;
    if previous.is_some_and(|half| half.root == captured.half.root) {
        cache.save(&path)?;
        return Ok(json!({ "unchanged": true, "fsyncs": 0, "files_opened": captured.files_opened }));
    }
    let report = commit(session, id, Some(captured.half), None)?;
    cache.save(&path)?;
    let mut told = told(&report);
    told["files_opened"] = json!(captured.files_opened);
    Ok(told)
}

fn told(report: &SessionReport) -> Value {
    json!({ "bytes_read": report.bytes_read, "bytes_new": report.bytes_new, "bytes_stored": report.bytes_stored, "fsyncs": report.fsyncs })
}

fn scope(root: &Path) -> Scope {
    Scope { root: root.to_owned(), source: None, exclude: Vec::new(), never: Vec::new(), left_out: Vec::new() }
}

fn commit(session: Session, id: &str, files: Option<Half>, cluster: Option<Half>) -> Result<SessionReport> {
    session.commit(&Ref {
        id: id.to_owned(),
        name: None,
        created_ms: sys::id::now_ms(),
        kind: RefKind::Capture,
        project: None,
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files,
        cluster,
        facts: Value::Null,
        boot_id: sys::process::boot_id()?,
    })
}

fn restore(what: &str, store: &Path, id: &str, target: &Path, state: &Path) -> Result<Value> {
    let store = Store::open(store)?;
    let reference = store.find_ref(id)?;
    match (what, &reference.cluster, &reference.files) {
        ("cluster", Some(half), _) => restore_cluster(&store, half, target),
        ("tree", _, Some(half)) => restore_tree(&store, half, target, state),
        _ => Err(usage()),
    }
}

/// Into an empty folder, then durable at once, as a new cluster of a branch is; or over another state of it.
fn restore_cluster(store: &Store, half: &Half, target: &Path) -> Result<Value> {
    let control = Control::silent();
    let reader = store.reader(&control)?;
    let fresh = !target.join("PG_VERSION").exists();
    let mode = half.facts.get("root_mode").and_then(Value::as_u64).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o700);
    let written = postgres::write_cluster(&reader, half, mode, target, &control)?;
    let syncs = Syncs::new();
    if fresh {
        syncs.file_system(target)?;
    }
    Ok(json!({ "bytes_written": written.bytes_written, "fsyncs": written.fsyncs + syncs.count() }))
}

/// As a project's restore: what is there is kept as a checkpoint first, then staged, then installed.
fn restore_tree(store: &Store, half: &Half, target: &Path, state: &Path) -> Result<Value> {
    let control = Control::silent();
    sys::fs::make_folder(target, 0o755)?;
    let today = scope(target);
    let path = state.join("target.cache");
    let mut cache = StatCache::load(&path);
    let session = store.session(&control)?;
    let safety = files::capture(&today, &session, &mut cache, &control)?;
    let kept = commit(session, &format!("safety-{}", sys::id::sortable()?), Some(safety.half.clone()), None)?;
    let reader = store.reader(&control)?;
    let scope = Scope::from_facts(&half.facts, target, Vec::new())?;
    let (staging, displaced) = (state.join("staging"), state.join("kept"));
    let request = InstallRequest {
        reader: &reader,
        scope: &scope,
        target: half.root,
        safety: safety.half.root,
        staging: &staging,
        kept: &displaced,
        extent: forklift::files::Extent::Whole,
    };
    let bytes = files::stage(&request, &control)?;
    let report = files::install(&request, &control)?;
    cache.save(&path)?;
    Ok(json!({ "bytes_written": bytes, "paths": report.items.len(), "fsyncs": report.fsyncs + kept.fsyncs }))
}

/// Forgets one checkpoint (and the safety checkpoints of restores) and prunes.
fn prune(store: &Path, id: &str) -> Result<Value> {
    let store = Store::open(store)?;
    let safeties = store.refs()?.0.into_iter().map(|reference| reference.id).filter(|other| other.starts_with("safety-"));
    for id in safeties.chain([id.to_owned()]) {
        store.remove_ref(&id)?;
    }
    let report = store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent())?;
    Ok(json!({ "packs": report.packs, "removed": report.packs_removed, "unused": report.bytes_unused }))
}

/// Small captures one after the other for a while; gives the milliseconds that each took.
fn turns(store: &Path, milliseconds: &str) -> Result<Value> {
    let wanted: u128 = milliseconds.parse().map_err(|_| usage())?;
    let store = Store::open(store)?;
    let start = Instant::now();
    let mut took = Vec::new();
    while start.elapsed().as_millis() < wanted {
        let begin = Instant::now();
        let session = store.session(&Control::silent())?;
        session.put(&sys::id::random::<4096>()?)?;
        let root = session.manifest().finish()?;
        commit(session, &format!("turn-{}", sys::id::sortable()?), Some(Half { root, entries: 0, bytes: 0, facts: Value::Null }), None)?;
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(json!({ "ms": took }))
}

/// A store with many tiny chunks, for the memory that its index takes.
fn chunks(path: &Path, count: &str) -> Result<Value> {
    let count: u64 = count.parse().map_err(|_| usage())?;
    let store = Store::create(&PathBuf::from(path))?;
    let session = store.session(&Control::silent())?;
    for number in 0..count {
        session.put(&(number + 1).to_le_bytes())?;
    }
    let root = session.manifest().finish()?;
    let report = commit(session, "chunks", Some(Half { root, entries: 0, bytes: 0, facts: Value::Null }), None)?;
    Ok(told(&report))
}
