//! Handles that outlive what other processes do, also across a fork; and restores from where nothing can be written.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::crash::{child_command, child_input, feed};
use super::faults::in_namespace;
use super::golden::refused::snapshot;
use super::verifying::verify;
use super::*;
use crate::ErrorKind;
use crate::files::{InstallRequest, Scope, StatCache, install, stage};
use crate::store::{ChunkRef, PruneOptions, VerifyLevel};

fn everything() -> PruneOptions {
    PruneOptions { apply: true, tolerated_in_pack: 0.0, tolerated_in_all: 0.0, empty_trash: true, ..PruneOptions::default() }
}

/// What a handle has in memory names a pack that another process replaced by one with what is still needed.
#[test]
fn row_13_a_handle_outlives_a_rewrite_by_another_process() {
    let (_folder, store) = new_store();
    let (a, b) = (tree(&[("f", noise(1, 5_000)), ("g", noise(2, 5_000))]), tree(&[("g", noise(2, 5_000))]));
    commit(&store, "a", &a);
    commit(&store, "b", &b);
    let old = files_in(&store, "packs");
    assert_eq!(restore(&store, "b").unwrap(), b);
    let mut child = child_command("sharing::child_that_rewrites").spawn().unwrap();
    feed(&mut child, store.path());
    assert!(child.wait().unwrap().success());
    assert!(old.iter().any(|pack| !files_in(&store, "packs").contains(pack)), "what both need lies elsewhere now");
    assert_eq!(restore(&store, "b").unwrap(), b);
    let report = commit(&store, "again", &a);
    assert!((5_000..6_000).contains(&report.bytes_new), "what went is stored anew, and what moved is known: {report:?}");
    assert_eq!(restore(&store, "again").unwrap(), a);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn child_that_rewrites() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    store.remove_ref("a").unwrap();
    let report = store.prune(&everything(), &Control::silent()).unwrap();
    assert!(report.packs_rewritten > 0 && report.unlinked, "{report:?}");
}

#[test]
fn row_13_a_handle_is_carried_across_a_fork() {
    let (_folder, store) = new_store();
    let mut child = child_command("sharing::child_that_forks").spawn().unwrap();
    feed(&mut child, store.path());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("DONE"), "{output:?}");
    assert!(verify(&Store::open(store.path()).unwrap(), VerifyLevel::Full).is_whole());
}

/// A process of one test: it forks while it has a handle with an index in memory, a session and a reader, then prunes.
#[test]
fn child_that_forks() {
    let Some(path) = child_input() else { return };
    let control = Control::silent();
    let store = Store::open(&path).unwrap();
    let files = tree(&[("f", noise(1, 5_000))]);
    commit(&store, "a", &files);
    let chunk = ChunkRef { id: ChunkId::of(&files["f"]), len: 5_000 };
    assert_eq!(restore(&store, "a").unwrap(), files);
    let (session, reader) = (store.session(&control).unwrap(), store.reader(&control).unwrap());
    session.put(&noise(3, 100)).unwrap();
    let (mut told, mut telling) = UnixStream::pair().unwrap();
    // Whoever fails, the other does not wait for ever.
    for stream in [&told, &telling] {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    }
    let forked = crate::sys::process::Forked::new(|| {
        // What the parent holds is refused.
        assert_eq!(session.put(b"x").unwrap_err().kind(), ErrorKind::Forked);
        assert_eq!(session.has(&chunk.id).unwrap_err().kind(), ErrorKind::Forked);
        assert_eq!(reader.chunk(&chunk).unwrap_err().kind(), ErrorKind::Forked);
        told.write_all(b"refused").unwrap();
        let mut pruned = [0; 6];
        told.read_exact(&mut pruned).unwrap();
        // The handle itself may be used, and notices that the parent has pruned.
        assert!(!store.reader(&control).unwrap().has(&chunk.id).unwrap());
        assert!(commit(&store, "b", &files).bytes_new >= 5_000);
        restore(&store, "b").unwrap() == files
    });
    let mut refused = [0; 7];
    telling.read_exact(&mut refused).unwrap();
    assert!(session.has(&chunk.id).unwrap(), "the parent's goes on");
    // The child has their files open, and does not hold their locks.
    drop((session, reader));
    store.remove_ref("a").unwrap();
    assert_eq!(store.prune(&everything(), &control).unwrap().packs_removed, 1);
    telling.write_all(b"pruned").unwrap();
    assert!(forked.wait());
    assert_eq!(restore(&store, "b").unwrap(), files);
    println!("DONE");
}

/// A tree with what restores put back last, in a store that is mounted read-only, comes back outside of it.
#[test]
fn row_51_a_restore_from_a_read_only_mount_writes_nothing_there() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    for (path, bytes) in work_tree() {
        let path = work.join(path);
        sys::fs::make_folder(path.parent().unwrap(), 0o755).unwrap();
        drop(sys::fs::write_unsynced(&path, &[&bytes], 0o644).unwrap());
    }
    let store = Store::create(&folder.path().join("store")).unwrap();
    for (id, root) in [("tree", work), ("empty", folder.path().join("empty"))] {
        sys::fs::make_folder(&root, 0o755).unwrap();
        let session = store.session(&Control::silent()).unwrap();
        let scope = Scope { root, ..Scope::default() };
        let half = crate::files::capture(&scope, &session, &mut StatCache::default(), &Control::silent()).unwrap().half;
        session.commit(&Ref { files: Some(half.clone()), ..reference(id, half.root) }).unwrap();
    }
    let mount = folder.path().join("mount");
    sys::fs::make_folder(&mount, 0o755).unwrap();
    let before = snapshot(store.path());
    let shell = format!("mount --bind {from} {to} && mount -o remount,bind,ro {to}", from = store.path().display(), to = mount.display());
    in_namespace("sharing::child_that_restores", &shell, &mount);
    assert!(snapshot(store.path()) == before);
}

fn work_tree() -> Tree {
    tree(&[("a/b/f", noise(1, 200_000)), ("a/text", b"words ".repeat(900)), ("top", noise(2, 10))])
}

#[test]
fn child_that_restores() {
    let Some(mount) = child_input() else { return };
    let control = Control::silent();
    let store = Store::open(&mount).unwrap();
    let reader = store.reader(&control).unwrap();
    let base = mount.with_file_name("restored");
    let (root, staging, kept) = (base.join("work"), base.join("staging"), base.join("kept"));
    sys::fs::make_folder(&root, 0o755).unwrap();
    let root_of = |id: &str| store.find_ref(id).unwrap().files.unwrap().root;
    let scope = Scope { root: root.clone(), ..Scope::default() };
    let request = InstallRequest {
        reader: &reader,
        scope: &scope,
        target: root_of("tree"),
        safety: root_of("empty"),
        staging: &staging,
        kept: &kept,
        extent: crate::files::Extent::Whole,
    };
    stage(&request, &control).unwrap();
    install(&request, &control).unwrap();
    for (path, bytes) in work_tree() {
        assert_eq!(sys::fs::read(&root.join(path)).unwrap(), bytes);
    }
    println!("DONE");
}
