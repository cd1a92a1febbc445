//! Writing a captured cluster, into a new folder and over another state of it. No server is needed: these are files.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::store_sink::{reference, store};
use crate::cancel::CancelToken;
use crate::error::ErrorKind;
use crate::postgres::{ClusterCache, Sink, SourceFile, StoreSink, cutting, write_cluster};
use crate::progress::Control;
use crate::store::{Half, Store};
use crate::sys::fs;

const MIB: usize = 1 << 20;

/// Bytes that are another for every seed and page.
fn pages(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Stores these files as a cluster.
fn capture(store: &Store, files: &[(&str, Vec<u8>)]) -> Half {
    let folder = tempfile::tempdir().unwrap();
    let session = store.session(&Control::silent()).unwrap();
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    for name in ["", "base", "base/5", "global", "pg_wal"] {
        sink.folder(Path::new(name), 0o700).unwrap();
    }
    let mut sources = Vec::new();
    for (at, (path, bytes)) in files.iter().enumerate() {
        let source = folder.path().join(at.to_string());
        fs::create_new(&source, 0o600).unwrap().write_all(bytes).unwrap();
        let path = PathBuf::from(path);
        sources.push(SourceFile { source, cutting: cutting(&path), path, live: false });
    }
    sink.files(&sources, &Control::silent()).unwrap();
    let (half, _) = sink.finish().unwrap();
    session.commit(&reference(half.clone())).unwrap();
    half
}

fn first() -> Vec<(&'static str, Vec<u8>)> {
    let mut relation = pages(1, 9 * MIB);
    relation[4 * MIB..5 * MIB].fill(0);
    vec![
        ("PG_VERSION", b"15\n".to_vec()),
        ("base/5/1259", relation),
        ("base/5/2600", pages(2, 100_000)),
        ("base/5/2601", Vec::new()),
        ("global/pg_control", pages(3, 8192)),
    ]
}

/// Whether the folder has exactly these files with these bytes.
fn holds(data: &Path, files: &[(&str, Vec<u8>)]) -> bool {
    let mut there = 0;
    let mut open = vec![data.to_owned()];
    while let Some(folder) = open.pop() {
        for name in fs::names(&folder).unwrap() {
            let path = folder.join(name);
            if path.is_dir() { open.push(path) } else { there += 1 }
        }
    }
    there == files.len() && files.iter().all(|(path, bytes)| fs::read(&data.join(path)).is_ok_and(|found| found == *bytes))
}

fn assert_holds(data: &Path, files: &[(&str, Vec<u8>)]) {
    let mut there = Vec::new();
    let mut open = vec![data.to_owned()];
    while let Some(folder) = open.pop() {
        for name in fs::names(&folder).unwrap() {
            let path = folder.join(name);
            if path.is_dir() { open.push(path) } else { there.push(path.strip_prefix(data).unwrap().to_str().unwrap().to_owned()) }
        }
    }
    there.sort_unstable();
    let mut wanted: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
    wanted.sort_unstable();
    assert_eq!(there, wanted);
    for (path, bytes) in files {
        assert!(fs::read(&data.join(path)).unwrap() == *bytes, "{path}");
    }
}

#[test]
fn over_another_state_only_what_differs_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (store(folder.path()), folder.path().join("data"));
    let (one, mut files) = (capture(&store, &first()), first());
    files[1].1[MIB..MIB + 100].fill(7);
    files[1].1.truncate(8 * MIB + 5);
    files.push(("base/5/3000", pages(4, 300_000)));
    files[4].1[0] ^= 1;
    let two = capture(&store, &files);
    let reader = store.reader(&Control::silent()).unwrap();

    let written = write_cluster(&reader, &one, 0o750, &data, &Control::silent()).unwrap();
    assert_eq!((written.bytes, written.fsyncs), (one.bytes, 0));
    assert_holds(&data, &first());
    assert_eq!(data.metadata().unwrap().mode() & 0o7777, 0o750);
    let same = data.join("base/5/2600").metadata().unwrap();

    let written = write_cluster(&reader, &two, 0o700, &data, &Control::silent()).unwrap();
    assert_holds(&data, &files);
    assert!(written.bytes_written < 400_000 + 8192, "{written:?}");
    assert!(written.fsyncs >= 3);
    let now = data.join("base/5/2600").metadata().unwrap();
    assert_eq!((now.ino(), now.mtime_nsec(), now.ctime_nsec()), (same.ino(), same.mtime_nsec(), same.ctime_nsec()));

    write_cluster(&reader, &one, 0o700, &data, &Control::silent()).unwrap();
    assert_holds(&data, &first());
}

