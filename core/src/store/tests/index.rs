use proptest::prelude::*;

use super::verifying::verify;
use super::*;
use crate::store::codec::Codec;
use crate::store::index::{Draft, Segment};
use crate::store::layout::PackId;
use crate::store::pack::{Blob, Kind};
use crate::store::{FindingKind, PruneOptions, RepairOptions, VerifyLevel};

const UUID: [u8; 16] = [9; 16];

fn blob(id: ChunkId, offset: u32) -> Blob {
    Blob { id, offset, stored: 10, plain: 4 << 20, kind: Kind::Data, codec: Codec::Zstd }
}

fn segment(ids: &[ChunkId]) -> Vec<u8> {
    let mut draft = Draft::default();
    for (at, half) in ids.chunks(ids.len().div_ceil(2).max(1)).enumerate() {
        let blobs: Vec<Blob> = half.iter().enumerate().map(|(at, id)| blob(*id, at as u32)).collect();
        draft.add_pack(PackId([at as u8; 32]), 1000, &blobs);
    }
    draft.encode(&UUID, 7)
}

#[test]
fn row_20_every_chunk_is_found_and_nothing_else() {
    for count in [0, 1, 2, 255, 3000] {
        let ids: Vec<ChunkId> = (0..count as u32).map(|at| ChunkId::of(&at.to_le_bytes().map(|byte| byte ^ 0x55))).collect();
        let segment = Segment::parse(segment(&ids), &UUID).unwrap();
        assert_eq!((segment.len(), segment.sequence), (count, 7));
        for id in &ids {
            let found: Vec<_> = segment.find(id).collect();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].plain, found[0].stored, found[0].pack_size), (4 << 20, 10, 1000));
        }
        assert_eq!(segment.find(&ChunkId([0xff; 32])).count() + segment.find(&ChunkId::of(b"else")).count(), 0);
    }
}

#[test]
fn any_flip_or_cut_of_a_segment_is_found() {
    let bytes = segment(&[ChunkId::of(b"a"), ChunkId::of(b"b"), ChunkId::of(b"c")]);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Segment::parse(damaged, &UUID).is_err());
        assert!(Segment::parse(bytes[..at].to_vec(), &UUID).is_err());
    }
    assert!(Segment::parse(bytes, &[8; 16]).is_err(), "of another store");
}

#[test]
fn rows_take_32_bytes() {
    let ids: Vec<ChunkId> = (1..=1000_u32).map(|at| ChunkId::of(&at.to_be_bytes())).collect();
    assert_eq!(segment(&ids).len(), 48 + 2 * 40 + 1000 * 32 + 32);
}

