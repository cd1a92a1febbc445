use super::*;
use crate::ErrorKind;
use crate::store::{PruneOptions, PruneReport};

/// Without rewriting.
fn prune(store: &Store, apply: bool) -> crate::Result<PruneReport> {
    store.prune(&PruneOptions { apply, tolerated_in_pack: 1.0, attempts: 1, ..PruneOptions::default() }, &Control::silent())
}

fn two(store: &Store) -> (Tree, Tree) {
    let (a, b) = (tree(&[("f", noise(1, 4000)), ("same", noise(9, 500))]), tree(&[("f", noise(2, 6000)), ("same", noise(9, 500))]));
    commit(store, "a", &a);
    commit(store, "b", &b);
    (a, b)
}

#[test]
fn nothing_goes_while_it_is_needed() {
    let (_folder, store) = new_store();
    let (a, b) = two(&store);
    for apply in [false, true] {
        let report = prune(&store, apply).unwrap();
        assert_eq!((report.packs, report.packs_removed, report.bytes_unused), (2, 0, 0));
    }
    assert_eq!((restore(&store, "a").unwrap(), restore(&store, "b").unwrap()), (a, b));
    assert_eq!(store.generation().unwrap(), Some(0));
}

#[test]
fn only_packs_of_which_nothing_is_needed_go() {
    let (_folder, store) = new_store();
    let (a, b) = two(&store);
    store.remove_ref("a").unwrap();
    let partly = prune(&store, true).unwrap();
    assert_eq!((partly.packs_removed, partly.packs_rewritten), (0, 0), "b needs the chunk that both have");
    assert!(partly.bytes_unused >= 4000);
    assert_eq!(restore(&store, "b").unwrap(), b);
    store.remove_ref("b").unwrap();
    commit(&store, "c", &tree(&[("f", noise(3, 100))]));
    let dry = prune(&store, false).unwrap();
    assert_eq!((dry.packs, dry.packs_removed), (3, 2));
    assert_eq!(files_in(&store, "packs").len(), 3);
    let done = prune(&store, true).unwrap();
    assert_eq!(done, dry);
    assert_eq!(files_in(&store, "packs").len(), 1, "{done:?}");
    assert_eq!(files_in(&store, "trash").len(), 2);
    assert_eq!(store.generation().unwrap(), Some(1));
    // Content that went is stored anew, also by a handle that had the old index.
    commit(&store, "a", &a);
    assert_eq!(restore(&store, "a").unwrap(), a);
    assert!(restore(&Store::open(store.path()).unwrap(), "c").is_ok());
    // The next prune empties the trash.
    prune(&store, true).unwrap();
    assert!(files_in(&store, "trash").is_empty());
    assert_eq!(store.generation().unwrap(), Some(1));
}

#[test]
fn extra_roots_are_kept() {
    let (_folder, store) = new_store();
    let (a, _) = two(&store);
    let root = store.find_ref("a").unwrap().files.unwrap().root;
    store.remove_ref("a").unwrap();
    store.remove_ref("b").unwrap();
    let options = PruneOptions { apply: true, extra_roots: vec![root], ..PruneOptions::default() };
    assert_eq!(store.prune(&options, &Control::silent()).unwrap().packs_removed, 1);
    let session = store.session(&Control::silent()).unwrap();
    session.commit(&reference("again", root)).unwrap();
    assert_eq!(restore(&store, "again").unwrap(), a);
}

#[test]
fn row_3_a_prune_gives_way_to_captures_and_restores() {
    let (_folder, store) = new_store();
    two(&store);
    store.remove_ref("a").unwrap();
    store.remove_ref("b").unwrap();
    let session = store.session(&Control::silent()).unwrap();
    assert_eq!(prune(&store, true).unwrap_err().kind(), ErrorKind::Busy);
    assert!(prune(&store, false).is_ok());
    drop(session);
    let reader = store.reader(&Control::silent()).unwrap();
    assert_eq!(prune(&store, true).unwrap_err().kind(), ErrorKind::Busy);
    drop(reader);
    prune(&store, true).unwrap();
}

#[test]
fn row_7_a_missing_chunk_or_a_bad_ref_stops_it() {
    let (_folder, store) = new_store();
    two(&store);
    store.remove_ref("b").unwrap();
    let listing = files_in(&store, "packs");
    let bad = store.path().join("refs/bad");
    drop(sys::fs::write_unsynced(&bad, &[b"?"], 0o400).unwrap());
    for apply in [false, true] {
        let error = prune(&store, apply).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("refs/bad") && error.hint_text().unwrap().contains("store repair --set-aside-refs"), "{error:?}");
    }
    std::fs::remove_file(&bad).unwrap();
    for pack in &listing {
        let aside = store.path().join("aside");
        sys::fs::rename(pack, &aside).unwrap();
        let result = prune(&store, true);
        sys::fs::rename(&aside, pack).unwrap();
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.message().contains(".pack"), "{error}");
        }
    }
    assert!(restore(&store, "a").is_ok());
}

#[test]
fn row_7_content_that_is_missing_stops_it_too() {
    let (_folder, store) = new_store();
    let shared = noise(1, 4000);
    commit(&store, "a", &tree(&[("f", shared.clone())]));
    let pack = files_in(&store, "packs").remove(0);
    let files = tree(&[("f", shared), ("g", noise(2, 100))]);
    commit(&store, "b", &files);
    store.remove_ref("a").unwrap();
    // The manifest of b is whole; what it names is not.
    let aside = store.path().join("aside");
    sys::fs::rename(&pack, &aside).unwrap();
    for apply in [false, true] {
        let error = prune(&store, apply).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(pack.to_str().unwrap()), "{error}");
    }
    sys::fs::rename(&aside, &pack).unwrap();
    prune(&store, true).unwrap();
    assert_eq!(restore(&store, "b").unwrap(), files);
}

