//! Every byte of a small store flipped, every kind of file cut, emptied, exchanged and taken away: found at the level that is
//! named, never wrong bytes, never a panic.

use super::verifying::verify;
use super::*;
use crate::store::{RepairOptions, VerifyLevel};

fn small() -> (tempfile::TempDir, Store, Tree) {
    let (folder, store) = new_store();
    let files = tree(&[("f", noise(1, 40)), ("g", b"text ".repeat(20))]);
    commit(&store, "a", &files);
    (folder, store, files)
}

/// Whether verify finds something at this level; what restores is right in any case.
fn found(store: &Store, level: VerifyLevel, files: &Tree) -> bool {
    match Store::open(store.path()) {
        Err(_) => true,
        Ok(store) => {
            if let Ok(restored) = restore(&store, "a") {
                assert_eq!(&restored, files);
            }
            !verify(&store, level).is_whole()
        }
    }
}

fn flip_all(store: &Store, files: &Tree, folder: &str, level: VerifyLevel) {
    for path in files_in(store, folder) {
        let whole = sys::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            overwrite(&path, &damaged);
            assert!(found(store, level, files), "{} at {at}", path.display());
        }
        overwrite(&path, &whole);
    }
    assert!(verify(store, VerifyLevel::Full).is_whole());
}

#[test]
fn every_flip_in_a_pack_is_found_at_level_packs() {
    let (_folder, store, files) = small();
    flip_all(&store, &files, "packs", VerifyLevel::Packs);
}

#[test]
fn every_flip_in_the_index_or_a_ref_is_found_at_level_refs() {
    let (_folder, store, files) = small();
    flip_all(&store, &files, "index", VerifyLevel::Refs);
    flip_all(&store, &files, "refs", VerifyLevel::Refs);
}

#[test]
fn every_flip_in_format_is_found_when_it_is_opened_or_at_level_refs() {
    let (_folder, store, files) = small();
    let path = store.path().join("FORMAT");
    let whole = sys::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        overwrite(&path, &damaged);
        assert!(found(&store, VerifyLevel::Refs, &files), "at {at}: {}", String::from_utf8_lossy(&damaged));
    }
    overwrite(&path, &whole);
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn every_cut_and_every_exchange_is_found_and_repaired_as_far_as_can_be() {
    let (_folder, store, files) = small();
    commit(&store, "b", &tree(&[("f", noise(2, 40)), ("g", b"more ".repeat(20))]));
    // Packs last, as their repair makes others.
    for (folder, level) in [("index", VerifyLevel::Refs), ("refs", VerifyLevel::Refs), ("packs", VerifyLevel::Refs)] {
        let paths = files_in(&store, folder);
        let contents: Vec<Vec<u8>> = paths.iter().map(|path| sys::fs::read(path).unwrap()).collect();
        assert_eq!(paths.len(), 2);
        for (path, whole) in paths.iter().zip(&contents) {
            for len in [0, 1, 31, whole.len() / 2, whole.len() - 1] {
                overwrite(path, &whole[..len]);
                assert!(found(&store, level, &files), "{} cut to {len}", path.display());
            }
            let mut longer = whole.clone();
            longer.extend([0; 7]);
            overwrite(path, &longer);
            assert!(found(&store, level, &files), "{} with more", path.display());
            overwrite(path, whole);
        }
        // Exchanged: of equal length, so only their bytes tell.
        let level = if folder == "packs" { VerifyLevel::Metadata } else { level };
        overwrite(&paths[0], &contents[1]);
        overwrite(&paths[1], &contents[0]);
        assert!(found(&store, level, &files), "{folder} exchanged");
        if folder == "packs" {
            // Every chunk is there, under other names: nothing is lost.
            let report = Store::open(store.path()).unwrap().repair(&RepairOptions::default(), &Control::silent()).unwrap();
            assert!(report.is_whole() && report.quarantined.len() == 2, "{report:?}");
            assert_eq!(restore(&store, "a").unwrap(), files);
            assert!(verify(&store, VerifyLevel::Full).is_whole());
        } else {
            overwrite(&paths[0], &contents[0]);
            overwrite(&paths[1], &contents[1]);
        }
    }
}

#[test]
fn a_pack_in_another_folder_and_a_strange_file_are_found() {
    let (_folder, store, files) = small();
    let pack = files_in(&store, "packs").remove(0);
    let own = pack.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let other = store.path().join("packs").join(if own == "00" { "01" } else { "00" }).join(pack.file_name().unwrap());
    sys::fs::rename(&pack, &other).unwrap();
    let report = verify(&store, VerifyLevel::Refs);
    assert_eq!(report.findings.len(), 2, "gone here, strange there: {report:?}");
    assert_eq!(report.losses.len(), 1);
    sys::fs::rename(&other, &pack).unwrap();
    assert!(!found(&store, VerifyLevel::Full, &files));
    drop(sys::fs::write_unsynced(&pack.with_file_name("notes.txt"), &[b"mine"], 0o600).unwrap());
    assert!(found(&store, VerifyLevel::Refs, &files));
}
