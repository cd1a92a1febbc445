use super::verifying::{pair, verify};
use super::*;
use crate::store::{PruneOptions, PruneReport, VerifyLevel};
use crate::{CancelToken, ErrorKind, Progress, ProgressSink};

fn options(apply: bool) -> PruneOptions {
    PruneOptions { apply, ..PruneOptions::default() }
}

fn prune(store: &Store, apply: bool) -> PruneReport {
    store.prune(&options(apply), &Control::silent()).unwrap()
}

/// A store whose first pack is needed in part only.
fn partly() -> (tempfile::TempDir, Store, Tree) {
    let (folder, store) = new_store();
    let (_, b) = pair(&store);
    store.remove_ref("a").unwrap();
    (folder, store, b)
}

#[test]
fn what_is_needed_of_a_wasteful_pack_moves_to_a_new_one() {
    let (_folder, store, b) = partly();
    let before = files_in(&store, "packs");
    let dry = prune(&store, false);
    assert_eq!(files_in(&store, "packs"), before);
    let done = prune(&store, true);
    assert_eq!(done, dry, "what is told is what is done");
    assert_eq!((done.packs_removed, done.packs_rewritten, done.packs_written, done.bytes_unused), (0, 1, 1, 0));
    let after = files_in(&store, "packs");
    let new: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
    assert_eq!((after.len(), new.len()), (2, 1));
    assert_eq!(new[0].metadata().unwrap().len(), done.bytes_written);
    assert_eq!(files_in(&store, "trash").iter().map(|path| path.metadata().unwrap().len()).sum::<u64>(), done.bytes_rewritten);
    for store in [store.clone(), Store::open(store.path()).unwrap()] {
        assert_eq!(restore(&store, "b").unwrap(), b);
    }
    assert!(verify(&store, VerifyLevel::Full).is_whole());
    assert_eq!(Store::open(store.path()).unwrap().view(true).unwrap().loose().len(), 0, "the index knows all");
    let again = prune(&store, true);
    assert_eq!((again.packs_rewritten, again.packs_removed, again.trash_emptied), (0, 0, done.bytes_rewritten));
    assert!(files_in(&store, "trash").is_empty());
}

/// A prune that gave way after it had rewritten left second copies. The next one may choose the first ones and make the same
/// pack again, byte for byte: it must not go for being a second copy.
#[test]
fn row_1_a_pack_that_rewriting_makes_again_stays() {
    let (_folder, store) = new_store();
    // Two sessions at once store a chunk twice.
    let (first, second) = (store.session(&Control::silent()).unwrap(), store.session(&Control::silent()).unwrap());
    let a = tree(&[("large", noise(1, 100_000)), ("own", noise(2, 20_000))]);
    let b = tree(&[("large", noise(1, 100_000)), ("own", noise(3, 5_000))]);
    commit_in(first, "a", &a).unwrap();
    commit_in(second, "b", &b).unwrap();
    let before = files_in(&store, "packs").len();
    let reader = store.reader(&Control::silent()).unwrap();
    let busy = store.prune(&PruneOptions { attempts: 1, ..options(true) }, &Control::silent()).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    drop(reader);
    assert!(files_in(&store, "packs").len() > before, "it had rewritten one");
    for _ in 0..3 {
        prune(&store, true);
        assert_eq!(restore(&store, "a").unwrap(), a);
        assert_eq!(restore(&store, "b").unwrap(), b);
        assert!(verify(&store, VerifyLevel::Full).is_whole());
    }
    let last = prune(&store, true);
    assert_eq!((last.packs_removed, last.packs_rewritten, last.trash_emptied), (0, 0, 0), "it comes to rest");
}