proptest! {
    #[test]
    fn any_segment_with_a_good_hash_parses_or_fails(packs in 0_u32..4, rows in 0_u64..6, body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = b"FLKINDX\n".to_vec();
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(packs.to_le_bytes());
        bytes.extend(rows.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(UUID);
        bytes.extend(body);
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        if let Ok(segment) = Segment::parse(bytes, &UUID) {
            let ids: Vec<ChunkId> = segment.rows().map(|row| { let mut id = [0; 32]; id[..16].copy_from_slice(&row.prefix); ChunkId(id) }).collect();
            for id in ids {
                let _ = segment.find(&id).count();
            }
        }
    }
}

fn many(store: &Store, count: u32) -> Vec<(String, Tree)> {
    let trees: Vec<_> = (0..count).map(|at| (format!("r{at:03}"), tree(&[("f", noise(u64::from(at), 400))]))).collect();
    for (id, files) in &trees {
        commit(store, id, files);
    }
    trees
}

#[test]
fn more_than_sixteen_segments_are_merged() {
    let (_folder, store) = new_store();
    let trees = many(&store, 40);
    assert!(files_in(&store, "index").len() <= 16);
    assert_eq!(files_in(&store, "packs").len(), 40);
    let fresh = Store::open(store.path()).unwrap();
    for (id, files) in &trees {
        assert_eq!(&restore(&fresh, id).unwrap(), files);
    }
    let view = fresh.view(true).unwrap();
    assert!(view.loose().is_empty() && view.damaged().is_empty());
}

#[test]
fn row_24_a_folder_in_the_place_of_a_segment_is_a_damaged_one_and_is_kept() {
    for others in [0, 2] {
        let (_folder, store) = new_store();
        let trees = many(&store, 1 + others);
        let segment = files_in(&store, "index").remove(0);
        std::fs::remove_file(&segment).unwrap();
        std::fs::create_dir(&segment).unwrap();
        drop(sys::fs::write_unsynced(&segment.join("notes"), &[b"mine"], 0o600).unwrap());
        let fresh = Store::open(store.path()).unwrap();
        assert_eq!(&restore(&fresh, &trees[0].0).unwrap(), &trees[0].1);
        assert_eq!(verify(&fresh, VerifyLevel::Refs).findings[0].kind, FindingKind::Index);
        match others {
            // The segment that takes its place has the same name.
            0 => drop(commit(&fresh, "again", &trees[0].1)),
            _ => assert_eq!(fresh.repair(&RepairOptions::default(), &Control::silent()).unwrap().segments_rebuilt, 1),
        }
        assert!(!segment.is_dir());
        assert_eq!(sys::fs::read(&files_in(&store, "quarantine")[0]).unwrap(), b"mine", "nothing of it was removed");
        assert!(verify(&Store::open(store.path()).unwrap(), VerifyLevel::Full).is_whole());
    }
}

#[test]
fn a_folder_in_the_place_of_the_generation_is_no_number() {
    let (_folder, store) = new_store();
    let trees = many(&store, 2);
    let path = store.path().join("gc_generation");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(store.generation().unwrap(), None);
    commit(&store, "again", &trees[0].1);
    assert_eq!(&restore(&store, &trees[1].0).unwrap(), &trees[1].1);
    assert!(!verify(&store, VerifyLevel::Refs).is_whole());
    store.prune(&PruneOptions { apply: true, ..PruneOptions::default() }, &Control::silent()).unwrap();
    assert!(store.generation().unwrap().is_some());
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn row_24_a_lost_empty_or_damaged_segment_is_rebuilt() {
    let (_folder, store) = new_store();
    let trees = many(&store, 3);
    let segments = files_in(&store, "index");
    assert_eq!(segments.len(), 3);
    std::fs::remove_file(&segments[0]).unwrap();
    overwrite(&segments[1], b"");
    let mut bytes = sys::fs::read(&segments[2]).unwrap();
    bytes[60] ^= 1;
    overwrite(&segments[2], &bytes);
    let fresh = Store::open(store.path()).unwrap();
    for (id, files) in &trees {
        assert_eq!(&restore(&fresh, id).unwrap(), files);
    }
    assert_eq!(files_in(&store, "index").len(), 2, "reading writes nothing");
    // The next writer persists what was rebuilt, and stores nothing twice.
    let report = commit(&fresh, "again", &trees[0].1);
    assert_eq!(report.bytes_new, 0);
    assert_eq!(files_in(&store, "index").len(), 1);
    let view = Store::open(store.path()).unwrap().view(true).unwrap();
    assert!(view.loose().is_empty() && view.damaged().is_empty());
    for (id, files) in &trees {
        assert_eq!(&restore(&store, id).unwrap(), files);
    }
}

#[test]
fn row_17_a_segment_under_another_name_is_not_trusted() {
    let (_folder, store) = new_store();
    let trees = many(&store, 1);
    let path = files_in(&store, "index").remove(0);
    let copy = path.with_file_name(format!("{}.idx", ChunkId::of(b"other")));
    sys::fs::rename(&path, &copy).unwrap();
    let fresh = Store::open(store.path()).unwrap();
    assert_eq!(fresh.view(false).unwrap().damaged().len(), 1);
    assert_eq!(restore(&fresh, &trees[0].0).unwrap(), trees[0].1);
}

#[test]
fn row_14_a_pack_without_index_and_footer_is_walked() {
    let (_folder, store) = new_store();
    let trees = many(&store, 1);
    std::fs::remove_file(files_in(&store, "index").remove(0)).unwrap();
    let pack = files_in(&store, "packs").remove(0);
    let mut bytes = sys::fs::read(&pack).unwrap();
    bytes.truncate(bytes.len() - 20);
    overwrite(&pack, &bytes);
    let fresh = Store::open(store.path()).unwrap();
    assert_eq!(restore(&fresh, &trees[0].0).unwrap(), trees[0].1);
    assert!(pack.exists());
}

#[test]
fn an_old_view_reloads_once() {
    let (_folder, store) = new_store();
    let reader = store.reader(&Control::silent()).unwrap();
    let other = Store::open(store.path()).unwrap();
    let bytes = noise(5, 500);
    commit(&other, "a", &tree(&[("f", bytes.clone())]));
    assert!(reader.has(&ChunkId::of(&bytes)).unwrap());
    assert_eq!(reader.chunk(&crate::store::ChunkRef { id: ChunkId::of(&bytes), len: 500 }).unwrap(), bytes);
    assert!(!reader.has(&ChunkId::of(b"nowhere")).unwrap());
}
