use super::crash::content;
use super::*;
use crate::store::{FindingKind, PruneOptions, VerifyLevel, VerifyOptions, VerifyReport};
use crate::{CancelToken, ErrorKind};

pub(super) fn verify(store: &Store, level: VerifyLevel) -> VerifyReport {
    let scratch = tempfile::tempdir().unwrap();
    let options = VerifyOptions { level, scratch: Some(scratch.path().to_owned()), ..VerifyOptions::default() };
    let report = store.verify(&options, &Control::silent()).unwrap();
    assert!(sys::fs::names(scratch.path()).unwrap().is_empty(), "a drill leaves nothing");
    report
}

const LEVELS: [VerifyLevel; 5] = [VerifyLevel::Refs, VerifyLevel::Metadata, VerifyLevel::Packs, VerifyLevel::Full, VerifyLevel::Drill];

/// Two checkpoints in packs of their own that share a chunk which is in the first.
pub(super) fn pair(store: &Store) -> (Tree, Tree) {
    let (a, b) = (
        tree(&[("d/f", noise(1, 4000)), ("same", noise(9, 500)), ("text", b"words ".repeat(300))]),
        tree(&[("f", noise(2, 6000)), ("same", noise(9, 500))]),
    );
    commit(store, "a", &a);
    commit(store, "b", &b);
    (a, b)
}

/// Everything in a store but the files that hold nothing.
fn listing(store: &Store) -> Vec<(PathBuf, Vec<u8>)> {
    files_in(store, "").into_iter().map(|path| (path.clone(), sys::fs::read(&path).unwrap())).collect()
}

#[test]
fn a_whole_store_is_whole_at_every_level_and_is_not_written() {
    let (_folder, store) = new_store();
    pair(&store);
    let before = listing(&store);
    for level in LEVELS {
        let report = verify(&store, level);
        assert!(report.is_whole(), "{report:?}");
        assert_eq!((report.checkpoints, report.packs), (2, 2));
        assert_eq!(report.packs_read, if level >= VerifyLevel::Packs { 2 } else { 0 });
        assert_eq!(report.drilled, if level == VerifyLevel::Drill { 2 } else { 0 });
        assert!(serde_json::to_string(&report).unwrap().contains("\"findings\":[]"));
    }
    assert_eq!(listing(&store), before);
}

#[test]
fn a_damaged_chunk_names_its_pack_its_checkpoints_and_its_paths() {
    let (_folder, store) = new_store();
    let (a, _) = pair(&store);
    // The same manifest once more.
    commit(&store, "again", &a);
    let packs = files_in(&store, "packs");
    let of = |bytes: &[u8]| {
        let found = packs.iter().find(|path| sys::fs::read(path).unwrap().windows(16).any(|window| window == &bytes[..16]));
        found.unwrap().clone()
    };
    let pack = of(&a["same"]);
    let mut bytes = sys::fs::read(&pack).unwrap();
    let at = bytes.windows(16).position(|window| window == &a["same"][..16]).unwrap();
    bytes[at] ^= 1;
    overwrite(&pack, &bytes);
    for level in [VerifyLevel::Refs, VerifyLevel::Metadata] {
        assert!(verify(&store, level).is_whole());
    }
    for level in [VerifyLevel::Packs, VerifyLevel::Full] {
        let report = verify(&store, level);
        assert_eq!(report.findings.len(), 1, "{report:?}");
        let finding = &report.findings[0];
        assert_eq!((finding.kind, finding.path.as_str()), (FindingKind::PackDamaged, pack.to_str().unwrap()));
        assert_eq!(finding.checkpoints, ["a", "again", "b"], "the chunk is shared");
        let lost: Vec<_> = report.losses.iter().map(|loss| (loss.checkpoint.as_str(), loss.half, loss.lost, loss.paths.clone())).collect();
        assert_eq!(lost, ["a", "again", "b"].map(|id| (id, "files", 1, vec!["same".to_owned()])));
    }
    assert_eq!(verify(&store, VerifyLevel::Drill).drilled, 0);
}

#[test]
fn row_15_a_missing_pack_is_found_at_once_with_what_it_takes_along() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    for pack in files_in(&store, "packs") {
        let aside = store.path().join("aside");
        sys::fs::rename(&pack, &aside).unwrap();
        for level in LEVELS {
            let report = verify(&store, level);
            let finding = report.findings.iter().find(|found| found.kind == FindingKind::PackMissing).unwrap();
            assert_eq!(finding.path, pack.to_str().unwrap());
            assert!(!finding.checkpoints.is_empty() && !report.losses.is_empty(), "{report:?}");
        }
        sys::fs::rename(&aside, &pack).unwrap();
    }
    assert_eq!((restore(&store, "a").unwrap(), restore(&store, "b").unwrap()), (a, b));
}