#[test]
fn the_knobs_say_what_is_worth_it() {
    let (_folder, store, _) = partly();
    let with = |change: fn(&mut PruneOptions)| {
        let mut options = options(false);
        change(&mut options);
        store.prune(&options, &Control::silent()).unwrap()
    };
    assert_eq!(with(|_| ()).packs_rewritten, 1);
    let tolerant = with(|options| options.tolerated_in_pack = 0.95);
    assert_eq!((tolerant.packs_rewritten, tolerant.bytes_left), (0, 0));
    assert!(tolerant.bytes_unused > 4000);
    assert_eq!(with(|options| options.tolerated_in_all = 0.9).packs_rewritten, 0);
    let capped = with(|options| options.most_rewritten = 1000);
    assert_eq!(capped.packs_rewritten, 0);
    assert!(capped.bytes_left > 4000);
}

#[test]
fn row_2_a_capture_during_a_prune_keeps_what_it_relies_on() {
    let (_folder, store, b) = partly();
    let old = files_in(&store, "packs");
    // It finds in the old pack what the prune, which begins now, counts as not needed.
    let again = tree(&[("d/f", noise(1, 4000))]);
    let session = store.session(&Control::silent()).unwrap();
    assert!(session.has(&ChunkId::of(&again["d/f"])).unwrap());
    std::thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let store = Store::open(store.path()).unwrap();
            store.prune(&PruneOptions { attempts: 1000, ..options(true) }, &Control::silent())
        });
        while files_in(&store, "packs") == old {
            std::thread::yield_now();
        }
        let mut manifest = session.manifest();
        let read = session.put_bytes(&again["d/f"], Cutting::Content).unwrap();
        manifest.push(&file_entry("d/f", read.size, read.chunks)).unwrap();
        let root = manifest.finish().unwrap();
        assert!(session.commit(&reference("again", root)).unwrap().bytes_new < 1000);
        let report = pruner.join().unwrap().unwrap();
        assert_eq!((report.packs_rewritten, report.packs_removed, report.packs_written), (0, 0, 1), "the old pack stays: {report:?}");
    });
    assert_eq!(restore(&store, "again").unwrap(), again);
    assert_eq!(restore(&store, "b").unwrap(), b);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn row_1_a_prune_that_did_not_come_to_its_end_is_finished_by_the_next() {
    let (_folder, store, b) = partly();
    let session = store.session(&Control::silent()).unwrap();
    let busy = store.prune(&PruneOptions { attempts: 1, ..options(true) }, &Control::silent()).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.hint_text().is_some());
    drop(session);
    assert_eq!(files_in(&store, "packs").len(), 3, "written, and nothing removed");
    assert_eq!(restore(&store, "b").unwrap(), b);
    let dry = prune(&store, false);
    let done = prune(&store, true);
    assert_eq!(done, dry);
    assert_eq!((done.packs_removed, done.packs_written), (1, 0), "nothing is written twice: {done:?}");
    assert_eq!(files_in(&store, "packs").len(), 2);
    assert_eq!(restore(&store, "b").unwrap(), b);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn a_damaged_copy_does_not_stand_for_a_whole_one() {
    let (_folder, store, b) = partly();
    let session = store.session(&Control::silent()).unwrap();
    store.prune(&PruneOptions { attempts: 1, ..options(true) }, &Control::silent()).unwrap_err();
    drop(session);
    // Of the shared chunk there are two copies now. Damage the new one.
    let shared = &b["same"];
    let with_shared: Vec<PathBuf> = files_in(&store, "packs")
        .into_iter()
        .filter(|path| sys::fs::read(path).unwrap().windows(16).any(|window| window == &shared[..16]))
        .collect();
    let new = with_shared.iter().min_by_key(|path| path.metadata().unwrap().len()).unwrap();
    assert_eq!(with_shared.len(), 2);
    let mut bytes = sys::fs::read(new).unwrap();
    let at = bytes.windows(16).position(|window| window == &shared[..16]).unwrap();
    bytes[at] ^= 1;
    overwrite(new, &bytes);
    prune(&store, true);
    prune(&store, true);
    assert_eq!(restore(&Store::open(store.path()).unwrap(), "b").unwrap(), b);
}

