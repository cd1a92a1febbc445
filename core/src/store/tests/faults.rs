//! Full and read-only file systems, and other accounts: real ones, in children with a mount namespace of their own.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::crash::{CHILD, child_command, child_input, feed};
use super::verifying::verify;
use super::*;
use crate::ErrorKind;
use crate::store::{PruneOptions, RepairOptions, VerifyLevel, VerifyOptions};

/// Runs an ignored test of this program after a shell command in a namespace where we may mount.
pub(super) fn in_namespace(test: &str, shell: &str, input: &std::path::Path) {
    let possible = Command::new("unshare").args(["-Urm", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !possible {
        println!("SKIPPED {test}: user and mount namespaces are not allowed here");
        return;
    }
    let inner = child_command(test);
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", &format!("{shell} && exec \"$@\""), "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(CHILD, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    feed(&mut child, input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("DONE"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn row_30_row_32_a_full_disk_fails_the_capture_and_leaves_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().display().to_string();
    in_namespace("faults::child_on_a_full_disk", &format!("mount -t tmpfs -o size=3m tmpfs {mount}"), folder.path());
}

#[test]
fn child_on_a_full_disk() {
    let Some(mount) = child_input() else { return };
    let store = Store::create(&mount.join("store")).unwrap();
    let kept = tree(&[("f", noise(1, 50_000))]);
    commit(&store, "kept", &kept);
    // More than fits: fails with the path, and what was written is gone (row_32: at once, without trying again).
    let error = try_commit(&store, "large", &tree(&[("f", noise(2, 8 << 20))])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.message().contains("tmp/") && error.hint_text().is_some());
    assert!(files_in(&store, "tmp").is_empty());
    // Space that ends at each step of a small commit: pack, index, ref.
    let filler = mount.join("filler");
    let (mut failed, mut succeeded) = (0, 0);
    for pages in 0..14 {
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(pages * 4096)).unwrap();
        let files = tree(&[("f", noise(100 + pages, 9_000))]);
        let id = format!("p{pages}");
        match try_commit(&store, &id, &files) {
            Ok(_) => {
                succeeded += 1;
                assert_eq!(restore(&store, &id).unwrap(), files);
            }
            Err(error) => {
                failed += 1;
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert_eq!(store.find_ref(&id).unwrap_err().kind(), ErrorKind::NotFound);
            }
        }
        assert!(files_in(&store, "tmp").is_empty());
        assert_eq!(restore(&store, "kept").unwrap(), kept);
        drop(file);
        std::fs::remove_file(&filler).unwrap();
    }
    assert!(failed >= 4 && succeeded >= 2, "{failed} failed, {succeeded} succeeded");
    // With space again, all goes on.
    let after = tree(&[("f", noise(3, 9_000))]);
    commit(&store, "after", &after);
    store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap();
    assert_eq!(restore(&Store::open(store.path()).unwrap(), "after").unwrap(), after);
    println!("DONE");
}

#[test]
fn row_51_a_read_only_store_is_read() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 5_000))]));
    let outer = tempfile::tempdir().unwrap();
    let (from, to, at) = (store.path().display(), outer.path().display(), outer.path().join("place"));
    let shell = format!(
        "mount -t tmpfs tmpfs {to} && mkdir {at} && mount --bind {from} {at} && mount -o remount,bind,ro {at} && mount -o remount,ro {to}",
        at = at.display()
    );
    in_namespace("faults::child_on_a_read_only_mount", &shell, &at);
}

#[test]
fn child_on_a_read_only_mount() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    assert_eq!(store.refs().unwrap().0.len(), 1);
    assert_eq!(restore(&store, "a").unwrap(), tree(&[("f", noise(1, 5_000))]));
    store.prune(&PruneOptions::default(), &Control::silent()).unwrap();
    assert_eq!(store.last_refs(1).unwrap().0.len(), 1);
    assert_eq!(store.stats(&Control::silent()).unwrap().checkpoints.len(), 1);
    for level in [VerifyLevel::Refs, VerifyLevel::Metadata, VerifyLevel::Packs, VerifyLevel::Full, VerifyLevel::Drill] {
        assert!(verify(&store, level).is_whole());
    }
    let budget = VerifyOptions { level: VerifyLevel::Full, budget: Some(1), ..VerifyOptions::default() };
    assert!(store.verify(&budget, &Control::silent()).unwrap().is_whole(), "what cannot be remembered is not");
    let read_only = |error: crate::Error| assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    read_only(store.session(&Control::silent()).unwrap_err());
    read_only(store.remove_ref("a").unwrap_err());
    read_only(store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap_err());
    read_only(store.repair(&RepairOptions::default(), &Control::silent()).unwrap_err());
    read_only(Store::create(&path.with_file_name("new")).unwrap_err());
    assert_eq!(Store::open_or_create(&path).unwrap().uuid(), store.uuid());
    println!("DONE");
}

