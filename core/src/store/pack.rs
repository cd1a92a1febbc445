//! The bytes of a pack: header, blobs each with a header of its own, footer table, trailer. Pure; files are elsewhere.

use super::ChunkId;
use super::codec::Codec;
use super::layout::PackId;
use super::wire::{Cursor, Malformed, Parsed};

/// A pack is closed when it has grown to this size.
pub(super) const TARGET: usize = 32 << 20;
/// No pack is larger.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// No pack has more blobs.
pub(super) const MAX_BLOBS: usize = 16_384;
pub(super) const HEADER: usize = 32;
pub(super) const BLOB_HEADER: usize = 56;
const ENTRY: usize = 48;
pub(super) const TRAILER: usize = 64;

const MAGIC: &[u8; 8] = b"FLKPACK\n";
const BLOB_MAGIC: &[u8; 4] = b"FLKB";
const TRAILER_MAGIC: &[u8; 8] = b"FLKTAIL\n";
const VERSION: u32 = 1;

/// What a blob, or a whole pack, holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// File content.
    Data = 1,
    /// Manifest blocks and chunk-list nodes.
    Metadata = 2,
    /// Of a pack only: both, because both were small.
    Mixed = 3,
}

/// One blob of a pack, as its header and the footer describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) id: ChunkId,
    /// Of the blob's header, from the start of the pack.
    pub(super) offset: u32,
    pub(super) stored: u32,
    pub(super) plain: u32,
    pub(super) kind: Kind,
    pub(super) codec: Codec,
}

impl Blob {
    /// The 56 bytes before the payload.
    pub(super) fn header(&self) -> [u8; BLOB_HEADER] {
        let mut out = Vec::with_capacity(BLOB_HEADER);
        out.extend_from_slice(BLOB_MAGIC);
        out.extend_from_slice(&[self.kind as u8, self.codec as u8, 0, 0]);
        out.extend_from_slice(&self.plain.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.id.0);
        let check = blake3::hash(&out);
        out.extend(check.as_bytes().iter().take(8));
        let mut header = [0; BLOB_HEADER];
        header.iter_mut().zip(out).for_each(|(to, from)| *to = from);
        header
    }

    /// Parses a blob's header found at `offset`.
    pub(super) fn parse(bytes: &[u8], offset: u32) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        let covered = bytes.get(..BLOB_HEADER - 8).ok_or(Malformed("it ends too early"))?;
        cursor.expect(BLOB_MAGIC, "no chunk begins there")?;
        let (kind, codec) = kind_and_codec(&mut cursor)?;
        let plain = cursor.u32()?;
        let stored = cursor.u32()?;
        let id = ChunkId(cursor.array()?);
        if !blake3::hash(covered).as_bytes().starts_with(cursor.take(8)?) {
            return Err(Malformed("the header of the chunk is damaged"));
        }
        codec.check_lengths(plain, stored)?;
        Ok(Self { id, offset, stored, plain, kind, codec })
    }

    /// The first byte after the payload.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.offset) + BLOB_HEADER as u64 + u64::from(self.stored)
    }
}

fn kind_and_codec(cursor: &mut Cursor<'_>) -> Parsed<(Kind, Codec)> {
    let kind = match cursor.u8()? {
        1 => Kind::Data,
        2 => Kind::Metadata,
        _ => return Err(Malformed("its kind is unknown")),
    };
    let codec = Codec::of(cursor.u8()?)?;
    if cursor.array::<2>()? == [0, 0] { Ok((kind, codec)) } else { Err(Malformed("it has unknown flags")) }
}

/// The first bytes of a pack.
pub(super) fn header(kind: Kind, uuid: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    out.extend_from_slice(uuid);
    out
}

/// Checks a pack's first bytes.
pub(super) fn check_header(bytes: &[u8], uuid: &[u8; 16]) -> Parsed<()> {
    let mut cursor = Cursor::new(bytes);
    cursor.expect(MAGIC, "it is not a pack")?;
    cursor.expect(&VERSION.to_le_bytes(), "it has another version")?;
    if !matches!(cursor.array::<4>()?, [1..=3, 0, 0, 0]) {
        return Err(Malformed("its kind is unknown"));
    }
    cursor.expect(uuid, "it belongs to another store")
}