#[test]
fn row_14_a_pack_with_a_damaged_chunk_is_not_rewritten() {
    let (_folder, store, b) = partly();
    let shared = &b["same"];
    let (pack, at) = files_in(&store, "packs")
        .into_iter()
        .find_map(|path| Some((path.clone(), sys::fs::read(&path).unwrap().windows(16).position(|window| window == &shared[..16])?)))
        .unwrap();
    let mut bytes = sys::fs::read(&pack).unwrap();
    bytes[at] ^= 1;
    overwrite(&pack, &bytes);
    let report = prune(&store, true);
    assert_eq!((report.packs_rewritten, report.packs_written), (0, 0));
    assert_eq!(report.packs_unreadable, [pack.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(sys::fs::read(&pack).unwrap(), bytes);
    assert!(files_in(&store, "tmp").is_empty());
}

#[test]
fn row_6_row_10_a_plan_is_worth_nothing_after_another_prune() {
    let (_folder, store, b) = partly();
    let old = files_in(&store, "packs");
    let reader = store.reader(&Control::silent()).unwrap();
    std::thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let store = Store::open(store.path()).unwrap();
            store.prune(&PruneOptions { attempts: 1000, ..options(true) }, &Control::silent())
        });
        while files_in(&store, "packs") == old {
            std::thread::yield_now();
        }
        assert_eq!(store.prune(&options(true), &Control::silent()).unwrap_err().kind(), ErrorKind::Busy, "one at a time");
        // As if this one had been suspended while others were at it.
        overwrite(&store.path().join("gc_generation"), b"7\n");
        drop(reader);
        assert_eq!(pruner.join().unwrap().unwrap_err().kind(), ErrorKind::Busy);
    });
    assert!(old.iter().all(|path| path.exists()));
    prune(&store, true);
    assert_eq!(store.generation().unwrap(), Some(8));
    assert_eq!(restore(&store, "b").unwrap(), b);
}

#[test]
fn row_12_pack_folders_are_never_removed_and_are_made_again() {
    let (_folder, store, b) = partly();
    prune(&store, true);
    store.remove_ref("b").unwrap();
    prune(&store, true);
    prune(&store, true);
    assert_eq!(sys::fs::names(&store.path().join("packs")).unwrap().len(), 256);
    for name in sys::fs::names(&store.path().join("packs")).unwrap() {
        std::fs::remove_dir(store.path().join("packs").join(name)).unwrap();
    }
    commit(&store, "c", &b);
    assert_eq!(restore(&store, "c").unwrap(), b);
    prune(&store, true);
}

#[test]
fn what_goes_can_be_unlinked_at_once() {
    let (_folder, store, b) = partly();
    let report = store.prune(&PruneOptions { empty_trash: true, ..options(true) }, &Control::silent()).unwrap();
    assert!(report.unlinked && report.packs_rewritten == 1);
    assert!(files_in(&store, "trash").is_empty());
    assert_eq!(restore(&store, "b").unwrap(), b);
}

/// Cancels at the n-th report.
struct After(std::sync::atomic::AtomicUsize, CancelToken);

impl ProgressSink for After {
    fn report(&self, _: Progress<'_>) {
        use std::sync::atomic::Ordering;
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1) {
            self.1.cancel();
        }
    }
}

#[test]
fn it_can_be_cancelled_at_any_step() {
    let (_folder, store, b) = partly();
    let mut cancelled = 0;
    for n in 1.. {
        let token = CancelToken::new();
        let control = Control::new(token.clone(), Some(std::sync::Arc::new(After(n.into(), token))));
        let result = store.prune(&options(true), &control);
        assert_eq!(restore(&store, "b").unwrap(), b);
        assert!(files_in(&store, "tmp").is_empty());
        match result {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled),
        }
        cancelled += 1;
    }
    assert!(cancelled >= 3, "{cancelled}");
    assert_eq!(files_in(&store, "packs").len(), 2);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}
