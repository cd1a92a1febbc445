//! What a golden store holds: the same trees in every build, so that a build that cuts, encodes or names anything in another
//! way than the one that wrote the store is found out.

use super::super::*;
use crate::store::{ChunkRef, Session, Xattr};

/// Files of more than one level of chunk list have their pages from here: each another, and easily compressed.
const PAGE: usize = 32 << 10;

/// A tree by name: stores its content in a session and gives its entries.
type Named = (&'static str, fn(&Session) -> Vec<Entry>);

/// The trees of the checkpoints, in the order of their ids.
pub(super) fn trees() -> [Named; 3] {
    [("every kind", every_kind), ("many names", many_names), ("a long list", long_list)]
}

pub(super) fn write(session: &Session, entries: &[Entry]) -> Half {
    let mut manifest = session.manifest();
    entries.iter().for_each(|entry| manifest.push(entry).unwrap());
    let size = |entry: &Entry| if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
    let facts = serde_json::json!({ "scope": "all", "numbers": [1, -2, 0.5], "text": "\u{e9}\n\"" });
    Half { root: manifest.finish().unwrap(), entries: entries.len() as u64, bytes: entries.iter().map(size).sum(), facts }
}

fn entry(path: &[u8], kind: EntryKind) -> Entry {
    Entry {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        mtime_ns: 1_700_000_000_123_456_789,
        xattrs: Vec::new(),
        unstable: false,
    }
}

fn file(session: &Session, path: &[u8], bytes: &[u8], cutting: Cutting) -> Entry {
    let read = session.put_bytes(bytes, cutting).unwrap();
    entry(path, EntryKind::File { size: read.size, chunks: read.chunks, holes: Vec::new(), link: 0 })
}

fn every_kind(session: &Session) -> Vec<Entry> {
    let content = |path: &[u8], bytes: &[u8]| file(session, path, bytes, Cutting::Content);
    let linked = |path: &[u8]| {
        let mut entry = content(path, &noise(2, 700));
        if let EntryKind::File { link, .. } = &mut entry.kind {
            *link = 1;
        }
        entry
    };
    let mut noted = content(b"dir/noise", &noise(1, 3000));
    noted.xattrs = [("user.empty", ""), ("user.note", "a\0b")]
        .map(|(name, value)| Xattr { name: name.as_bytes().to_vec(), value: value.as_bytes().to_vec() })
        .to_vec();
    let mut old = content(b"dir/text", &b"words ".repeat(500));
    (old.mode, old.mtime_ns, old.uid, old.gid) = (0o6755, -1, u32::MAX, 0);
    let mut moving = content(b"moving", b"one of its states");
    moving.unstable = true;
    let lines: Vec<u8> = (0..20_000).flat_map(|line| format!("line {line} of a file\n").into_bytes()).collect();
    let pages: Vec<u8> = (0..140_u32).flat_map(|page| page.to_le_bytes().repeat(PAGE / 4)).collect();
    let data = session.put_bytes(&noise(3, 4096), Cutting::Content).unwrap().chunks.remove(0);
    let zeros = |len| ChunkRef { id: ChunkId::ZERO, len };
    let sparse = EntryKind::File {
        size: (10 << 20) + 4096,
        chunks: vec![zeros(4 << 20), data, zeros(6 << 20)],
        holes: vec![(0, 4 << 20), ((4 << 20) + 4096, 6 << 20)],
        link: 0,
    };
    let mut folder = entry(b"dir", EntryKind::Folder);
    folder.mode = 0o1755;
    let deep: Vec<u8> = b"deep/".repeat(40).into_iter().chain(*b"file").collect();
    let mut entries = vec![
        folder,
        content(b"dir/empty", b""),
        noted,
        old,
        content(&deep, b"at the bottom"),
        entry(b"fifo", EntryKind::Fifo),
        linked(b"hard-1"),
        linked(b"hard-2"),
        content(b"lines", &lines),
        entry(b"link", EntryKind::Symlink(b"../elsewhere".to_vec())),
        entry(b"link-\xff", EntryKind::Symlink(b"\xff\xfe".to_vec())),
        moving,
        content(b"name-\xff\n", b"not UTF-8"),
        file(session, b"pages", &pages, Cutting::Pages),
        entry(b"socket", EntryKind::Socket),
        entry(b"sparse", sparse),
        file(session, b"wal", &[b"\x10\xd1".to_vec(), vec![0; 3 << 20]].concat(), Cutting::Wal),
    ];
    for at in 1..=40 {
        entries.push(entry(&deep[..5 * at - 1], EntryKind::Folder));
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// More than one block, and blocks above them.
fn many_names(session: &Session) -> Vec<Entry> {
    let mut entries = vec![entry(b"many", EntryKind::Folder)];
    entries.extend(
        (0..6000).map(|at| file(session, format!("many/{at:05}").as_bytes(), if at % 1000 == 0 { b"x" } else { b"" }, Cutting::Content)),
    );
    entries
}

/// A chunk list of three levels, which only very large files have: of zeros, so that it takes no space.
fn long_list(_: &Session) -> Vec<Entry> {
    let chunks = vec![ChunkRef { id: ChunkId::ZERO, len: 1 }; 128 * 4096 + 1];
    vec![entry(b"zeros", EntryKind::File { size: chunks.len() as u64, chunks, holes: Vec::new(), link: 0 })]
}
