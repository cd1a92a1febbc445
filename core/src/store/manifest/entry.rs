//! The bytes of one entry, and what is allowed in it. Both directions check the same limits.

use super::{Entry, EntryKind, Xattr};
use crate::store::chunk::MAX_CHUNK;
use crate::store::wire::{Cursor, Malformed, Parsed, put_bytes, put_signed, put_varint};
use crate::store::{ChunkId, ChunkRef};

/// Longest path in bytes.
pub(super) const MAX_PATH: usize = 64 << 10;
/// Longest part of a path.
const MAX_NAME: usize = 4096;
/// Most parts of a path.
const MAX_DEPTH: usize = 16_384;
/// Longest text of a symbolic link.
const MAX_LINK: usize = 64 << 10;
const MAX_XATTRS: u64 = 1024;
const MAX_XATTR_NAME: usize = 256;
const MAX_XATTR_VALUE: usize = 64 << 10;
const MAX_HOLES: u64 = 128 << 10;
/// Longest encoded entry.
pub(super) const MAX_ENTRY: usize = 3 << 20;
/// A longer chunk list is stored in nodes of its own.
pub(super) const INLINE: usize = 128;

const UNSTABLE: u8 = 1;
const XATTRS: u8 = 2;
const HOLES: u8 = 4;
const LINK: u8 = 8;
const LIST: u8 = 16;

/// Where a long chunk list is: its root node and the number of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct List {
    pub(super) root: ChunkId,
    pub(super) count: u64,
}

/// Checks a path: what may stand in a manifest and so be written below a folder.
pub(in crate::store) fn check_path(path: &[u8]) -> Parsed<()> {
    if path.is_empty() || path.len() > MAX_PATH {
        return Err(Malformed(if path.is_empty() { "a path is empty" } else { "a path is longer than 65536 bytes" }));
    }
    if path.contains(&0) {
        return Err(Malformed("a path contains a NUL"));
    }
    for (depth, part) in path.split(|byte| *byte == b'/').enumerate() {
        match part {
            b"" => return Err(Malformed("a path is absolute or has an empty part")),
            b"." | b".." => return Err(Malformed("a path has a part . or ..")),
            part if part.len() > MAX_NAME => return Err(Malformed("a name is longer than 4096 bytes")),
            _ if depth >= MAX_DEPTH => return Err(Malformed("a path has more than 16384 parts")),
            _ => {}
        }
    }
    Ok(())
}

/// Checks everything but the order of paths and the length of the chunks against the size.
pub(super) fn check(entry: &Entry) -> Parsed<()> {
    check_path(&entry.path)?;
    if entry.mode > 0o7777 {
        return Err(Malformed("a mode has more than 12 bits"));
    }
    check_xattrs(&entry.xattrs)?;
    match &entry.kind {
        EntryKind::Symlink(text) if text.is_empty() || text.len() > MAX_LINK || text.contains(&0) => {
            Err(Malformed("the text of a symbolic link is empty, too long or contains a NUL"))
        }
        EntryKind::File { size, holes, .. } => check_holes(*size, holes),
        _ => Ok(()),
    }
}

fn check_xattrs(xattrs: &[Xattr]) -> Parsed<()> {
    let limits = |xattr: &Xattr| {
        (1..=MAX_XATTR_NAME).contains(&xattr.name.len()) && !xattr.name.contains(&0) && xattr.value.len() <= MAX_XATTR_VALUE
    };
    if xattrs.len() as u64 > MAX_XATTRS || !xattrs.iter().all(limits) {
        return Err(Malformed("an extended attribute is too long, or there are too many"));
    }
    if xattrs.is_sorted_by(|a, b| a.name < b.name) { Ok(()) } else { Err(Malformed("extended attributes are not sorted by name")) }
}

