//! The steps, each in a process of its own.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forklift::files::{Scope, StatCache, capture};
use forklift::store::{Half, Ref, RefKind, Store};
use forklift::{Control, sys};
use serde_json::{Value, json};

/// Times that each short step is repeated; the median counts.
const ROUNDS: usize = 9;

pub(crate) fn run(step: &str, scratch: &Path, count: u64) -> Value {
    match step {
        "make-refs" => make_refs(scratch, count),
        "refs" => refs(scratch, count),
        "make-files" => make_files(scratch, count),
        "capture" => take(scratch, count),
        "index" => index(scratch),
        _ => panic!("no step {step}"),
    }
}

fn control() -> Control {
    Control::silent()
}

fn reference(files: Half) -> Ref {
    Ref {
        id: sys::id::sortable().expect("an id"),
        name: None,
        created_ms: sys::id::now_ms(),
        kind: RefKind::Capture,
        project: Some("01k0000000000000000000000p".to_owned()),
        branch: None,
        session: Some("a-session-of-some-agent".to_owned()),
        turn: Some("12".to_owned()),
        tool: Some("edit_file".to_owned()),
        files: Some(files),
        cluster: None,
        facts: json!({ "timeline": [{ "n": 1, "at_ms": 1, "what": { "begin": { "window": "w", "session": "s", "turn": "12", "call": "c" } } }] }),
        boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
    }
}

/// One checkpoint by way of a session; all others are its file under other ids, which is all that a ref is.
fn make_refs(scratch: &Path, count: u64) -> Value {
    let store = Store::create(&scratch.join("refs-store")).expect("a store");
    let session = store.session(&control()).expect("a session");
    let root = session.manifest().finish().expect("a manifest");
    let facts =
        json!({ "scope": { "source": ["src", "tests"], "exclude": [], "left_out": [] }, "coverage": { "complete": true, "left_out": [] } });
    let made = reference(Half { root, entries: 0, bytes: 0, facts });
    session.commit(&made).expect("a checkpoint");
    let folder = store.path().join("refs");
    let text = std::fs::read_to_string(folder.join(&made.id)).expect("a ref");
    let body = text.split_once(",\"hash\"").map(|(body, _)| format!("{body}}}")).expect("a hash");
    for _ in 1..count {
        let id = sys::id::sortable().expect("an id");
        let body = body.replace(&made.id, &id);
        let hash = blake3::hash(body.as_bytes()).to_hex();
        let open = body.strip_suffix('}').expect("an object");
        let line = format!("{open},\"hash\":\"{hash}\"}}\n");
        std::fs::write(folder.join(&id), line).expect("a ref");
    }
    json!({})
}

fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}

fn refs(scratch: &Path, count: u64) -> Value {
    let path = scratch.join("refs-store");
    let open_ms = median(|| drop(Store::open(&path).expect("a store")));
    let store = Store::open(&path).expect("a store");
    let last_ms = median(|| assert_eq!(store.last_refs(50).expect("refs").0.len(), 50));
    let after = store.last_refs(1001).expect("refs").0.remove(0).id;
    let records = |reference: Ref| reference.facts["timeline"].as_array().map_or(0, Vec::len) as u64;
    let sum = |after: Option<&str>| store.refs_after(after).expect("refs").map(|found| records(found.expect("a ref"))).sum::<u64>();
    let recent_ms = median(|| assert_eq!(sum(Some(&after)), 1000));
    let begin = Instant::now();
    assert_eq!(sum(None), count);
    json!({ "open_ms": open_ms, "last_ms": last_ms, "recent_ms": recent_ms, "all_ms": begin.elapsed().as_secs_f64() * 1000.0 })
}

fn work(scratch: &Path) -> PathBuf {
    scratch.join("work")
}

/// Each with another content, so that each is a chunk of its own.
fn make_files(scratch: &Path, count: u64) -> Value {
    let folder = work(scratch).join("folder");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::thread::scope(|scope| {
        for part in 0..2 {
            let folder = &folder;
            scope.spawn(move || {
                for number in (part..count).step_by(2) {
                    let mut file = File::create(folder.join(format!("file-{number:07}.txt"))).expect("a file");
                    writeln!(file, "this is file {number}").expect("its content");
                }
            });
        }
    });
    // A file is known again only where it was not changed just before it was read.
    std::thread::sleep(std::time::Duration::from_secs(3));
    json!({})
}

fn take(scratch: &Path, count: u64) -> Value {
    let store = Store::open_or_create(&scratch.join("files-store")).expect("a store");
    let remembered = scratch.join("cache");
    let begin = Instant::now();
    let mut cache = StatCache::load(&remembered);
    let session = store.session(&control()).expect("a session");
    let scope = Scope { root: work(scratch), ..Scope::default() };
    let captured = capture(&scope, &session, &mut cache, &control()).expect("a capture");
    assert_eq!(captured.half.entries, count + 1);
    session.commit(&reference(captured.half)).expect("a checkpoint");
    cache.save(&remembered).expect("a cache");
    let ms = begin.elapsed().as_secs_f64() * 1000.0;
    json!({ "ms": ms, "peak_mb": peak_mb(), "opened": captured.files_opened })
}

fn index(scratch: &Path) -> Value {
    let store = Store::open(&scratch.join("files-store")).expect("a store");
    let stats = store.stats(&control()).expect("stats");
    json!({ "mb_a_million": stats.index_memory as f64 / stats.chunks.max(1) as f64 })
}

/// The most memory that this process has had, in 10^6 bytes.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this system says how much memory a process has");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") * 1024.0 / 1e6
}
