//! One index segment: the packs it covers and a sorted row of 32 bytes for each of their chunks.

use crate::store::ChunkId;
use crate::store::codec::Codec;
use crate::store::layout::PackId;
use crate::store::pack::Blob;
use crate::store::wire::{Cursor, Malformed, Parsed};

const MAGIC: &[u8; 8] = b"FLKINDX\n";
const VERSION: u32 = 1;
pub(super) const HEADER: usize = 48;
const PACK: usize = 40;
const ROW: usize = 32;
const HASH: usize = 32;

/// Where one copy of a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Location {
    pub(in crate::store) pack: PackId,
    pub(in crate::store) pack_size: u64,
    /// Of the blob's header.
    pub(in crate::store) offset: u32,
    pub(in crate::store) stored: u32,
    pub(in crate::store) plain: u32,
    pub(in crate::store) codec: Codec,
    /// Which of the segment's packs.
    pub(in crate::store) ordinal: u32,
}

/// A row: 16 bytes of id, pack ordinal, offset, stored length, plain length with the codec in its top byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::store) struct Row {
    pub(in crate::store) prefix: [u8; 16],
    pub(in crate::store) pack: u32,
    pub(in crate::store) offset: u32,
    pub(in crate::store) stored: u32,
    pub(in crate::store) plain_codec: u32,
}

impl Row {
    pub(in crate::store) fn of(blob: &Blob, pack: u32) -> Self {
        let plain_codec = blob.plain | (blob.codec as u32) << 24;
        Self { prefix: blob.id.prefix(), pack, offset: blob.offset, stored: blob.stored, plain_codec }
    }

    fn parse(bytes: &[u8; ROW]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        Ok(Self { prefix: cursor.array()?, pack: cursor.u32()?, offset: cursor.u32()?, stored: cursor.u32()?, plain_codec: cursor.u32()? })
    }

    pub(in crate::store) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        for number in [self.pack, self.offset, self.stored, self.plain_codec] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// A parsed segment; its rows stay as the file has them.
#[derive(Debug)]
pub(in crate::store) struct Segment {
    bytes: Vec<u8>,
    packs: Vec<(PackId, u64)>,
    rows: std::ops::Range<usize>,
    /// For each first byte of an id, the first row that is not below it; and the end.
    fan: Vec<u32>,
    /// Later segments have higher numbers; of two processes at once, both may have the same.
    pub(in crate::store) sequence: u64,
}

impl Segment {
    /// The file of a segment, without reading it back. `rows` must be sorted.
    pub(in crate::store) fn encode(uuid: &[u8; 16], sequence: u64, packs: &[(PackId, u64)], rows: &[Row]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + packs.len() * PACK + rows.len() * ROW + HASH);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(packs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(rows.len() as u64).to_le_bytes());
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(uuid);
        for (id, size) in packs {
            out.extend_from_slice(&id.0);
            out.extend_from_slice(&size.to_le_bytes());
        }
        for row in rows {
            row.encode(&mut out);
        }
        let hash = blake3::hash(&out);
        out.extend_from_slice(hash.as_bytes());
        out
    }

    /// The hash that ends the file and names it.
    pub(in crate::store) fn hash(bytes: &[u8]) -> Option<&[u8; HASH]> {
        bytes.last_chunk()
    }

    /// Checks the first bytes of a file of `len` bytes; gives where its rows begin and end, and its sequence.
    pub(in crate::store) fn check_header(bytes: &[u8], len: u64, uuid: &[u8; 16]) -> Parsed<(usize, usize, u64)> {
        let mut cursor = Cursor::new(bytes);
        cursor.expect(MAGIC, "it is not an index segment")?;
        cursor.expect(&VERSION.to_le_bytes(), "it has another version")?;
        let pack_count = cursor.u32()? as usize;
        let row_count = usize::try_from(cursor.u64()?).map_err(|_| Malformed("it has too many rows"))?;
        let sequence = cursor.u64()?;
        cursor.expect(uuid, "it belongs to another store")?;
        let start = pack_count.checked_mul(PACK).and_then(|len| len.checked_add(HEADER));
        let end = row_count.checked_mul(ROW).zip(start).and_then(|(len, start)| len.checked_add(start));
        let (Some(start), Some(end)) = (start, end) else { return Err(Malformed("its counts are impossible")) };
        if end.checked_add(HASH).map(|end| end as u64) != Some(len) || u32::try_from(row_count).is_err() {
            return Err(Malformed("its counts do not fit its size"));
        }
        Ok((start, end, sequence))
    }