#[test]
fn row_51_another_accounts_store_is_read() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED row_51_another_accounts_store_is_read: only root can become another account");
        return;
    }
    let (folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 5_000))]));
    // Everything is made readable but the lock files.
    let shell = format!(
        "chmod a+rx {folder} && chmod -R a+rX {store} && chmod 600 {store}/lock {store}/gate",
        folder = folder.path().display(),
        store = store.path().display()
    );
    assert!(Command::new("sh").args(["-c", &shell]).status().unwrap().success());
    let mut command = child_command("faults::child_with_another_account");
    command.uid(65_534).gid(65_534).stderr(Stdio::piped()).current_dir("/");
    let Ok(mut child) = command.spawn() else {
        println!(
            "SKIPPED row_51_another_accounts_store_is_read: another account cannot run {}",
            std::env::current_exe().unwrap().display()
        );
        return;
    };
    feed(&mut child, store.path());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("DONE"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn child_with_another_account() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    assert_eq!(restore(&store, "a").unwrap(), tree(&[("f", noise(1, 5_000))]));
    assert_eq!(store.session(&Control::silent()).unwrap_err().kind(), ErrorKind::Permission);
    assert_eq!(store.remove_ref("a").unwrap_err().kind(), ErrorKind::Permission);
    println!("DONE");
}

/// A reader that could not lock out a prune finds packs in the trash, and the new index.
#[test]
fn a_reader_without_lock_survives_a_prune() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 5_000)), ("g", noise(2, 400))]);
    commit(&store, "a", &files);
    let chunk = crate::store::ChunkRef { id: ChunkId::of(&files["f"]), len: 5_000 };
    let reader = crate::store::Reader::locked_elsewhere(&store, None).unwrap();
    store.remove_ref("a").unwrap();
    assert_eq!(store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap().packs_removed, 1);
    assert_eq!(reader.chunk(&chunk).unwrap(), files["f"]);
    drop(reader);
    assert_eq!(store.reader(&Control::silent()).unwrap().chunk(&chunk).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn row_31_a_prune_needs_no_free_space() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().display().to_string();
    in_namespace("faults::child_that_prunes_a_full_disk", &format!("mount -t tmpfs -o size=4m tmpfs {mount}"), folder.path());
}

#[test]
fn child_that_prunes_a_full_disk() {
    let Some(mount) = child_input() else { return };
    let store = Store::create(&mount.join("store")).unwrap();
    let kept = tree(&[("f", noise(1, 50_000)), ("same", noise(2, 9000))]);
    commit(&store, "kept", &kept);
    let filler = mount.join("filler");
    let options = PruneOptions { apply: true, ..PruneOptions::default() };
    for pages in 0..12 {
        // One that goes as a whole, and one of which the chunk that both have stays.
        let goes = format!("goes{pages}");
        commit(&store, &goes, &tree(&[("f", noise(100 + pages, 300_000))]));
        // One segment for all packs, so that another has to be written without the one that goes.
        files_in(&store, "index").iter().for_each(|path| std::fs::remove_file(path).unwrap());
        commit(&store, &format!("small{pages}"), &tree(&[("f", noise(900 + pages, 100))]));
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        try_commit(&store, "none", &tree(&[("f", noise(7, 9_000))])).unwrap_err();
        store.remove_ref(&goes).unwrap();
        // What that gave is taken too.
        while file.write_all(&[1; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(pages * 4096)).unwrap();
        assert_eq!(sys::fs::free_bytes(&mount).unwrap(), pages * 4096);
        let dry = store.prune(&PruneOptions::default(), &Control::silent()).unwrap();
        let report = store.prune(&options, &Control::silent()).unwrap();
        assert_eq!(report, dry, "{pages}");
        assert_eq!((report.packs_removed, report.unlinked), (1, true));
        assert!(sys::fs::free_bytes(&mount).unwrap() >= 300_000, "{pages}");
        assert!(files_in(&store, "tmp").is_empty() && files_in(&store, "trash").is_empty());
        assert_eq!(restore(&Store::open(store.path()).unwrap(), "kept").unwrap(), kept);
        assert!(verify(&store, VerifyLevel::Full).is_whole(), "{pages}");
        // There is room again.
        commit(&store, &format!("after{pages}"), &tree(&[("f", noise(500 + pages, 9_000))]));
        drop(file);
        std::fs::remove_file(&filler).unwrap();
    }
    println!("DONE");
}

#[test]
fn row_13_a_handle_outlives_the_prune_of_another_process() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 5_000))]);
    commit(&store, "a", &files);
    let generation = store.generation().unwrap();
    let mut child = child_command("faults::child_that_removes_all").spawn().unwrap();
    feed(&mut child, store.path());
    assert!(child.wait().unwrap().success());
    // The same handle, which has the old index in memory.
    assert_ne!(store.generation().unwrap(), generation);
    assert!(!store.reader(&Control::silent()).unwrap().has(&ChunkId::of(&files["f"])).unwrap());
    assert!(commit(&store, "b", &files).bytes_new >= 5_000);
    assert_eq!(restore(&store, "b").unwrap(), files);
}

#[test]
fn child_that_removes_all() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    store.remove_ref("a").unwrap();
    let options = PruneOptions { apply: true, empty_trash: true, ..PruneOptions::default() };
    assert_eq!(store.prune(&options, &Control::silent()).unwrap().packs_removed, 1);
}