#[test]
fn row_17_a_segment_under_another_name_is_a_finding() {
    let (_folder, store) = new_store();
    pair(&store);
    let path = files_in(&store, "index").remove(0);
    let other = path.with_file_name(format!("{}.idx", "ab".repeat(32)));
    sys::fs::rename(&path, &other).unwrap();
    let report = verify(&store, VerifyLevel::Refs);
    assert_eq!(report.findings.len(), 1);
    assert_eq!((report.findings[0].kind, report.findings[0].path.as_str()), (FindingKind::Index, other.to_str().unwrap()));
    assert!(report.losses.is_empty(), "its packs are read by their footers");
}

/// A segment with a good hash that says something else than the packs, as a defect of the writer would leave it.
pub(super) fn forge_index(store: &Store, change: impl Fn(&mut Vec<crate::store::index::Row>)) -> PathBuf {
    let path = files_in(store, "index").remove(0);
    let uuid = store.uuid_bytes();
    let segment = crate::store::index::Segment::parse(sys::fs::read(&path).unwrap(), uuid).unwrap();
    let mut rows: Vec<_> = segment.rows().collect();
    change(&mut rows);
    rows.sort_unstable();
    let bytes = crate::store::index::Segment::encode(uuid, 9, segment.packs(), &rows);
    let name = format!("{}.idx", crate::store::chunk::hex(bytes.last_chunk().unwrap()));
    std::fs::remove_file(&path).unwrap();
    let path = path.with_file_name(name);
    drop(sys::fs::write_unsynced(&path, &[&bytes], 0o400).unwrap());
    path
}

#[test]
fn row_20_a_segment_that_says_something_else_than_the_packs_is_a_finding() {
    let (_folder, store) = new_store();
    pair(&store);
    let path = forge_index(&store, |rows| rows.truncate(rows.len() - 1));
    let store = Store::open(store.path()).unwrap();
    let report = verify(&store, VerifyLevel::Metadata);
    assert_eq!((report.findings[0].kind, report.findings[0].path.as_str()), (FindingKind::Index, path.to_str().unwrap()));
    let path = forge_index(&store, |rows| rows[0].offset += 1);
    let report = verify(&Store::open(store.path()).unwrap(), VerifyLevel::Metadata);
    assert!(report.findings.iter().any(|found| found.kind == FindingKind::Index && found.path == path.to_str().unwrap()), "{report:?}");
    assert!(!report.losses.is_empty(), "what it does not find cannot be restored: {report:?}");
}

#[test]
fn a_budget_comes_round_to_every_pack() {
    let (_folder, store) = new_store();
    for at in 0..5_u64 {
        commit(&store, &format!("r{at}"), &tree(&[("f", noise(at, 2000))]));
    }
    let options = VerifyOptions { level: VerifyLevel::Full, budget: Some(1), ..VerifyOptions::default() };
    let daily = || store.verify(&options, &Control::silent()).unwrap();
    for left in [4, 4, 4, 4] {
        let report = daily();
        assert_eq!((report.packs_read, report.packs_left), (1, left));
    }
    // The last one that was not read yet is the one that is damaged.
    let memory = String::from_utf8(sys::fs::read(&store.path().join("verified")).unwrap()).unwrap();
    let pack =
        files_in(&store, "packs").into_iter().find(|path| !memory.contains(&path.file_stem().unwrap().to_string_lossy()[..])).unwrap();
    let mut bytes = sys::fs::read(&pack).unwrap();
    bytes[100] ^= 1;
    overwrite(&pack, &bytes);
    for _ in 0..2 {
        let report = daily();
        assert_eq!(report.findings.len(), 1, "a damaged pack comes first again: {report:?}");
    }
    bytes[100] ^= 1;
    overwrite(&pack, &bytes);
    assert!(daily().is_whole());
    // A memory that does not parse is none.
    overwrite(&store.path().join("verified"), b"rubbish");
    assert!(daily().is_whole());
    // What was read without decoding was not read in full.
    let quick = VerifyOptions { level: VerifyLevel::Packs, budget: Some(u64::MAX), ..VerifyOptions::default() };
    assert_eq!(store.verify(&quick, &Control::silent()).unwrap().packs_read, 5);
    assert_eq!(daily().packs_read, 1);
}

