//! Entry points for fuzzing: every parser of the store's formats, with what must hold of whatever parses.
//!
//! Formats that end with a hash are also tried with the hash put right, since no fuzzer finds one. Not part of the library's
//! interface: it is there in tests and with the feature `fuzzing` only.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::ChunkId;
use super::chunk::MAX_CHUNK;
use super::codec;
use super::format::{Format, Use};
use super::index::{Row, Segment};
use super::layout::PackId;
use super::manifest;
use super::pack::{self, BLOB_HEADER, Blob, HEADER, TRAILER, Trailer};
use super::refs;
use super::verify::of_bytes;
use crate::error::{Error, Result};
use crate::sys::fs;
use crate::sys::tree::Root;

/// One target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target but [`restore_path`], which needs a folder.
pub const TARGETS: [Target; 6] = [
    ("pack_footer", pack_footer),
    ("blob_header", blob_header),
    ("index_segment", index_segment),
    ("manifest_block", manifest_block),
    ("reference", reference),
    ("format", format),
];

/// The input as a whole pack: by its footer, by its headers, and as verify looks at it.
pub fn pack_footer(input: &[u8]) {
    let uuid = uuid(input, 16);
    whole_pack(input, &uuid);
    let sealed = seal_footer(input);
    if let Some(sealed) = &sealed {
        whole_pack(sealed, &uuid);
    }
    for blob in pack::salvage(input) {
        let payload = pack::payload(input, &blob).unwrap_or_default();
        assert!(pack::check(&blob, payload).is_ok(), "what is salvaged is whole");
    }
}

fn whole_pack(input: &[u8], uuid: &[u8; 16]) {
    let id = PackId(*blake3::hash(input).as_bytes());
    let examined = of_bytes(input, uuid, &id, true);
    let Ok(blobs) = pack::parse(input, uuid) else {
        assert!(examined.problem.is_some(), "a pack that does not parse is damaged");
        return;
    };
    let body: u64 = blobs.iter().map(|blob| BLOB_HEADER as u64 + u64::from(blob.stored)).sum();
    assert_eq!(pack::file_size(blobs.len(), body), input.len() as u64, "a pack has no gaps");
    assert!(input.ends_with(&pack::tail(&blobs, HEADER as u64 + body)), "a footer has one form");
    assert!(examined.whole.len() + examined.broken.len() >= blobs.len());
}

/// The same pack with the hash of its footer put right.
fn seal_footer(input: &[u8]) -> Option<Vec<u8>> {
    let at = input.len().checked_sub(TRAILER)?;
    let trailer = Trailer::parse(input.get(at..)?, input.len() as u64).ok()?;
    let hash = blake3::hash(input.get(usize::try_from(trailer.offset).ok()?..at)?);
    let mut sealed = input.to_vec();
    sealed.truncate(input.len() - hash.as_bytes().len());
    sealed.extend_from_slice(hash.as_bytes());
    Some(sealed)
}

/// The input as a blob: its header and its payload.
pub fn blob_header(input: &[u8]) {
    blob(input);
    if let Some((covered, rest)) = input.split_at_checked(BLOB_HEADER - 8) {
        let check = blake3::hash(covered);
        blob(&[covered, check.as_bytes().get(..8).unwrap_or_default(), rest.get(8..).unwrap_or_default()].concat());
    }
}

fn blob(input: &[u8]) {
    let Ok(blob) = Blob::parse(input, 0) else { return };
    assert!(input.starts_with(&blob.header()), "a header has one form");
    assert!(blob.plain as usize <= MAX_CHUNK && blob.stored <= blob.plain);
    let rest = input.get(BLOB_HEADER..).unwrap_or_default();
    // Whatever follows, not only as much as the header says.
    let mut plain = Vec::new();
    if codec::decode_into(blob.codec, rest, blob.plain, &mut plain).is_ok() {
        assert!(plain.len() == blob.plain as usize || plain.len() == rest.len());
    }
    if let Some(payload) = pack::payload(input, &blob)
        && let Ok(plain) = pack::check(&blob, payload)
    {
        assert_eq!((plain.len(), ChunkId(*blake3::hash(&plain).as_bytes())), (blob.plain as usize, blob.id));
    }
}

/// The input as an index segment.
pub fn index_segment(input: &[u8]) {
    let uuid = uuid(input, 32);
    segment(input.to_vec(), &uuid);
    if let Some(end) = input.len().checked_sub(32) {
        let mut sealed = input.to_vec();
        sealed.truncate(end);
        let hash = blake3::hash(&sealed);
        sealed.extend_from_slice(hash.as_bytes());
        segment(sealed, &uuid);
    }
}