/// Footer table and trailer for these blobs, which end at `footer_offset`.
pub(super) fn tail(blobs: &[Blob], footer_offset: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(blobs.len() * ENTRY + TRAILER);
    for blob in blobs {
        out.extend_from_slice(&blob.offset.to_le_bytes());
        out.extend_from_slice(&blob.stored.to_le_bytes());
        out.extend_from_slice(&blob.plain.to_le_bytes());
        out.extend_from_slice(&[blob.kind as u8, blob.codec as u8, 0, 0]);
        out.extend_from_slice(&blob.id.0);
    }
    let hash = blake3::hash(&out);
    let len = out.len() as u64;
    out.extend_from_slice(TRAILER_MAGIC);
    out.extend_from_slice(&footer_offset.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&(blobs.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(hash.as_bytes());
    out
}

/// Where a trailer says that the footer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) offset: u64,
    pub(super) len: u64,
    count: u32,
    hash: [u8; 32],
}

impl Trailer {
    /// Parses the last [`TRAILER`] bytes of a pack of `size` bytes.
    pub(super) fn parse(bytes: &[u8], size: u64) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(TRAILER_MAGIC, "its trailer is missing")?;
        let (offset, len, count) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        cursor.expect(&[0; 4], "its trailer is damaged")?;
        let trailer = Self { offset, len, count, hash: cursor.array()? };
        cursor.end()?;
        let whole = trailer.offset.checked_add(trailer.len).and_then(|end| end.checked_add(TRAILER as u64));
        let counted = u64::from(trailer.count) * ENTRY as u64 == trailer.len && trailer.count as usize <= MAX_BLOBS;
        if whole != Some(size) || !counted || trailer.offset < HEADER as u64 || size > MAX_BYTES {
            return Err(Malformed("its trailer does not fit its size"));
        }
        Ok(trailer)
    }

    /// Parses the footer table.
    pub(super) fn blobs(&self, footer: &[u8]) -> Parsed<Vec<Blob>> {
        if *blake3::hash(footer).as_bytes() != self.hash {
            return Err(Malformed("its footer is damaged"));
        }
        let mut cursor = Cursor::new(footer);
        let mut blobs = Vec::with_capacity(self.count.min(MAX_BLOBS as u32) as usize);
        let mut next = HEADER as u64;
        for _ in 0..self.count {
            let offset = cursor.u32()?;
            let stored = cursor.u32()?;
            let plain = cursor.u32()?;
            let (kind, codec) = kind_and_codec(&mut cursor)?;
            let blob = Blob { id: ChunkId(cursor.array()?), offset, stored, plain, kind, codec };
            codec.check_lengths(plain, stored)?;
            if u64::from(offset) != next || blob.end() > self.offset {
                return Err(Malformed("its footer names bytes outside of its chunks"));
            }
            next = blob.end();
            blobs.push(blob);
        }
        cursor.end()?;
        Ok(blobs)
    }
}

/// The size of a pack of so many blobs, which take `body` bytes with their headers.
pub(super) fn file_size(blobs: usize, body: u64) -> u64 {
    (HEADER + blobs * ENTRY + TRAILER) as u64 + body
}

/// The blobs of a whole pack in memory, by its footer.
pub(super) fn parse(bytes: &[u8], uuid: &[u8; 16]) -> Parsed<Vec<Blob>> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Malformed("it is too long"));
    }
    check_header(bytes, uuid)?;
    let at = bytes.len().checked_sub(TRAILER).ok_or(Malformed("it is too short"))?;
    let trailer = Trailer::parse(bytes.get(at..).unwrap_or_default(), bytes.len() as u64)?;
    let footer = bytes.get(trailer.offset as usize..at).ok_or(Malformed("its trailer does not fit its size"))?;
    trailer.blobs(footer)
}

