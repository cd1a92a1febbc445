//! Writing a captured cluster, into a new folder and over another state of it. No server is needed: these are files.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