fn segment(input: Vec<u8>, uuid: &[u8; 16]) {
    let len = input.len();
    let Ok(segment) = Segment::parse(input.clone(), uuid) else { return };
    assert!(segment.memory() <= 2 * len + 4096, "a segment takes what its file takes");
    let rows: Vec<Row> = segment.rows().collect();
    assert_eq!(rows.len(), segment.len());
    assert_eq!(Segment::encode(uuid, segment.sequence, segment.packs(), &rows), input, "a segment has one form");
    for row in rows.iter().take(512) {
        let mut id = ChunkId([0; 32]);
        id.0.iter_mut().zip(row.prefix).for_each(|(to, from)| *to = from);
        let known = rows.iter().filter(|other| other.prefix == row.prefix && segment.location(other).is_some()).count();
        assert_eq!(segment.find(&id).count(), known, "every copy is found");
    }
}

/// The input as a block of a manifest and as a node of a chunk list.
pub fn manifest_block(input: &[u8]) {
    manifest::check_any(input);
}

/// The input as the file of a ref, and as the JSON in one.
pub fn reference(input: &[u8]) {
    let read = refs::decode(input).ok();
    let sealed = std::str::from_utf8(input).ok().and_then(refs::seal).and_then(|text| refs::decode(text.as_bytes()).ok());
    for reference in [read, sealed].into_iter().flatten() {
        if let Ok(text) = refs::encode(&reference) {
            let again = refs::decode(&text);
            assert!(again.is_ok_and(|again| again.id == reference.id), "what is written is read");
        }
    }
}

/// The input as a `FORMAT`.
pub fn format(input: &[u8]) {
    let path = Path::new("FORMAT");
    let Ok(format) = Format::decode(input, path) else { return };
    assert!(format.uuid_bytes().is_some());
    for what in [Use::Read, Use::Write, Use::Prune] {
        format.allow(what, path).ok();
    }
    let again = format.encode().and_then(|text| Format::decode(&text, path));
    assert!(again.is_ok_and(|again| again == format), "what is written is read");
}

/// Makes the folder in which [`restore_path`] resolves names, with links that lead out of it.
///
/// # Errors
/// `Io`.
pub fn plant(folder: &Path) -> Result<PathBuf> {
    let (root, outside) = (folder.join("root"), folder.join("outside"));
    for made in [&root, &outside, &root.join("a"), &root.join("a/b")] {
        fs::make_folder(made, 0o700)?;
    }
    for file in [root.join("f"), root.join("a/f"), root.join("a/b/f"), outside.join("f")] {
        drop(fs::create_new(&file, 0o600)?);
    }
    for (text, link) in [("../outside", "out"), ("..", "up"), ("b", "a/in"), ("/", "a/top"), ("../../outside/f", "a/b/out")] {
        let link = root.join(link);
        std::os::unix::fs::symlink(text, &link).map_err(|source| Error::io("link", &link, source))?;
    }
    root.canonicalize().map_err(|source| Error::io("resolve", &root, source))
}

/// The input as the path of an entry that is restored below a folder that [`plant`] made: nothing outside of it is reached.
///
/// # Errors
/// `Io` where the folder cannot be opened.
pub fn restore_path(planted: &Path, input: &[u8]) -> Result<()> {
    let root = Root::open(planted)?;
    let opened = [root.parent(input).ok(), root.folder(input).ok(), root.file(input).ok().map(Into::into)];
    for found in opened.into_iter().flatten() {
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        // Not there on other systems; where it is, it says what was opened.
        if let Ok(real) = std::fs::read_link(&link) {
            assert!(real.starts_with(planted), "{} was reached", real.display());
        }
    }
    root.stat(input).ok();
    if manifest::check_path(input).is_ok() {
        #[cfg(target_os = "linux")]
        assert!(root.agrees(input), "both ways of resolving a path say the same");
        let relative = Path::new(std::ffi::OsStr::from_bytes(input));
        assert!(relative.components().all(|part| matches!(part, Component::Normal(_))), "a checked path only goes down");
        assert!(planted.join(relative).starts_with(planted));
    }
    Ok(())
}

/// The uuid that stands in the input itself.
fn uuid(input: &[u8], at: usize) -> [u8; 16] {
    input.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}
