use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::testing::{Cluster, Server};
use crate::postgres::{ClusterCache, Sink, SourceFile, StoreSink, copy_stopped, file_system_clock, prepare_copy};
use crate::progress::Control;
use crate::store::{Cutting, EntryKind, Half, Ref, RefKind, Store};
use crate::sys::fs;
use crate::sys::shared_map::SharedPage;

pub(super) fn store(folder: &Path) -> Store {
    Store::open_or_create(&folder.join("store")).unwrap()
}

pub(super) fn reference(half: Half) -> Ref {
    let id = crate::sys::id::sortable().unwrap();
    Ref {
        id,
        name: None,
        created_ms: 0,
        kind: RefKind::Capture,
        project: None,
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files: None,
        cluster: Some(half),
        facts: serde_json::Value::Null,
        boot_id: "boot".to_owned(),
    }
}

/// Captures the stopped cluster; gives the half, the next cache, and how many bytes were read.
fn capture(store: &Store, data: &Path, known: ClusterCache) -> (Half, ClusterCache, u64) {
    let session = store.session(&Control::silent()).unwrap();
    let mut sink = StoreSink::new(&session, known);
    copy_stopped(data, &mut sink, &Control::silent()).unwrap();
    let (half, next) = sink.finish().unwrap();
    let report = session.commit(&reference(half.clone())).unwrap();
    (half, next, report.bytes_read)
}