/// The blobs of a pack whose footer is lost: found by their headers, each payload checked against its id.
pub(super) fn salvage(bytes: &[u8]) -> Vec<Blob> {
    let mut blobs = Vec::new();
    let mut at = HEADER;
    while blobs.len() < MAX_BLOBS {
        let Some(rest) = bytes.get(at..) else { break };
        let Some(found) = rest.windows(BLOB_MAGIC.len()).position(|window| window == BLOB_MAGIC) else { break };
        at += found;
        let blob = bytes.get(at..).map(|rest| Blob::parse(rest, at as u32));
        match blob {
            Some(Ok(blob)) if payload(bytes, &blob).is_some_and(|payload| check(&blob, payload).is_ok()) => {
                at = blob.end() as usize;
                blobs.push(blob);
            }
            _ => at += BLOB_MAGIC.len(),
        }
    }
    blobs
}

pub(super) fn payload<'a>(pack: &'a [u8], blob: &Blob) -> Option<&'a [u8]> {
    pack.get(blob.offset as usize + BLOB_HEADER..usize::try_from(blob.end()).ok()?)
}

/// The plain bytes of a blob, whose hash is its id.
pub(super) fn check(blob: &Blob, payload: &[u8]) -> Parsed<Vec<u8>> {
    let mut plain = Vec::new();
    check_into(blob, payload, &mut plain)?;
    Ok(plain)
}

/// As [`check`], into a buffer whose content it replaces; worth nothing where it fails.
pub(super) fn check_into(blob: &Blob, payload: &[u8], plain: &mut Vec<u8>) -> Parsed<()> {
    super::codec::decode_into(blob.codec, payload, blob.plain, plain)?;
    if *blake3::hash(plain).as_bytes() == blob.id.0 { Ok(()) } else { Err(Malformed("its bytes do not match its hash")) }
}

/// A pack in memory that takes more blobs.
#[derive(Debug, Default)]
pub(super) struct OpenPack {
    body: Vec<u8>,
    blobs: Vec<Blob>,
}

impl OpenPack {
    pub(super) fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Whether it has to be written before it takes more.
    pub(super) fn is_full(&self, target: usize) -> bool {
        self.body.len() >= target || self.blobs.len() >= MAX_BLOBS
    }

    /// Whether all of `other` fits in as well.
    pub(super) fn has_room_for(&self, other: &OpenPack, target: usize) -> bool {
        self.body.len() + other.body.len() <= target && self.blobs.len() + other.blobs.len() <= MAX_BLOBS
    }

    pub(super) fn push(&mut self, id: ChunkId, kind: Kind, plain: u32, codec: Codec, payload: &[u8]) {
        let blob = Blob { id, offset: (HEADER + self.body.len()) as u32, stored: payload.len() as u32, plain, kind, codec };
        self.body.extend_from_slice(&blob.header());
        self.body.extend_from_slice(payload);
        self.blobs.push(blob);
    }

    /// Appends the blobs of another.
    pub(super) fn append(&mut self, other: OpenPack) {
        let shift = self.body.len() as u32;
        self.body.extend_from_slice(&other.body);
        self.blobs.extend(other.blobs.into_iter().map(|blob| Blob { offset: blob.offset + shift, ..blob }));
    }

    /// Closes it: its name, its bytes in three parts, and its blobs.
    pub(super) fn close(self, uuid: &[u8; 16]) -> (PackId, [Vec<u8>; 3], Vec<Blob>) {
        let data = self.blobs.iter().any(|blob| blob.kind == Kind::Data);
        let metadata = self.blobs.iter().any(|blob| blob.kind == Kind::Metadata);
        let kind = match (data, metadata) {
            (true, true) => Kind::Mixed,
            (false, true) => Kind::Metadata,
            _ => Kind::Data,
        };
        let tail = tail(&self.blobs, (HEADER + self.body.len()) as u64);
        let parts = [header(kind, uuid), self.body, tail];
        let mut hasher = blake3::Hasher::new();
        for part in &parts {
            hasher.update(part);
        }
        (PackId(*hasher.finalize().as_bytes()), parts, self.blobs)
    }
}