    /// Parses a file and checks its hash, its lengths and the order of its rows.
    pub(in crate::store) fn parse(bytes: Vec<u8>, uuid: &[u8; 16]) -> Parsed<Self> {
        let (start, end, sequence) = Self::check_header(&bytes, bytes.len() as u64, uuid)?;
        let mut cursor = Cursor::new(bytes.get(HEADER..start).unwrap_or_default());
        let pack_count = (start - HEADER) / PACK;
        let covered = bytes.get(..end).ok_or(Malformed("it ends too early"))?;
        if Some(blake3::hash(covered).as_bytes()) != Self::hash(&bytes) {
            return Err(Malformed("its hash is wrong"));
        }
        let mut packs = Vec::with_capacity(pack_count);
        for _ in 0..pack_count {
            packs.push((PackId(cursor.array()?), cursor.u64()?));
        }
        let mut segment = Self { bytes, packs, rows: start..end, fan: Vec::new(), sequence };
        segment.fan = segment.fan_out()?;
        Ok(segment)
    }

    fn fan_out(&self) -> Parsed<Vec<u32>> {
        let mut fan = Vec::with_capacity(257);
        let mut last: Option<&[u8; 16]> = None;
        for (at, row) in self.raw_rows().iter().enumerate() {
            let prefix = row.first_chunk::<16>().ok_or(Malformed("it ends too early"))?;
            if last.is_some_and(|last| last > prefix) {
                return Err(Malformed("its rows are not sorted"));
            }
            last = Some(prefix);
            let [first, ..] = *prefix;
            while fan.len() <= usize::from(first) {
                fan.push(at as u32);
            }
        }
        fan.resize(257, self.raw_rows().len() as u32);
        Ok(fan)
    }

    fn raw_rows(&self) -> &[[u8; ROW]] {
        self.bytes.get(self.rows.clone()).unwrap_or_default().as_chunks::<ROW>().0
    }

    /// How many chunks it has.
    pub(in crate::store) fn len(&self) -> usize {
        self.raw_rows().len()
    }

    /// Bytes that it takes in memory.
    pub(in crate::store) fn memory(&self) -> usize {
        self.bytes.capacity() + self.packs.capacity() * size_of::<(PackId, u64)>() + self.fan.capacity() * size_of::<u32>()
    }

    /// The packs it covers and their sizes in bytes.
    pub(in crate::store) fn packs(&self) -> &[(PackId, u64)] {
        &self.packs
    }

    /// Every row, in order; what cannot be parsed is left out.
    pub(in crate::store) fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.raw_rows().iter().filter_map(|row| Row::parse(row).ok())
    }

    /// Every copy of a chunk that it knows.
    pub(in crate::store) fn find<'a>(&'a self, id: &ChunkId) -> impl Iterator<Item = Location> + use<'a> {
        let prefix = id.prefix();
        let bucket = usize::from(prefix.first().copied().unwrap_or_default());
        let bound = |at: usize| self.fan.get(at).copied().unwrap_or_default() as usize;
        let bucket_rows = self.raw_rows().get(bound(bucket)..bound(bucket + 1)).unwrap_or_default();
        let start = bucket_rows.partition_point(|row| row.first_chunk::<16>().is_some_and(|have| *have < prefix));
        bucket_rows
            .iter()
            .skip(start)
            .take_while(move |row| row.first_chunk::<16>() == Some(&prefix))
            .filter_map(|row| Row::parse(row).ok())
            .filter_map(|row| self.location(&row))
    }

    /// The place that a row names, unless its pack ordinal or codec is unknown.
    pub(in crate::store) fn location(&self, row: &Row) -> Option<Location> {
        let (pack, pack_size) = *self.packs.get(row.pack as usize)?;
        let codec = Codec::of((row.plain_codec >> 24) as u8).ok()?;
        let plain = row.plain_codec & 0x00ff_ffff;
        Some(Location { pack, pack_size, offset: row.offset, stored: row.stored, plain, codec, ordinal: row.pack })
    }
}
