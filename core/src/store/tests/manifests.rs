use proptest::prelude::*;

use super::*;
use crate::ErrorKind;
use crate::store::{ChunkRef, Xattr};

fn round_trip(entries: &[Entry]) -> (tempfile::TempDir, Store, ChunkId) {
    let (folder, store) = new_store();
    let root = round_trip_in(&store, entries);
    (folder, store, root)
}

fn round_trip_in(store: &Store, entries: &[Entry]) -> ChunkId {
    let session = store.session(&Control::silent()).unwrap();
    let mut manifest = session.manifest();
    entries.iter().for_each(|entry| manifest.push(entry).unwrap());
    let root = manifest.finish().unwrap();
    session.commit(&reference(&sys::id::sortable().unwrap(), root)).unwrap();
    let reader = store.reader(&Control::silent()).unwrap();
    let back: Vec<Entry> = reader.manifest(&root).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(back == entries, "{} entries came back of {}", back.len(), entries.len());
    root
}

fn plain(path: &[u8], kind: EntryKind) -> Entry {
    Entry { path: path.to_vec(), kind, mode: 0o755, uid: 0, gid: u32::MAX, mtime_ns: i64::MIN, xattrs: Vec::new(), unstable: false }
}

#[test]
fn every_kind_comes_back() {
    let mut full =
        file_entry("b/full", 70_000, vec![ChunkRef { id: ChunkId::of(b"x"), len: 4464 }, ChunkRef { id: ChunkId::ZERO, len: 65_536 }]);
    full.unstable = true;
    full.mode = 0o7777;
    full.xattrs = vec![
        Xattr { name: b"security.capability".to_vec(), value: vec![0, 1, 255] },
        Xattr { name: b"user.a".to_vec(), value: Vec::new() },
    ];
    if let EntryKind::File { holes, link, .. } = &mut full.kind {
        *holes = vec![(0, 4096), (8192, 61_808)];
        *link = u64::MAX;
    }
    round_trip(&[]);
    round_trip(&[
        plain(b"a", EntryKind::Folder),
        plain(b"b", EntryKind::Folder),
        full,
        plain(b"b/link", EntryKind::Symlink(b"../\xff\n".to_vec())),
        plain(b"b/pipe", EntryKind::Fifo),
        plain(b"b/socket", EntryKind::Socket),
        file_entry("c", 0, Vec::new()),
    ]);
}

#[test]
fn row_44_names_are_bytes() {
    let names: [&[u8]; 6] = [b"\x01", b"a\nb", b"caf\xc3\xa9", b"caf\xe9", b"\xfe\xff/\xff", b"\xff"];
    let mut entries: Vec<Entry> = names.iter().map(|name| plain(name, EntryKind::Symlink(b"\xff\xfe".to_vec()))).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    round_trip(&entries);
}

