//! What a store may not be used for by this build, and what is no store: refused, and left as it is to the last time stamp.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::ErrorKind;
use crate::store::{PruneOptions, RepairOptions, StatsReport};

/// Path, inode, mode, times and content of everything below a folder, and of the folder.
pub(in crate::store::tests) fn snapshot(root: &Path) -> Vec<(PathBuf, [i64; 5], Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let data = std::fs::symlink_metadata(&path).unwrap();
        if data.is_dir() {
            left.extend(sys::fs::names(&path).unwrap().into_iter().map(|name| path.join(name)));
        }
        let numbers = [
            data.ino().cast_signed(),
            data.mode().into(),
            data.mtime() * 1_000_000_000 + data.mtime_nsec(),
            data.ctime(),
            data.ctime_nsec(),
        ];
        let content = if data.is_file() { sys::fs::read(&path).unwrap() } else { Vec::new() };
        found.push((path, numbers, content));
    }
    found.sort();
    found
}

/// Does something to a store or folder and asserts that it changed nothing.
fn untouched<T>(root: &Path, what: &str, act: impl FnOnce() -> T) -> T {
    let before = snapshot(root);
    let result = act();
    assert!(snapshot(root) == before, "{what} touched {}", root.display());
    result
}

fn refused<T: std::fmt::Debug>(root: &Path, what: &str, kind: ErrorKind, act: impl FnOnce() -> crate::Result<T>) {
    let error = untouched(root, what, act).expect_err(what);
    assert_eq!(error.kind(), kind, "{what}: {error}");
    assert!(error.hint_text().is_some() && error.message().contains(root.to_str().unwrap()), "{what}: {error}");
}

/// A golden store with something else in `FORMAT`.
fn with_format(from: &str, to: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("store");
    copy("format-1", &path);
    let file = path.join("FORMAT");
    let text = String::from_utf8(sys::fs::read(&file).unwrap()).unwrap();
    assert!(text.contains(from), "{text}");
    overwrite(&file, text.replace(from, to).as_bytes());
    (folder, path)
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    for (from, to) in [
        ("\"version\": 1", "\"version\": 2"),
        ("\"version\": 1", "\"version\": 4294967295, \"more\": {}"),
        ("\"read\": []", "\"read\": [\"encryption\"]"),
        ("\"prune\": []", "\"prune\": [], \"verify\": [\"parity\"]"),
        ("\"seed\": 0", "\"seed\": 0, \"keyed\": true"),
    ] {
        let (_folder, path) = with_format(from, to);
        refused(&path, "open", ErrorKind::UnsupportedFormat, || Store::open(&path));
        refused(&path, "open or create", ErrorKind::UnsupportedFormat, || Store::open_or_create(&path));
        refused(&path, "create", ErrorKind::AlreadyExists, || Store::create(&path));
    }
}

#[test]
fn what_this_build_does_not_know_it_does_not_do() {
    let control = Control::silent();
    let apply = PruneOptions { apply: true, ..PruneOptions::default() };
    for (from, to, writes, prunes) in [
        ("\"write\": []", "\"write\": [\"wide\"]", false, false),
        ("\"prune\": []", "\"prune\": [\"pins\"]", true, false),
        ("\"average\": 131072", "\"average\": 65536", false, false),
    ] {
        let (_folder, path) = with_format(from, to);
        let store = untouched(&path, "open", || Store::open(&path)).unwrap();
        // What only reads goes on.
        assert_eq!(untouched(&path, "read", || describe(&store)), expected("format-1"));
        let stats: StatsReport = untouched(&path, "stats", || store.stats(&control)).unwrap();
        assert_eq!(stats.checkpoints.len(), 3);
        let report = untouched(&path, "verify", || verify(&store, VerifyLevel::Full));
        assert_eq!(report.findings.iter().map(|found| found.path.clone()).collect::<Vec<_>>(), [path.join("FORMAT").display().to_string()]);
        let id = store.refs().unwrap().0.remove(0).id;
        if !writes {
            refused(&path, "session", ErrorKind::UnsupportedFormat, || store.session(&control));
            refused(&path, "verifying session", ErrorKind::UnsupportedFormat, || store.verifying_session(&control));
            refused(&path, "repair", ErrorKind::UnsupportedFormat, || store.repair(&RepairOptions::default(), &control));
            refused(&path, "remove a ref", ErrorKind::UnsupportedFormat, || store.remove_ref(&id));
        }
        if !prunes {
            refused(&path, "prune", ErrorKind::UnsupportedFormat, || store.prune(&apply, &control));
        }
        if writes {
            commit(&store, "written", &tree(&[("f", noise(1, 100))]));
            store.remove_ref(&id).unwrap();
        }
    }
}

#[test]
fn a_folder_that_is_no_store_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let cases: [(&str, &[(&str, &str)]); 7] = [
        ("a project", &[("src/main.rs", "fn main() {}"), (".git/HEAD", "ref: refs/heads/main")]),
        ("names of ours", &[("packs/00/x", ""), ("refs/a", ""), ("lock", ""), ("gate", ""), ("index/y", "")]),
        ("a marker of somebody", &[("creating", "a list of things"), ("notes", "x")]),
        ("an empty marker beside a file", &[("creating", ""), ("thesis.txt", "x")]),
        ("a marker and a file in a folder of ours", &[("creating", ""), ("refs/thesis.txt", "x")]),
        ("another format", &[("FORMAT", "{\"magic\": \"another\", \"version\": 1}"), ("data", "x")]),
        ("a format that is a folder", &[("FORMAT/x", "x")]),
    ];
    for (name, files) in cases {
        let path = root.join(name);
        for (file, text) in files {
            let file = path.join(file);
            sys::fs::make_folder(file.parent().unwrap(), 0o755).unwrap();
            drop(sys::fs::write_unsynced(&file, &[text.as_bytes()], 0o644).unwrap());
        }
        for (what, act) in [("open", Store::open as fn(&Path) -> _), ("create", Store::create), ("open or create", Store::open_or_create)] {
            assert!(untouched(&path, &format!("{what}: {name}"), || act(&path)).is_err(), "{what}: {name}");
        }
    }
    let pipe = root.join("a pipe");
    sys::fs::make_folder(&pipe, 0o755).unwrap();
    assert!(Command::new("mkfifo").arg(pipe.join("FORMAT")).status().unwrap().success());
    assert!(untouched(&pipe, "a pipe", || Store::open_or_create(&pipe)).is_err());
}
