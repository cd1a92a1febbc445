use super::verifying::{forge_index, pair, verify};
use super::*;
use crate::ErrorKind;
use crate::store::{PruneOptions, RepairOptions, RepairReport, VerifyLevel};

fn repair(store: &Store) -> RepairReport {
    store.repair(&RepairOptions::default(), &Control::silent()).unwrap()
}

fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = sys::fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    overwrite(path, &bytes);
}

fn pack_with(store: &Store, needle: &[u8]) -> (PathBuf, usize) {
    let mut found = files_in(store, "packs").into_iter().filter_map(|path| {
        let bytes = sys::fs::read(&path).unwrap();
        bytes.windows(16).position(|window| window == &needle[..16]).map(|at| (path, at))
    });
    found.next().unwrap()
}

#[test]
fn a_whole_store_is_left_as_it_is() {
    let (_folder, store) = new_store();
    pair(&store);
    let before = files_in(&store, "");
    let report = repair(&store);
    assert!(report.is_whole());
    assert_eq!(report, RepairReport { packs: 2, ..RepairReport::default() });
    assert_eq!(files_in(&store, ""), before);
    assert_eq!(store.generation().unwrap(), Some(0));
}

#[test]
fn row_14_a_truncated_pack_gives_what_is_whole_and_goes_to_the_quarantine() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let (pack, at) = pack_with(&store, &b["f"]);
    let whole = sys::fs::read(&pack).unwrap();
    overwrite(&pack, &whole[..at + 6000]);
    let report = repair(&store);
    assert_eq!(report.quarantined.len(), 1, "{report:?}");
    assert_eq!(sys::fs::read(std::path::Path::new(&report.quarantined[0])).unwrap(), whole[..at + 6000], "nothing is deleted");
    assert_eq!(report.chunks_salvaged, 1);
    assert_eq!(report.losses.iter().map(|loss| loss.checkpoint.as_str()).collect::<Vec<_>>(), ["b"]);
    assert!(!report.is_whole());
    assert_eq!(restore(&store, "a").unwrap(), a);
    // The next one finds nothing to do, and the same loss.
    let again = repair(&store);
    assert_eq!((again.losses, again.quarantined.len(), again.chunks_salvaged), (report.losses, 0, 0));
    // The chunk that was saved is used when the same content comes again, which heals the checkpoint.
    assert!(commit(&store, "c", &b).bytes_new < 6000);
    assert_eq!((restore(&store, "b").unwrap(), restore(&store, "c").unwrap()), (b.clone(), b));
    assert!(repair(&store).is_whole());
    assert!(verify(&store, VerifyLevel::Drill).is_whole());
}

#[test]
fn row_15_a_missing_pack_is_reported_and_the_rest_is_usable() {
    let (_folder, store) = new_store();
    let (_, b) = pair(&store);
    let lost = files_in(&store, "packs").into_iter().find(|path| *path != pack_with(&store, &b["f"]).0).unwrap();
    std::fs::remove_file(&lost).unwrap();
    let report = repair(&store);
    assert_eq!(report.packs_missing, [lost.to_str().unwrap()]);
    let losses: Vec<_> = report.losses.iter().map(|loss| (loss.checkpoint.as_str(), loss.paths.clone())).collect();
    assert_eq!(losses, [("a", vec![String::new()]), ("b", vec!["same".to_owned()])]);
    assert!(!verify(&store, VerifyLevel::Full).is_whole(), "what is lost stays lost");
}

#[test]
fn row_18_row_20_a_wrong_index_is_rebuilt_from_the_footers() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    type Rows = Vec<crate::store::index::Row>;
    let changes: [fn(&mut Rows); 3] = [|rows| rows.clear(), |rows| rows[0].offset += 4, |rows| rows[0].prefix[3] ^= 1];
    for change in changes {
        forge_index(&store, change);
        let fresh = Store::open(store.path()).unwrap();
        assert!(!verify(&fresh, VerifyLevel::Metadata).is_whole());
        let report = repair(&fresh);
        assert!(report.is_whole() && report.segments_rebuilt == 1 && report.quarantined.is_empty(), "{report:?}");
        assert!(verify(&fresh, VerifyLevel::Full).is_whole());
        assert_eq!((restore(&fresh, "a").unwrap(), restore(&fresh, "b").unwrap()), (a.clone(), b.clone()));
    }
}

#[test]
fn row_24_row_17_damaged_and_lost_segments_are_rebuilt() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let segments = files_in(&store, "index");
    overwrite(&segments[0], b"");
    std::fs::remove_file(&segments[1]).unwrap();
    let report = repair(&Store::open(store.path()).unwrap());
    assert!(report.is_whole() && report.segments_rebuilt == 1);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
    assert_eq!(files_in(&store, "index").len(), 1);
    assert_eq!((restore(&store, "a").unwrap(), restore(&store, "b").unwrap()), (a, b));
}

