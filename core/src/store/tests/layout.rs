use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::ErrorKind;
use crate::store::format::Format;

#[test]
fn modes_and_folders() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 1000))]));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    // Accounts that run root's servers pass through it.
    assert_eq!(mode(store.path()), if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 });
    assert_eq!(sys::fs::names(&store.path().join("packs")).unwrap().len(), 256);
    for file in ["FORMAT", "lock", "gate", "gc_generation"] {
        assert_eq!(mode(&store.path().join(file)), 0o600, "{file}");
    }
    for folder in ["packs", "index", "refs"] {
        assert_eq!(mode(&store.path().join(folder)), 0o700);
        let files = files_in(&store, folder);
        assert_eq!(files.len(), 1, "{folder}");
        assert_eq!(mode(&files[0]), 0o400, "{folder}");
    }
    assert!(files_in(&store, "tmp").is_empty());
    assert!(!store.path().join("creating").exists());
}

#[test]
fn no_store_lies_in_another() {
    let (_folder, store) = new_store();
    for path in ["packs/00", "refs", "projects/x", "new/deep"] {
        let path = store.path().join(path);
        let error = Store::open_or_create(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(Store::check_outside(&path).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(!store.path().join("new").exists());
    assert_eq!(Store::check_outside(store.path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    Store::check_outside(store.path().parent().unwrap()).unwrap();
    Store::open_or_create(store.path()).unwrap();
}

#[test]
fn what_is_not_a_store_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(Store::open(&path.join("absent")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!path.join("absent").exists());
    sys::fs::replace(&path.join("mine"), b"x", 0o644, &sys::fs::Syncs::new()).unwrap();
    assert_eq!(Store::open(path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Store::open(&path.join("mine")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Store::create(path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(Store::open_or_create(path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(Store::create(&path.join("mine")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(sys::fs::names(path).unwrap(), ["mine"]);
}

#[test]
fn a_store_is_not_made_twice() {
    let (_folder, store) = new_store();
    assert_eq!(Store::create(store.path()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(Store::open_or_create(store.path()).unwrap().uuid(), store.uuid());
}

#[test]
fn newer_formats_and_unknown_features_are_refused_untouched() {
    let (_folder, store) = new_store();
    let path = store.path().join("FORMAT");
    let good = String::from_utf8(sys::fs::read(&path).unwrap()).unwrap();
    let cases = [
        (good.replace("\"version\": 1", "\"version\": 2"), ErrorKind::UnsupportedFormat),
        (good.replace("\"version\": 1", "\"version\": 2, \"more\": []"), ErrorKind::UnsupportedFormat),
        (good.replace("\"read\": []", "\"read\": [\"encryption\"]"), ErrorKind::UnsupportedFormat),
        (good.replace("\"version\": 1", "\"version\": 1, \"more\": []"), ErrorKind::UnsupportedFormat),
        (good.replace("forklift store", "another store"), ErrorKind::Corrupt),
        (good[..good.len() / 2].to_owned(), ErrorKind::Corrupt),
        (String::new(), ErrorKind::Corrupt),
    ];
    for (text, kind) in cases {
        assert_ne!(text, good);
        overwrite(&path, text.as_bytes());
        assert_eq!(Store::open(store.path()).unwrap_err().kind(), kind, "{text}");
        assert_eq!(Store::open_or_create(store.path()).unwrap_err().kind(), kind, "{text}");
        assert_eq!(sys::fs::read(&path).unwrap(), text.as_bytes());
    }
    // A feature that only writers need to know does not keep readers out.
    overwrite(&path, good.replace("\"write\": []", "\"write\": [\"wide\"]").as_bytes());
    let store = Store::open(store.path()).unwrap();
    store.reader(&Control::silent()).unwrap();
    assert_eq!(store.session(&Control::silent()).unwrap_err().kind(), ErrorKind::UnsupportedFormat);
}

#[test]
fn row_27_an_interrupted_creation_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let whole = Store::create(&path).unwrap();
    // As after a kill before FORMAT was in place.
    for keep in [0, 3, 200] {
        std::fs::remove_file(path.join("FORMAT")).unwrap();
        sys::fs::replace(&path.join("creating"), b"", 0o600, &sys::fs::Syncs::new()).unwrap();
        for first in keep..=255_u8 {
            sys::fs::remove_tree(&path.join(format!("packs/{first:02x}"))).unwrap();
        }
        assert_eq!(Store::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let again = Store::open_or_create(&path).unwrap();
        assert_ne!(again.uuid(), whole.uuid());
        commit(&again, &format!("a{keep}"), &tree(&[("f", noise(1, 1000))]));
        assert_eq!(sys::fs::names(&path.join("packs")).unwrap().len(), 256);
        for file in files_in(&again, "refs").into_iter().chain(files_in(&again, "packs")).chain(files_in(&again, "index")) {
            std::fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn two_may_make_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/store");
    let uuids: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| Store::open_or_create(&path).unwrap().uuid().to_owned())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(uuids.iter().all(|uuid| uuid == &uuids[0]), "{uuids:?}");
}

proptest::proptest! {
    #[test]
    fn row_27_any_format_file_parses_or_fails(bytes: Vec<u8>) {
        assert!(Format::decode(&bytes, std::path::Path::new("FORMAT")).is_err());
    }
}

/// What may have come to the place of a file: whoever opened it as one would wait for ever, read for ever, or go round.
fn odd_things(path: &std::path::Path, each: impl Fn(&str)) {
    let pipe = || {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, 0).unwrap()
    };
    let link = |to: &std::path::Path| std::os::unix::fs::symlink(to, path).unwrap();
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("pipe", &pipe),
        ("link to itself", &|| link(path)),
        ("link to nothing", &|| link(std::path::Path::new("/nonexistent/file"))),
        ("device", &|| link(std::path::Path::new("/dev/zero"))),
    ];
    for (name, make) in kinds {
        std::fs::remove_file(path).ok();
        make();
        each(name);
    }
}

#[test]
fn a_generation_that_is_no_file_is_none_and_the_next_prune_makes_it_anew() {
    let (_folder, store) = new_store();
    odd_things(&store.path().join("gc_generation"), |kind| {
        assert_eq!(store.generation().unwrap(), None, "{kind}");
        commit(&store, "a", &tree(&[("f", noise(1, 100))]));
        store.remove_ref("a").unwrap();
        let options = crate::store::PruneOptions { apply: true, ..Default::default() };
        store.prune(&options, &Control::silent()).unwrap();
        assert!(store.generation().unwrap().is_some(), "{kind}");
    });
}

#[test]
fn a_lock_that_is_a_pipe_is_an_error_and_nobody_waits_for_it() {
    for name in ["lock", "gate"] {
        let (_folder, store) = new_store();
        let path = store.path().join(name);
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, 0)
            .unwrap();
        // Without this the test would wait for ever where the library does.
        let (done, waiting) = std::sync::mpsc::channel();
        let (reading, writing) = (store.clone(), store.clone());
        std::thread::spawn(move || done.send(reading.reader(&Control::silent()).map(drop)));
        let error = waiting.recv_timeout(std::time::Duration::from_secs(60)).expect("it answers").unwrap_err();
        for error in [error, writing.session(&Control::silent()).map(drop).unwrap_err()] {
            assert_eq!(error.kind(), crate::ErrorKind::Io);
            assert!(error.message().contains(name) && error.hint_text().is_some(), "{error:?}");
        }
    }
}

#[test]
fn a_segment_that_is_no_file_is_a_damaged_one() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 100))]);
    commit(&store, "a", &files);
    let segment = files_in(&store, "index").pop().unwrap();
    odd_things(&store.path().join("index").join(segment.file_name().unwrap()), |kind| {
        let fresh = Store::open(store.path()).unwrap();
        assert_eq!(restore(&fresh, "a").unwrap(), files, "{kind}");
    });
}