#[test]
fn what_has_other_names_or_another_kind_is_replaced_and_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (store(folder.path()), folder.path().join("data"));
    let half = capture(&store, &first());
    let reader = store.reader(&Control::silent()).unwrap();
    write_cluster(&reader, &half, 0o700, &data, &Control::silent()).unwrap();
    let outside = folder.path().join("outside");
    fs::make_folder(&outside, 0o700).unwrap();
    // Another name of one file, a link in place of another, a folder in place of a third, and a link in place of a folder.
    std::fs::hard_link(data.join("base/5/2600"), outside.join("name")).unwrap();
    std::fs::OpenOptions::new().write(true).open(outside.join("name")).unwrap().write_all(b"edited").unwrap();
    let edited = fs::read(&outside.join("name")).unwrap();
    fs::remove_file(&data.join("base/5/2601")).unwrap();
    std::os::unix::fs::symlink(outside.join("name"), data.join("base/5/2601")).unwrap();
    fs::remove_file(&data.join("PG_VERSION")).unwrap();
    fs::make_folder(&data.join("PG_VERSION/deep"), 0o700).unwrap();
    fs::remove_tree(&data.join("pg_wal")).unwrap();
    std::os::unix::fs::symlink(&outside, data.join("pg_wal")).unwrap();

    write_cluster(&reader, &half, 0o700, &data, &Control::silent()).unwrap();
    assert_holds(&data, &first());
    assert!(!data.join("pg_wal").symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(&outside.join("name")).unwrap(), edited);
    assert_eq!(fs::names(&outside).unwrap(), ["name"]);
}

#[test]
fn one_that_breaks_off_has_no_pg_control_and_the_next_finishes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (store(folder.path()), folder.path().join("data"));
    let one = capture(&store, &first());
    let mut files = first();
    files[1].1.fill(9);
    let two = capture(&store, &files);
    let reader = store.reader(&Control::silent()).unwrap();
    write_cluster(&reader, &one, 0o700, &data, &Control::silent()).unwrap();
    let cancel = CancelToken::new();
    cancel.cancel();
    let error = write_cluster(&reader, &two, 0o700, &data, &Control::new(cancel, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!data.join("global/pg_control").exists());
    write_cluster(&reader, &two, 0o700, &data, &Control::silent()).unwrap();
    assert_holds(&data, &files);
}

const CHILD: &str = "FORKLIFT_TEST_CLUSTER_WRITER";

/// Two states of one cluster that differ in several files.
fn two_states() -> [Vec<(&'static str, Vec<u8>)>; 2] {
    let mut other = first();
    other[1].1[..6 * MIB].fill(9);
    other[2].1.truncate(10);
    other[4].1[0] ^= 1;
    other.push(("base/5/3000", pages(4, 3 * MIB)));
    [first(), other]
}

/// Run by the test below in a process of its own: writes the two states over one another until it is killed.
#[test]
#[allow(clippy::disallowed_methods, reason = "tells a child from a test that nobody started as one")]
fn child_that_writes() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let store = Store::open(&folder.join("store")).unwrap();
    let reader = store.reader(&Control::silent()).unwrap();
    let halves = store.refs().unwrap().0.into_iter().map(|reference| reference.cluster.unwrap());
    for half in halves.collect::<Vec<_>>().iter().cycle() {
        write_cluster(&reader, half, 0o700, &folder.join("data"), &Control::silent()).unwrap();
        println!("written");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn killed_at_any_time_it_is_never_mistaken_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = (Store::create(&folder.path().join("store")).unwrap(), folder.path().join("data"));
    let states = two_states();
    let halves = states.each_ref().map(|files| capture(&store, files));
    let (mut broken, mut whole) = (0, 0);
    for round in 0_u64..400 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "postgres::disk_tests::write::child_that_writes", "--nocapture"]).env(CHILD, folder.path());
        let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("written")), "the child wrote nothing");
        // Some moment of the next ones.
        std::thread::sleep(Duration::from_micros(round * 7919 % 60_000));
        drop(child);
        match data.join("global/pg_control").exists() {
            true => whole += 1,
            false => broken += 1,
        }
        let complete = states.iter().any(|files| holds(&data, files));
        assert!(complete || !data.join("global/pg_control").exists(), "round {round}");
        if round >= 20 && broken >= 5 && whole >= 1 {
            break;
        }
    }
    assert!(broken >= 5 && whole >= 1, "{broken} broken off, {whole} whole");
    let reader = store.reader(&Control::silent()).unwrap();
    write_cluster(&reader, &halves[0], 0o700, &data, &Control::silent()).unwrap();
    assert_holds(&data, &states[0]);
}