#[test]
fn row_7_row_8_what_a_prune_should_not_have_taken_comes_back_from_the_trash() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let reference = sys::fs::read(&store.path().join("refs/a")).unwrap();
    store.remove_ref("a").unwrap();
    store.remove_ref("b").unwrap();
    let options = PruneOptions { apply: true, ..PruneOptions::default() };
    assert_eq!(store.prune(&options, &Control::silent()).unwrap().packs_removed, 2);
    // A ref comes back, as after a crash or from a copy.
    drop(sys::fs::write_unsynced(&store.path().join("refs/a"), &[&reference], 0o400).unwrap());
    assert_eq!(store.prune(&options, &Control::silent()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(files_in(&store, "trash").len(), 2, "what may be needed is not unlinked");
    let report = repair(&store);
    assert!(report.is_whole() && report.packs_put_back == 1, "{report:?}");
    assert_eq!(restore(&Store::open(store.path()).unwrap(), "a").unwrap(), a);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
    store.prune(&options, &Control::silent()).unwrap();
    assert!(files_in(&store, "trash").is_empty());
    assert_eq!(restore(&store, "a").unwrap(), a);
    drop(b);
}

#[test]
fn row_21_what_lies_in_the_quarantine_is_used_and_kept() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let packs = files_in(&store, "packs");
    for pack in &packs {
        sys::fs::rename(pack, &store.path().join("quarantine").join(pack.file_name().unwrap())).unwrap();
    }
    let report = repair(&store);
    assert!(report.is_whole() && report.chunks_salvaged == 6, "{report:?}");
    assert_eq!(files_in(&store, "quarantine").len(), 2);
    assert_eq!((restore(&store, "a").unwrap(), restore(&store, "b").unwrap()), (a, b));
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn row_23_unreadable_refs_stay_unless_they_are_to_be_set_aside() {
    let (_folder, store) = new_store();
    let (a, _) = pair(&store);
    let path = store.path().join("refs/b");
    overwrite(&path, b"");
    let report = repair(&store);
    assert_eq!(report.refs_unreadable, [path.to_str().unwrap()]);
    assert!(!report.is_whole() && path.exists());
    let prune = PruneOptions { apply: true, ..PruneOptions::default() };
    assert_eq!(store.prune(&prune, &Control::silent()).unwrap_err().kind(), ErrorKind::Corrupt);
    let report = store.repair(&RepairOptions { set_aside_refs: true, ..RepairOptions::default() }, &Control::silent()).unwrap();
    assert!(!report.is_whole() && !path.exists() && report.quarantined.len() == 1);
    assert!(repair(&store).is_whole());
    store.prune(&prune, &Control::silent()).unwrap();
    assert_eq!(restore(&store, "a").unwrap(), a);
    assert_eq!(files_in(&store, "quarantine").len(), 1);
}

#[test]
fn a_pack_without_its_header_or_footer_loses_nothing() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    for pack in files_in(&store, "packs") {
        flip(&pack, 3);
        let len = sys::fs::read(&pack).unwrap().len();
        flip(&pack, len - 3);
    }
    assert!(!verify(&store, VerifyLevel::Metadata).is_whole());
    let report = repair(&store);
    assert!(report.is_whole() && report.chunks_salvaged == 6 && report.quarantined.len() == 2, "{report:?}");
    assert_eq!((restore(&store, "a").unwrap(), restore(&store, "b").unwrap()), (a, b));
    assert!(verify(&store, VerifyLevel::Full).is_whole());
    assert_eq!(store.generation().unwrap(), Some(1), "caches must not believe what was moved");
}

#[test]
fn missing_folders_and_a_lost_generation_are_made_anew() {
    let (_folder, store) = new_store();
    let (a, _) = pair(&store);
    overwrite(&store.path().join("gc_generation"), b"?");
    for folder in ["tmp", "quarantine", "trash", "packs/00"] {
        std::fs::remove_dir(store.path().join(folder)).ok();
    }
    assert!(!verify(&store, VerifyLevel::Refs).is_whole());
    let report = repair(&store);
    assert!(report.is_whole() && report.remade.len() >= 4, "{report:?}");
    assert!(store.generation().unwrap().unwrap() > 1_000_000_000, "above whatever it was");
    assert!(verify(&store, VerifyLevel::Refs).is_whole());
    assert_eq!(restore(&store, "a").unwrap(), a);
}

#[test]
fn an_empty_folder_is_no_stand_in_for_lost_refs() {
    let (_folder, store) = new_store();
    pair(&store);
    let (refs, aside) = (store.path().join("refs"), store.path().join("aside"));
    sys::fs::rename_new(&refs, &aside).unwrap();
    let error = store.repair(&RepairOptions::default(), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("refs"), "{error}");
    assert!(!refs.exists());
    assert!(store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).is_err());
    sys::fs::rename_new(&aside, &refs).unwrap();
    assert!(repair(&store).is_whole());
}

#[test]
fn it_gives_way_to_captures_and_to_another_repair() {
    let (_folder, store) = new_store();
    let (_, b) = pair(&store);
    let (pack, at) = pack_with(&store, &b["f"]);
    flip(&pack, at);
    let session = store.session(&Control::silent()).unwrap();
    let once = RepairOptions { attempts: 1, ..RepairOptions::default() };
    assert_eq!(store.repair(&once, &Control::silent()).unwrap_err().kind(), ErrorKind::Busy);
    assert!(pack.exists());
    drop(session);
    let other = crate::store::prune::only_one(store.layout()).unwrap();
    assert_eq!(store.repair(&once, &Control::silent()).unwrap_err().kind(), ErrorKind::Busy);
    drop(other);
    let report = repair(&store);
    assert_eq!(report.losses.len(), 1);
    assert_eq!(report.losses[0].paths, ["f"]);
}