#[test]
fn a_drill_gives_each_checkpoint_to_the_caller() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let scratch = tempfile::tempdir().unwrap();
    let options = VerifyOptions { scratch: Some(scratch.path().to_owned()), ..VerifyOptions::default() };
    let mut seen = Vec::new();
    let report = store
        .drill(
            &options,
            &mut |drilled| {
                let files = drilled.files.clone().unwrap();
                let wanted = if drilled.checkpoint.id == "a" { &a } else { &b };
                for (path, bytes) in wanted {
                    assert_eq!(&sys::fs::read(&files.join(path)).unwrap(), bytes);
                }
                seen.push(drilled.checkpoint.id.clone());
                if seen.len() == 1 { Err(crate::Error::new(ErrorKind::ServerStart, "it did not start")) } else { Ok(()) }
            },
            &Control::silent(),
        )
        .unwrap();
    assert_eq!(seen, ["a", "b"]);
    assert_eq!(report.drilled, 1);
    assert_eq!((report.findings[0].kind, &report.findings[0].checkpoints[..]), (FindingKind::Drill, &["a".to_owned()][..]));
    let error = store.drill(&VerifyOptions::default(), &mut |_| Ok(()), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn drills_with_a_budget_come_round_to_every_checkpoint() {
    let (_folder, store) = new_store();
    pair(&store);
    commit(&store, "c", &content("c"));
    let scratch = tempfile::tempdir().unwrap();
    let daily = |budget, fails: &str| {
        let options = VerifyOptions { budget: Some(budget), scratch: Some(scratch.path().to_owned()), ..VerifyOptions::default() };
        let mut seen = Vec::new();
        let mut started = |drilled: &crate::store::Drilled<'_>| {
            seen.push(drilled.checkpoint.id.clone());
            let failed = || Err(crate::Error::new(ErrorKind::ServerStart, "it did not start"));
            if drilled.checkpoint.id == fails { failed() } else { Ok(()) }
        };
        let report = Store::open(store.path()).unwrap().drill(&options, &mut started, &Control::silent()).unwrap();
        assert_eq!((report.drilled + u64::from(!report.is_whole()), report.drills_left), (seen.len() as u64, 3 - seen.len() as u64));
        seen
    };
    // The newest of those that were never restored, then those that were not for the longest.
    assert_eq!([daily(1, ""), daily(1, ""), daily(1, ""), daily(1, "")], [["c"], ["b"], ["a"], ["c"]]);
    // One that failed stays among the first.
    assert_eq!([daily(1, "b"), daily(1, "b"), daily(1, ""), daily(1, "")], [["b"], ["b"], ["b"], ["a"]]);
    assert_eq!(daily(1 << 30, "").len(), 3);
    store.remove_ref("b").unwrap();
    let quick = VerifyOptions { level: VerifyLevel::Packs, budget: Some(1), ..VerifyOptions::default() };
    store.verify(&quick, &Control::silent()).unwrap();
    let remembered = String::from_utf8(sys::fs::read(&store.path().join("verified")).unwrap()).unwrap();
    assert!(remembered.contains("\na drill ") && !remembered.contains("\nb drill "), "{remembered}");
    assert!(sys::fs::names(scratch.path()).unwrap().is_empty());
}

#[test]
fn it_can_be_cancelled() {
    let (_folder, store) = new_store();
    pair(&store);
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = VerifyOptions { level: VerifyLevel::Full, ..VerifyOptions::default() };
    assert_eq!(store.verify(&options, &Control::new(cancel, None)).unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn parts_of_the_stats_add_up() {
    let (_folder, store) = new_store();
    let (a, b) = pair(&store);
    let stats = store.stats(&Control::silent()).unwrap();
    assert_eq!(stats.checkpoints.iter().map(|of| of.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(stats.unique_bytes, stats.checkpoints.iter().map(|of| of.unique_bytes).sum::<u64>());
    assert_eq!(stats.stored_bytes, stats.checkpoints.iter().map(|of| of.stored_bytes).sum::<u64>());
    let plain = |tree: &Tree| tree.values().map(|bytes| bytes.len() as u64).sum::<u64>();
    let first = &stats.checkpoints[0];
    assert!(first.unique_bytes > plain(&a) && first.unique_bytes < plain(&a) + 1000, "content and one block: {first:?}");
    let second = &stats.checkpoints[1];
    assert!(second.unique_bytes > plain(&b) - 500 && second.unique_bytes < plain(&b), "without what both have: {second:?}");
    assert!(first.stored_bytes < first.unique_bytes, "text is compressed");
    let on_disk: u64 = files_in(&store, "packs").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((stats.packs, stats.pack_bytes, stats.segments), (2, on_disk, 2));
    assert!(stats.stored_bytes < stats.pack_bytes && stats.index_memory > 0 && stats.chunks == 6);
    store.remove_ref("a").unwrap();
    store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap();
    let after = store.stats(&Control::silent()).unwrap();
    assert!(after.trash_bytes > 0 && after.stored_bytes < stats.stored_bytes);
}