fn check_holes(size: u64, holes: &[(u64, u64)]) -> Parsed<()> {
    let mut free = 0;
    for (offset, len) in holes {
        let end = offset.checked_add(*len).filter(|end| *end <= size && *len > 0 && *offset >= free);
        free = end.ok_or(Malformed("the holes of a file overlap, are empty, or reach beyond its end"))?;
    }
    if holes.len() as u64 <= MAX_HOLES { Ok(()) } else { Err(Malformed("a file has too many holes")) }
}

/// Checks that chunks add up to `size`, none empty or too long (zeros may be of any length).
pub(super) fn check_chunks(size: u64, chunks: &[ChunkRef]) -> Parsed<()> {
    let mut sum = 0_u64;
    for chunk in chunks {
        if chunk.len == 0 || (chunk.id != ChunkId::ZERO && chunk.len as usize > MAX_CHUNK) {
            return Err(Malformed("a chunk of a file is empty or too long"));
        }
        sum = sum.saturating_add(u64::from(chunk.len));
    }
    if sum == size { Ok(()) } else { Err(Malformed("the chunks of a file do not add up to its size")) }
}

/// Appends an entry; its path is given by what it shares with `previous` and the rest. Its chunks are in `list` if given.
pub(super) fn encode(out: &mut Vec<u8>, previous: &[u8], entry: &Entry, list: Option<&List>) {
    put_path(out, previous, &entry.path);
    let (kind, mut flags) = match &entry.kind {
        EntryKind::File { holes, link, .. } => {
            (0, if holes.is_empty() { 0 } else { HOLES } | if *link == 0 { 0 } else { LINK } | if list.is_some() { LIST } else { 0 })
        }
        EntryKind::Folder => (1, 0),
        EntryKind::Symlink(_) => (2, 0),
        EntryKind::Fifo => (3, 0),
        EntryKind::Socket => (4, 0),
    };
    flags |= if entry.unstable { UNSTABLE } else { 0 } | if entry.xattrs.is_empty() { 0 } else { XATTRS };
    out.extend_from_slice(&[kind, flags]);
    put_varint(out, u64::from(entry.mode));
    put_varint(out, u64::from(entry.uid));
    put_varint(out, u64::from(entry.gid));
    put_signed(out, entry.mtime_ns);
    if !entry.xattrs.is_empty() {
        put_varint(out, entry.xattrs.len() as u64);
        for xattr in &entry.xattrs {
            put_bytes(out, &xattr.name);
            put_bytes(out, &xattr.value);
        }
    }
    match &entry.kind {
        EntryKind::Symlink(text) => put_bytes(out, text),
        EntryKind::File { size, chunks, holes, link } => {
            put_varint(out, *size);
            if *link != 0 {
                put_varint(out, *link);
            }
            if !holes.is_empty() {
                put_varint(out, holes.len() as u64);
                for (offset, len) in holes {
                    put_varint(out, *offset);
                    put_varint(out, *len);
                }
            }
            match list {
                Some(list) => {
                    out.extend_from_slice(&list.root.0);
                    put_varint(out, list.count);
                }
                None => {
                    put_varint(out, chunks.len() as u64);
                    put_chunks(out, chunks);
                }
            }
        }
        EntryKind::Folder | EntryKind::Fifo | EntryKind::Socket => {}
    }
}