#[test]
fn row_49_deep_and_long_paths() {
    let deep = vec!["d"; 5000].join("/");
    let long = "n".repeat(4096);
    round_trip(&[plain(deep.as_bytes(), EntryKind::Folder), plain(long.as_bytes(), EntryKind::Folder)]);
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    for bad in ["n".repeat(4097), vec!["d"; 16_385].join("/"), vec!["abcdefgh"; 8_000].join("/")] {
        let error = session.manifest().push(&plain(bad.as_bytes(), EntryKind::Folder)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn row_50_many_entries_stream_through_levels_of_blocks() {
    let entries: Vec<Entry> = (0..120_000).map(|at| plain(format!("folder/{at:07}").as_bytes(), EntryKind::Fifo)).collect();
    let (_folder, store, root) = round_trip(&entries);
    // One more entry in the middle is stored in a few blocks, not in all.
    let session = store.session(&Control::silent()).unwrap();
    let mut manifest = session.manifest();
    for entry in &entries {
        manifest.push(entry).unwrap();
        if entry.path == b"folder/0060000" {
            manifest.push(&plain(b"folder/0060000x", EntryKind::Fifo)).unwrap();
        }
    }
    assert_ne!(manifest.finish().unwrap(), root);
    let report = session.report();
    assert!(report.bytes_new * 10 < report.bytes_read, "{report:?}");
}

#[test]
fn long_chunk_lists_go_in_nodes() {
    let chunk = |at: u32| ChunkRef { id: ChunkId::of(&at.to_le_bytes().map(|byte| byte | 1)), len: 7 };
    for count in [128_u32, 129, 300, 128 * 4096 + 5] {
        let chunks: Vec<ChunkRef> = (0..count).map(chunk).collect();
        let (_folder, store, _) = round_trip(&[file_entry("f", u64::from(count) * 7, chunks.clone()), plain(b"g", EntryKind::Folder)]);
        if count == 300 {
            // One other chunk: one leaf, the node above, the block, and nothing else.
            let session = store.session(&Control::silent()).unwrap();
            let mut chunks = chunks;
            chunks[200] = ChunkRef { id: ChunkId::of(b"other"), len: 7 };
            let mut manifest = session.manifest();
            manifest.push(&file_entry("f", 2100, chunks)).unwrap();
            manifest.push(&plain(b"g", EntryKind::Folder)).unwrap();
            manifest.finish().unwrap();
            assert!(session.report().bytes_new < 128 * 33 + 400, "{:?}", session.report());
        }
    }
}

#[test]
fn row_42_paths_that_leave_the_root_are_refused() {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "./a", "a\0b"] {
        let error = session.manifest().push(&plain(bad.as_bytes(), EntryKind::Folder)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad:?}");
    }
    round_trip(
        &[plain(b"..a", EntryKind::Folder), plain(b"...", EntryKind::Folder)].map(|entry| entry).into_iter().rev().collect::<Vec<_>>(),
    );
}

#[test]
fn a_refused_entry_does_not_spoil_the_manifest() {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    let mut manifest = session.manifest();
    manifest.push(&plain(b"b", EntryKind::Folder)).unwrap();
    for (bad, _why) in [
        (plain(b"a", EntryKind::Folder), "order"),
        (plain(b"b", EntryKind::Folder), "twice"),
        (file_entry("c", 5, vec![ChunkRef { id: ChunkId::of(b"x"), len: 4 }]), "sum"),
        (file_entry("c", 0, vec![ChunkRef { id: ChunkId::of(b"x"), len: 0 }]), "empty chunk"),
        (plain(b"c", EntryKind::Symlink(Vec::new())), "empty link"),
        (Entry { mode: 0o10000, ..plain(b"c", EntryKind::Folder) }, "mode"),
        (
            Entry {
                xattrs: vec![Xattr { name: b"b".to_vec(), value: vec![] }, Xattr { name: b"a".to_vec(), value: vec![] }],
                ..plain(b"c", EntryKind::Folder)
            },
            "xattrs",
        ),
        (
            Entry {
                xattrs: (0..60_u8).map(|at| Xattr { name: vec![b'a', at + 1], value: vec![1; 65_536] }).collect(),
                ..plain(b"c", EntryKind::Folder)
            },
            "too much",
        ),
    ] {
        assert_eq!(manifest.push(&bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad:?}");
    }
    manifest.push(&plain(b"c", EntryKind::Fifo)).unwrap();
    let root = manifest.finish().unwrap();
    session.commit(&reference("a", root)).unwrap();
    let reader = store.reader(&Control::silent()).unwrap();
    let paths: Vec<Vec<u8>> = reader.manifest(&root).unwrap().map(|entry| entry.unwrap().path).collect();
    assert_eq!(paths, [b"b".to_vec(), b"c".to_vec()]);
}

/// Reads any bytes as a manifest, as far as they go.
fn read_as_manifest(store: &Store, bytes: &[u8]) -> usize {
    let session = store.session(&Control::silent()).unwrap();
    let root = session.put(bytes).unwrap();
    session.commit(&reference(&sys::id::sortable().unwrap(), root)).unwrap();
    let reader = store.reader(&Control::silent()).unwrap();
    let Ok(manifest) = reader.manifest(&root) else { return 0 };
    manifest.filter(|entry| entry.is_ok()).count()
}

#[test]
fn hostile_blocks_are_refused() {
    let (_folder, store) = new_store();
    let block = |level: u8, count: u8, body: &[u8]| [b"FLKM", &[1, level, count][..], body].concat();
    let folder = |shared: u8, rest: &[u8]| [&[shared, rest.len() as u8], rest, &[1, 0, 0, 0, 0, 0]].concat();
    assert_eq!(read_as_manifest(&store, &block(0, 1, &folder(0, b"ok"))), 1);
    for bad in [
        block(0, 1, &folder(0, b"../up")),
        block(0, 1, &folder(0, b"/root")),
        block(0, 1, &folder(1, b"x")),
        block(0, 2, &folder(0, b"short")),
        block(9, 1, &folder(0, b"level")),
        block(1, 0, b""),
        block(1, 1, &[&[0, 1, b'a'][..], &[7; 32], &[1]].concat()),
        b"FLKM".to_vec(),
        b"FLKM\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec(),
    ] {
        assert!(read_as_manifest(&store, &bad) <= 1, "{bad:?}");
    }
    assert_eq!(read_as_manifest(&store, &block(0, 2, &[folder(0, b"b"), folder(0, b"a")].concat())), 1, "out of order");
    assert_eq!(read_as_manifest(&store, &block(0, 2, &[folder(0, b"b"), folder(1, b"")].concat())), 1, "twice");
    assert_eq!(read_as_manifest(&store, &block(0, 1, &[folder(0, b"b"), vec![0]].concat())), 1, "bytes after the end");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        Just(EntryKind::Folder),
        Just(EntryKind::Fifo),
        proptest::collection::vec(1_u8.., 1..40).prop_map(EntryKind::Symlink),
        (proptest::collection::vec((any::<[u8; 32]>(), 1_u32..4_000_000), 0..200), any::<u64>()).prop_map(|(chunks, link)| {
            let chunks: Vec<ChunkRef> = chunks.into_iter().map(|(id, len)| ChunkRef { id: ChunkId(id), len }).collect();
            EntryKind::File { size: chunks.iter().map(|chunk| u64::from(chunk.len)).sum(), chunks, holes: Vec::new(), link }
        }),
    ];
    ("[a-c]{1,3}(/[a-c]{1,3}){0,3}", kind, 0_u16..0o10000, any::<(u32, u32, i64, bool)>()).prop_map(
        |(path, kind, mode, (uid, gid, mtime_ns, unstable))| Entry {
            path: path.into_bytes(),
            kind,
            mode,
            uid,
            gid,
            mtime_ns,
            xattrs: Vec::new(),
            unstable,
        },
    )
}

#[test]
fn any_entries_round_trip() {
    let (_folder, store) = new_store();
    proptest!(ProptestConfig::with_cases(24), |(mut entries in proptest::collection::vec(any_entry(), 0..60))| {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.dedup_by(|a, b| a.path == b.path);
        round_trip_in(&store, &entries);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_block_parses_or_fails(level in 0_u8..3, body in proptest::collection::vec(any::<u8>(), 0..300), count in 0_u8..5) {
        use crate::store::manifest::check_any;
        let bytes = [b"FLKM", &[1, level, count][..], &body].concat();
        check_any(&bytes);
        check_any(&[b"FLKL", &[1, level, count][..], &body].concat());
        check_any(&body);
    }
}