fn restore(store: &Store, half: &Half, target: &Path) {
    let reader = store.reader(&Control::silent()).unwrap();
    fs::make_folder(target, u32::try_from(half.facts["root_mode"].as_u64().unwrap()).unwrap()).unwrap();
    for entry in reader.manifest(&half.root).unwrap() {
        let entry = entry.unwrap();
        let path = target.join(PathBuf::from(std::ffi::OsString::from(String::from_utf8(entry.path).unwrap())));
        match entry.kind {
            EntryKind::Folder => fs::make_folder(&path, u32::from(entry.mode)).unwrap(),
            EntryKind::File { chunks, .. } => reader.copy(&chunks, &mut fs::create_new(&path, u32::from(entry.mode)).unwrap()).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stopped_cluster_comes_back_from_the_store_and_unchanged_files_are_not_read_again() {
    let Some(cluster) = Cluster::new("a_stopped_cluster_comes_back_from_the_store_and_unchanged_files_are_not_read_again", &[]) else {
        return;
    };
    let store = store(cluster.folder.path());
    let mut server = cluster.start(&[]);
    server.run("create table t as select generate_series(1, 1000) a");
    server.stop();
    let (first, _, read) = capture(&store, &cluster.data, ClusterCache::default());
    assert!(read > 10 << 20, "{read}");
    // What was written within two seconds is read again; then the clock has moved on.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let (same, cache, _) = capture(&store, &cluster.data, ClusterCache::default());
    assert_eq!(same.root, first.root);
    let path = cluster.folder.path().join("cache");
    assert!(cache.save(&path, "boot"));
    let loaded = ClusterCache::load(&path, "boot");
    assert_eq!(loaded, cache);
    assert!(loaded.len() > 500);
    let (again, _, read) = capture(&store, &cluster.data, loaded);
    assert_eq!(again.root, first.root);
    assert!(read < 1 << 20, "{read}");

    let mut server = cluster.start(&[]);
    server.run("insert into t values (0)");
    server.stop();
    let (changed, _, read) = capture(&store, &cluster.data, cache);
    assert!(read < 40 << 20, "{read}");
    for (name, half, rows) in [("old", &first, "1000"), ("new", &changed, "1001")] {
        let target = cluster.folder.path().join(name);
        restore(&store, half, &target);
        prepare_copy(&target, true).unwrap();
        let mut server = Server::start(&cluster.installation, &target, &[]).unwrap();
        assert_eq!(server.value("select count(*) from t"), rows, "{name}");
        server.stop();
    }
}

#[test]
fn a_damaged_cache_is_empty_and_young_entries_of_another_boot_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let session = store.session(&Control::silent()).unwrap();
    let file = folder.path().join("file");
    fs::create_new(&file, 0o600).unwrap().write_all(&[7; 40000]).unwrap();
    let source = SourceFile { source: file, path: PathBuf::from("base/5/1259"), live: true, cutting: Cutting::Pages };
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    sink.begin(i64::MAX);
    sink.files(&[source], &Control::silent()).unwrap();
    let (_, cache) = sink.finish().unwrap();
    assert_eq!(cache.len(), 1);
    let path = folder.path().join("cache");
    assert!(cache.save(&path, "one boot"));
    assert_eq!(ClusterCache::load(&path, "one boot"), cache);
    assert!(ClusterCache::load(&path, "another boot").is_empty());
    let mut bytes = fs::read(&path).unwrap();
    bytes[60] ^= 1;
    fs::replace(&path, &bytes, 0o600, &fs::Syncs::new()).unwrap();
    assert!(ClusterCache::load(&path, "one boot").is_empty());
    assert!(ClusterCache::load(&folder.path().join("absent"), "one boot").is_empty());
}

/// ext4 and btrfs move ctime before the bytes land: three equal stats around a read, and yet other content a moment later.
/// A write that began after c0 must not leave a chunk list that the next capture believes.
#[test]
fn the_stat_trap_of_ext4_is_read_again_by_the_next_capture() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let session = store.session(&Control::silent()).unwrap();
    let path = folder.path().join("16384");
    let mut file = fs::create_new(&path, 0o600).unwrap();
    file.write_all(&[0; 8192]).unwrap();
    let source = [SourceFile { source: path, path: PathBuf::from("base/5/16384"), live: true, cutting: Cutting::Pages }];
    let stat = || (file.metadata().unwrap().ctime(), file.metadata().unwrap().ctime_nsec());
    let mut page = SharedPage::of(&file);
    let mut trapped = 0;
    for turn in 1..=20_u8 {
        let c0 = file_system_clock(folder.path()).unwrap();
        page.fill(turn);
        let mut sink = StoreSink::new(&session, ClusterCache::default());
        sink.begin(c0);
        let before = stat();
        sink.files(&source, &Control::silent()).unwrap();
        let (first, known) = sink.finish().unwrap();
        // The rest of the write lands: no stat tells it.
        page.fill(turn + 100);
        trapped += u32::from(stat() == before);

        let mut sink = StoreSink::new(&session, known);
        sink.begin(file_system_clock(folder.path()).unwrap());
        sink.files(&source, &Control::silent()).unwrap();
        let (second, _) = sink.finish().unwrap();
        assert_ne!(first.root, second.root, "turn {turn}: the older content was believed");
        let synced = fs::Syncs::new().file(&file, Path::new("16384"));
        synced.unwrap();
    }
    assert!(trapped > 0, "the trap was never there");
}

#[test]
fn a_live_file_that_is_older_than_c0_is_reused_and_one_that_vanished_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let session = store.session(&Control::silent()).unwrap();
    let path = folder.path().join("16384");
    fs::create_new(&path, 0o600).unwrap().write_all(&[9; 8192]).unwrap();
    let written = file_system_clock(folder.path()).unwrap();
    while file_system_clock(folder.path()).unwrap() < written + 40_000_000 {
        std::thread::yield_now();
    }
    let file =
        |name: &str, live: bool| SourceFile { source: folder.path().join(name), path: PathBuf::from(name), live, cutting: Cutting::Pages };
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    sink.begin(file_system_clock(folder.path()).unwrap());
    sink.files(&[file("16384", true), file("gone", true)], &Control::silent()).unwrap();
    assert!(sink.files(&[file("gone", false)], &Control::silent()).is_err());
    let (half, known) = sink.finish().unwrap();
    assert_eq!((half.entries, known.len()), (1, 1));
    let before = session.report().bytes_read;
    let mut sink = StoreSink::new(&session, known.clone());
    sink.begin(file_system_clock(folder.path()).unwrap());
    sink.files(&[file("16384", true)], &Control::silent()).unwrap();
    assert_eq!(sink.copied(), 8192);
    assert_eq!(session.report().bytes_read, before, "nothing was read");
    // Without a c0 nothing of a running server is believed.
    let mut sink = StoreSink::new(&session, known);
    sink.files(&[file("16384", true)], &Control::silent()).unwrap();
    assert!(session.report().bytes_read > before);
}

#[test]
fn zero_pages_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let session = store.session(&Control::silent()).unwrap();
    let path = folder.path().join("16384");
    fs::create_new(&path, 0o600).unwrap().set_len(4 << 20).unwrap();
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    sink.files(
        &[SourceFile { source: path, path: PathBuf::from("base/5/16384"), live: true, cutting: Cutting::Pages }],
        &Control::silent(),
    )
    .unwrap();
    assert_eq!((sink.copied(), session.report().bytes_new), (4 << 20, 0));
}
