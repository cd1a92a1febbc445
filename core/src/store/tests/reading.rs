use super::*;
use crate::ErrorKind;
use crate::store::ChunkRef;

fn one(store: &Store, bytes: &[u8]) -> ChunkRef {
    commit(store, "a", &tree(&[("f", bytes.to_vec())]));
    ChunkRef { id: ChunkId::of(bytes), len: bytes.len() as u32 }
}

#[test]
fn row_39_a_damaged_chunk_is_an_error_that_names_pack_and_chunk() {
    let (_folder, store) = new_store();
    let bytes = noise(1, 3000);
    let chunk = one(&store, &bytes);
    let pack = files_in(&store, "packs").remove(0);
    let whole = sys::fs::read(&pack).unwrap();
    let mut damaged = whole.clone();
    let at = whole.windows(16).position(|window| window == &bytes[..16]).unwrap();
    damaged[at] ^= 1;
    overwrite(&pack, &damaged);
    let reader = store.reader(&Control::silent()).unwrap();
    let errors: Vec<crate::Error> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| reader.chunk(&chunk).unwrap_err())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(pack.to_str().unwrap()) && error.message().contains(&chunk.id.to_string()), "{error}");
    }
    // Put back, the same reader reads it.
    overwrite(&pack, &whole);
    assert_eq!(reader.chunk(&chunk).unwrap(), bytes);
}

#[test]
fn row_18_another_copy_is_used_when_one_is_bad() {
    let (_folder, store) = new_store();
    let bytes = noise(1, 3000);
    let chunk = one(&store, &bytes);
    // A second copy: stored while the first pack was out of sight.
    let first = files_in(&store, "packs").remove(0);
    let aside = store.path().join("aside");
    sys::fs::rename(&first, &aside).unwrap();
    commit(&store, "b", &tree(&[("f", bytes.clone()), ("g", noise(2, 10))]));
    sys::fs::rename(&aside, &first).unwrap();
    let packs = files_in(&store, "packs");
    assert_eq!(packs.len(), 2);
    for pack in &packs {
        let whole = sys::fs::read(pack).unwrap();
        let mut damaged = whole.clone();
        let at = whole.windows(16).position(|window| window == &bytes[..16]).unwrap();
        damaged[at] ^= 1;
        overwrite(pack, &damaged);
        assert_eq!(store.reader(&Control::silent()).unwrap().chunk(&chunk).unwrap(), bytes);
        std::fs::remove_file(pack).unwrap();
        assert_eq!(store.reader(&Control::silent()).unwrap().chunk(&chunk).unwrap(), bytes);
        overwrite_new(pack, &whole);
    }
}

fn overwrite_new(path: &std::path::Path, bytes: &[u8]) {
    drop(sys::fs::write_unsynced(path, &[bytes], 0o400).unwrap());
}

#[test]
fn row_15_a_missing_pack_is_a_typed_error_and_other_files_restore() {
    let (_folder, store) = new_store();
    let lost = tree(&[("f", noise(1, 3000))]);
    commit(&store, "lost", &lost);
    let pack = files_in(&store, "packs").remove(0);
    let kept = tree(&[("g", noise(2, 3000))]);
    commit(&store, "kept", &kept);
    std::fs::remove_file(&pack).unwrap();
    for store in [store.clone(), Store::open(store.path()).unwrap()] {
        let error = restore(&store, "lost").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(pack.to_str().unwrap()), "{error}");
        assert_eq!(restore(&store, "kept").unwrap(), kept);
    }
}

#[test]
fn row_26_a_short_pack_is_an_error_not_a_panic() {
    let (_folder, store) = new_store();
    let chunk = one(&store, &noise(1, 3000));
    let pack = files_in(&store, "packs").remove(0);
    let whole = sys::fs::read(&pack).unwrap();
    for len in [0, 1, 31, 32, 90, whole.len() - 1] {
        overwrite(&pack, &whole[..len]);
        let error = store.reader(&Control::silent()).unwrap().chunk(&chunk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
    }
}

#[test]
fn a_wrong_length_is_not_believed() {
    let (_folder, store) = new_store();
    let chunk = one(&store, &noise(1, 3000));
    let reader = store.reader(&Control::silent()).unwrap();
    let wrong = ChunkRef { len: 2999, ..chunk };
    assert_eq!(reader.chunk(&wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    let giant = ChunkRef { id: ChunkId::ZERO, len: u32::MAX };
    assert_eq!(reader.chunk(&giant).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Every byte of a small store, flipped: content comes back exactly, or an error comes.
#[test]
fn flips_never_give_wrong_bytes() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 300)), ("g", b"text ".repeat(100))]);
    commit(&store, "a", &files);
    let targets: Vec<PathBuf> =
        ["packs", "index", "refs"].iter().flat_map(|folder| files_in(&store, folder)).chain([store.path().join("FORMAT")]).collect();
    let mut survived = 0;
    for path in targets {
        let whole = sys::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            overwrite(&path, &damaged);
            if let Ok(found) = Store::open(store.path()).and_then(|store| restore(&store, "a")) {
                assert_eq!(found, files, "{} at {at}", path.display());
                survived += 1;
            }
        }
        overwrite(&path, &whole);
    }
    assert!(survived > 0, "a damaged index is read around");
    assert_eq!(restore(&store, "a").unwrap(), files);
}
