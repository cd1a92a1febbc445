//! What is too long to be ours.

use super::*;
use crate::ErrorKind;
use crate::store::{PruneOptions, VerifyLevel, VerifyOptions};

/// Files of a terabyte, of which nothing is on disk: no memory is taken for what cannot be ours.
#[test]
fn row_52_files_of_impossible_length_are_refused_before_memory_is_taken() {
    const LENGTH: u64 = 1 << 40;
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 40)), ("g", b"text ".repeat(20))]);
    commit(&store, "a", &files);
    let grow = |path: &std::path::Path| {
        let before = sys::fs::read(path).unwrap();
        overwrite(path, &before);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(LENGTH).unwrap();
        before
    };
    for folder in ["packs", "index", "refs"] {
        for path in files_in(&store, folder) {
            let before = grow(&path);
            let again = Store::open(store.path()).unwrap();
            assert!(!again.verify(&VerifyOptions::default(), &Control::silent()).unwrap().is_whole(), "{}", path.display());
            if folder == "refs" {
                assert_eq!(again.refs().unwrap().1.len(), 1);
            } else if folder == "index" {
                assert_eq!(restore(&again, "a").unwrap(), files);
            }
            again.prune(&PruneOptions::default(), &Control::silent()).ok();
            overwrite(&path, &before);
        }
    }
    for name in ["gc_generation", "verified"] {
        let path = store.path().join(name);
        if !path.exists() {
            drop(sys::fs::write_unsynced(&path, &[b""], 0o600).unwrap());
        }
        let before = grow(&path);
        let budget = VerifyOptions { level: VerifyLevel::Packs, budget: Some(1), ..VerifyOptions::default() };
        store.verify(&budget, &Control::silent()).unwrap();
        assert_eq!(restore(&Store::open(store.path()).unwrap(), "a").unwrap(), files, "{name}");
        overwrite(&path, &before);
    }
    grow(&store.path().join("FORMAT"));
    assert_eq!(Store::open(store.path()).unwrap_err().kind(), ErrorKind::Corrupt);
}