#[test]
fn row_14_packs_that_do_not_parse_are_left() {
    let (_folder, store) = new_store();
    two(&store);
    for (name, bytes) in [("00", &b""[..]), ("11", b"rubbish"), ("22", &[7; 5000])] {
        let path = store.path().join(format!("packs/{name}/{}.pack", name.repeat(32)));
        drop(sys::fs::write_unsynced(&path, &[bytes], 0o400).unwrap());
    }
    let report = prune(&store, true).unwrap();
    assert_eq!(report.packs_unreadable.len(), 3);
    assert_eq!(files_in(&store, "packs").len(), 5);
    assert!(restore(&store, "a").is_ok());
}

#[test]
fn row_9_an_unindexed_pack_is_garbage_not_corruption() {
    let (_folder, store) = new_store();
    let (a, _) = two(&store);
    let lost = files_in(&store, "index");
    commit(&store, "c", &tree(&[("f", noise(7, 900))]));
    store.remove_ref("c").unwrap();
    for path in files_in(&store, "index").into_iter().filter(|path| !lost.contains(path)) {
        std::fs::remove_file(path).unwrap();
    }
    let report = prune(&store, true).unwrap();
    assert_eq!((report.packs, report.packs_removed), (3, 1));
    assert_eq!(restore(&store, "a").unwrap(), a);
}

#[test]
fn it_sweeps_what_died_in_tmp() {
    let (_folder, store) = new_store();
    two(&store);
    drop(sys::fs::write_unsynced(&store.path().join("tmp/old.pack"), &[b"half"], 0o600).unwrap());
    prune(&store, false).unwrap();
    assert_eq!(files_in(&store, "tmp").len(), 1);
    prune(&store, true).unwrap();
    assert!(files_in(&store, "tmp").is_empty());
}

/// A user's file may hold the bytes of a manifest block; marking it as content must not stop the walk below the block.
#[test]
fn content_that_equals_a_manifest_block_hides_nothing() {
    let (_folder, store) = new_store();
    // What lies below the block is in a pack of its own, so that only the walk keeps it.
    commit(&store, "first", &tree(&[("deep", noise(1, 2000))]));
    let inner = tree(&[("deep", noise(1, 2000)), ("more", noise(2, 100))]);
    commit(&store, "inner", &inner);
    store.remove_ref("first").unwrap();
    let root = store.find_ref("inner").unwrap().files.unwrap().root;
    let block = store.reader(&Control::silent()).unwrap().blob(&root).unwrap();
    commit(&store, "aaa", &tree(&[("copy", block)]));
    assert_eq!(prune(&store, true).unwrap().packs_removed, 0);
    assert_eq!(restore(&store, "inner").unwrap(), inner);
}

#[test]
fn row_1_captures_beside_prunes_lose_nothing() {
    let (_folder, store) = new_store();
    let done = std::sync::atomic::AtomicBool::new(false);
    let kept: Vec<(String, Tree)> = std::thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let store = Store::open(store.path()).unwrap();
            let mut removed = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                match prune(&store, true) {
                    Ok(report) => removed += report.packs_removed,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            }
            removed
        });
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let store = &store;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for at in 0..25_u64 {
                        let files = tree(&[("own", noise(writer * 1000 + at % 5, 2000)), ("f", noise(writer * 100 + at, 300))]);
                        let id = format!("w{writer}-{at:03}");
                        commit(store, &id, &files);
                        if at % 3 == 0 { kept.push((id, files)) } else { store.remove_ref(&id).unwrap() }
                    }
                    kept
                })
            })
            .collect();
        let kept = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        pruner.join().unwrap();
        kept
    });
    for (id, files) in &kept {
        assert_eq!(&restore(&store, id).unwrap(), files, "{id}");
    }
    prune(&store, true).unwrap();
    for (id, files) in &kept {
        assert_eq!(&restore(&Store::open(store.path()).unwrap(), id).unwrap(), files, "{id}");
    }
}

#[test]
fn a_file_in_the_trash_does_not_keep_prunes_from_ending() {
    let (folder, store) = new_store();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    for file in [outside.join("mine"), store.path().join("trash/stray")] {
        drop(sys::fs::write_unsynced(&file, &[b"mine"], 0o600).unwrap());
    }
    std::os::unix::fs::symlink(&outside, store.path().join("trash/7")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("absent"), store.path().join("trash/8")).unwrap();
    prune(&store, true).unwrap();
    assert_eq!(std::fs::read_dir(store.path().join("trash")).unwrap().count(), 0);
    assert_eq!(sys::fs::read(&outside.join("mine")).unwrap(), b"mine", "no link is followed");
}

#[test]
fn the_generation_changes_even_after_the_last_number() {
    let (_folder, store) = new_store();
    overwrite(&store.path().join("gc_generation"), format!("{}\n", u64::MAX).as_bytes());
    std::fs::create_dir(store.path().join(format!("trash/{}", u64::MAX))).unwrap();
    let mut seen = vec![store.generation().unwrap()];
    for seed in 0..3 {
        commit(&store, "a", &tree(&[("f", noise(seed, 4000))]));
        store.remove_ref("a").unwrap();
        assert_eq!(prune(&store, true).unwrap().packs_removed, 1);
        let now = store.generation().unwrap();
        assert!(now.is_some() && !seen.contains(&now), "{now:?} {seen:?}");
        seen.push(now);
    }
}
