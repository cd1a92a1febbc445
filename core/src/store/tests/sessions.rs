use std::io::{Seek, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::ErrorKind;

#[test]
fn row_25_a_small_turn_takes_six_fsyncs_and_one_without_new_content_two() {
    let (_folder, store) = new_store();
    let files = tree(&[("a", noise(1, 5000)), ("b", noise(2, 300_000))]);
    let first = commit(&store, "a", &files);
    assert_eq!(first.fsyncs, 6);
    assert_eq!(files_in(&store, "packs").len(), 1, "data and metadata share a small pack");
    let again = commit(&store, "b", &files);
    assert_eq!((again.fsyncs, again.bytes_new, again.bytes_stored), (2, 0, 0));
    assert_eq!(files_in(&store, "packs").len(), 1);
    assert_eq!(files_in(&store, "index").len(), 1);
    for id in ["a", "b"] {
        assert_eq!(restore(&store, id).unwrap(), files);
    }
}

#[test]
fn what_is_not_committed_leaves_nothing() {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    session.put_bytes(&noise(1, 40 << 20), Cutting::Wal).unwrap();
    assert_eq!(files_in(&store, "tmp").len(), 1, "a full pack was written");
    drop(session);
    for folder in ["tmp", "packs", "index", "refs"] {
        assert!(files_in(&store, folder).is_empty(), "{folder}");
    }
}

#[test]
fn large_captures_keep_metadata_apart() {
    let (_folder, store) = new_store();
    let files: Tree = (0..3).map(|at| (format!("f{at}"), noise(at, 15 << 20))).collect();
    let report = commit(&store, "a", &files);
    assert_eq!(report.bytes_read, report.bytes_new);
    assert_eq!(files_in(&store, "packs").len(), 2);
    assert_eq!(restore(&store, "a").unwrap(), files);
}

#[test]
fn an_id_is_used_once_and_a_root_must_be_stored() {
    let (_folder, store) = new_store();
    let files = tree(&[("a", b"one".to_vec())]);
    commit(&store, "a", &files);
    assert_eq!(try_commit(&store, "a", &tree(&[("a", b"two".to_vec())])).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(restore(&store, "a").unwrap(), files);
    let session = store.session(&Control::silent()).unwrap();
    let error = session.commit(&reference("b", ChunkId::of(b"nowhere"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.refs().unwrap().0.len(), 1);
}

#[test]
fn threads_share_a_session() {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    let reads: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|at| {
                let session = &session;
                // Pairs bring the same content at the same time.
                scope.spawn(move || session.put_bytes(&noise(at / 2, 3 << 20), Cutting::Pages).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(session.report().bytes_new, 6 << 20);
    let mut manifest = session.manifest();
    for (at, read) in reads.into_iter().enumerate() {
        manifest.push(&file_entry(&format!("f{at}"), read.size, read.chunks)).unwrap();
    }
    let root = manifest.finish().unwrap();
    session.commit(&reference("a", root)).unwrap();
    let files = restore(&store, "a").unwrap();
    assert_eq!(files["f0"], noise(0, 3 << 20));
    assert_eq!(files["f3"], noise(1, 3 << 20));
}

#[test]
fn row_29_sessions_at_once_do_not_meet() {
    let (_folder, store) = new_store();
    let trees: Vec<(String, Tree)> =
        (0..6).map(|at| (format!("s{at}"), tree(&[("same", noise(100, 200_000)), ("own", noise(at, 100_000))]))).collect();
    std::thread::scope(|scope| {
        for (id, files) in &trees {
            let store = Store::open(store.path()).unwrap();
            scope.spawn(move || commit(&store, id, files));
        }
    });
    for (id, files) in &trees {
        assert_eq!(&restore(&store, id).unwrap(), files);
    }
    assert!(files_in(&store, "tmp").is_empty());
}

#[test]
fn row_34_a_file_that_grows_or_shrinks_is_stored_as_it_was_read() {
    let (folder, store) = new_store();
    let path = folder.path().join("file");
    let mut file = std::fs::File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let bytes = noise(1, 6 << 20);
    file.write_all(&bytes[..5000]).unwrap();
    let session = store.session(&Control::silent()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = std::fs::File::options().write(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::os::unix::fs::FileExt::write_all_at(&writer, &bytes, 0).unwrap();
                writer.set_len(70_000).unwrap();
            }
        });
        for cutting in [Cutting::Pages, Cutting::Content, Cutting::Wal].into_iter().cycle().take(30) {
            file.rewind().unwrap();
            let read = session.put_file(&file, &path, cutting).unwrap();
            assert_eq!(read.chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>(), read.size);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn row_35_an_empty_file_is_content_too() {
    let (folder, store) = new_store();
    let path = folder.path().join("empty");
    sys::fs::replace(&path, b"", 0o600, &sys::fs::Syncs::new()).unwrap();
    let session = store.session(&Control::silent()).unwrap();
    let read = session.put_file(&std::fs::File::open(&path).unwrap(), &path, Cutting::Content).unwrap();
    assert_eq!((read.size, read.chunks.len()), (0, 0));
    drop(session);
    let files = tree(&[("empty", Vec::new()), ("full", noise(1, 10))]);
    commit(&store, "a", &files);
    assert_eq!(restore(&store, "a").unwrap(), files);
}

#[test]
fn a_cancelled_session_stops_reading() {
    let (folder, store) = new_store();
    let path = folder.path().join("file");
    sys::fs::replace(&path, &noise(1, 100), 0o600, &sys::fs::Syncs::new()).unwrap();
    let cancel = crate::CancelToken::new();
    let session = store.session(&Control::new(cancel.clone(), None)).unwrap();
    cancel.cancel();
    let error = session.put_file(&std::fs::File::open(&path).unwrap(), &path, Cutting::Content).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn row_13_a_session_does_not_rely_on_a_pack_that_has_gone() {
    let (_folder, store) = new_store();
    let files = tree(&[("a", noise(1, 5000))]);
    commit(&store, "a", &files);
    let pack = files_in(&store, "packs").remove(0);
    std::fs::remove_file(&pack).unwrap();
    let session = store.session(&Control::silent()).unwrap();
    assert!(!session.has(&ChunkId::of(&files["a"])).unwrap());
    drop(session);
    // Capturing the content again heals both.
    commit(&store, "b", &files);
    for id in ["a", "b"] {
        assert_eq!(restore(&store, id).unwrap(), files);
    }
}

#[test]
fn a_damaged_pack_of_the_same_name_is_put_aside() {
    let (_folder, store) = new_store();
    let files = tree(&[("a", noise(1, 5000))]);
    commit(&store, "a", &files);
    let pack = files_in(&store, "packs").remove(0);
    overwrite(&pack, b"rubbish");
    commit(&store, "b", &files);
    assert_eq!(files_in(&store, "quarantine").len(), 1);
    assert_eq!(restore(&store, "a").unwrap(), files);
}

/// Pages that change, become zero and cease to be zero, between two captures of one relation file.
#[test]
fn row_55_every_version_of_a_relation_file_comes_back_byte_for_byte() {
    let (_folder, store) = new_store();
    let mut content = noise(1, 30 * 8192);
    content[10 * 8192..20 * 8192].fill(0);
    let mut versions = Vec::new();
    for version in 0..4_u8 {
        let at = usize::from(version) * 5 * 8192;
        content[at..at + 8192].copy_from_slice(&noise(100 + u64::from(version), 8192));
        content[at + 8192..at + 4 * 8192].fill(0);
        let session = store.session(&Control::silent()).unwrap();
        let read = session.put_bytes(&content, Cutting::Pages).unwrap();
        let mut manifest = session.manifest();
        manifest.push(&file_entry("base/5/16384", read.size, read.chunks)).unwrap();
        let root = manifest.finish().unwrap();
        let report = session.commit(&reference(&format!("v{version}"), root)).unwrap();
        assert!(version == 0 || report.bytes_new <= 3 * 32_768, "only what changed: {report:?}");
        versions.push(content.clone());
    }
    for (version, content) in versions.iter().enumerate() {
        assert!(&restore(&store, &format!("v{version}")).unwrap()["base/5/16384"] == content, "version {version}");
    }
}