/// Takes an entry; where it gives a list, its chunks are still to be read.
pub(super) fn decode(cursor: &mut Cursor<'_>, previous: &[u8]) -> Parsed<(Entry, Option<List>)> {
    let path = take_path(cursor, previous)?;
    let kind = cursor.u8()?;
    let flags = cursor.u8()?;
    let allowed = UNSTABLE | XATTRS | if kind == 0 { HOLES | LINK | LIST } else { 0 };
    if flags & !allowed != 0 {
        return Err(Malformed("an entry has unknown flags"));
    }
    let mode = cursor.at_most(0o7777, "a mode has more than 12 bits")? as u16;
    let uid = cursor.at_most(u64::from(u32::MAX), "an owner is too large")? as u32;
    let gid = cursor.at_most(u64::from(u32::MAX), "a group is too large")? as u32;
    let mtime_ns = cursor.signed()?;
    let mut xattrs = Vec::new();
    if flags & XATTRS != 0 {
        for _ in 0..some(cursor.at_most(MAX_XATTRS, "there are too many extended attributes")?)? {
            let name = cursor.bytes(MAX_XATTR_NAME, "the name of an extended attribute is too long")?.to_vec();
            let value = cursor.bytes(MAX_XATTR_VALUE, "an extended attribute is too long")?.to_vec();
            xattrs.push(Xattr { name, value });
        }
    }
    let mut list = None;
    let kind = match kind {
        0 => file(cursor, flags, &mut list)?,
        1 => EntryKind::Folder,
        2 => EntryKind::Symlink(cursor.bytes(MAX_LINK, "the text of a symbolic link is too long")?.to_vec()),
        3 => EntryKind::Fifo,
        4 => EntryKind::Socket,
        _ => return Err(Malformed("the type of an entry is unknown")),
    };
    let entry = Entry { path, kind, mode, uid, gid, mtime_ns, xattrs, unstable: flags & UNSTABLE != 0 };
    check(&entry)?;
    if let (EntryKind::File { size, chunks, .. }, None) = (&entry.kind, &list) {
        check_chunks(*size, chunks)?;
    }
    Ok((entry, list))
}

fn file(cursor: &mut Cursor<'_>, flags: u8, list: &mut Option<List>) -> Parsed<EntryKind> {
    let size = cursor.varint()?;
    let link = if flags & LINK != 0 { some(cursor.varint()?)? } else { 0 };
    let mut holes = Vec::new();
    if flags & HOLES != 0 {
        for _ in 0..some(cursor.at_most(MAX_HOLES, "a file has too many holes")?)? {
            holes.push((cursor.varint()?, cursor.varint()?));
        }
    }
    let mut chunks = Vec::new();
    if flags & LIST != 0 {
        *list = Some(List { root: ChunkId(cursor.array()?), count: cursor.varint()? });
    } else {
        let count = cursor.at_most(INLINE as u64, "a chunk list is too long to stand in its entry")?;
        chunks = take_chunks(cursor, count)?;
    }
    Ok(EntryKind::File { size, chunks, holes, link })
}

/// A flag is set only for something that is there, so that every entry has one form.
fn some(number: u64) -> Parsed<u64> {
    if number == 0 { Err(Malformed("a flag is set for nothing")) } else { Ok(number) }
}

/// Appends ids and lengths.
pub(super) fn put_chunks(out: &mut Vec<u8>, chunks: &[ChunkRef]) {
    for chunk in chunks {
        out.extend_from_slice(&chunk.id.0);
        put_varint(out, u64::from(chunk.len));
    }
}

/// Takes `count` ids and lengths.
pub(super) fn take_chunks(cursor: &mut Cursor<'_>, count: u64) -> Parsed<Vec<ChunkRef>> {
    (0..count)
        .map(|_| Ok(ChunkRef { id: ChunkId(cursor.array()?), len: cursor.at_most(u64::from(u32::MAX), "a chunk is too long")? as u32 }))
        .collect()
}

/// Appends a path as the number of bytes that it shares with `previous`, and the rest.
pub(super) fn put_path(out: &mut Vec<u8>, previous: &[u8], path: &[u8]) {
    let shared = previous.iter().zip(path).take_while(|(a, b)| a == b).count();
    put_varint(out, shared as u64);
    put_bytes(out, path.get(shared..).unwrap_or_default());
}

/// Takes a path and checks it.
pub(super) fn take_path(cursor: &mut Cursor<'_>, previous: &[u8]) -> Parsed<Vec<u8>> {
    let shared = cursor.at_most(MAX_PATH as u64, "a path is too long")? as usize;
    let mut path = previous.get(..shared).ok_or(Malformed("a path shares more than there is"))?.to_vec();
    path.extend_from_slice(cursor.bytes(MAX_PATH, "a path is too long")?);
    check_path(&path)?;
    Ok(path)
}
