//! Chunk ids and how content is cut.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind};

/// The most plain bytes that one chunk may have: 4 MiB.
pub(super) const MAX_CHUNK: usize = 4 << 20;

/// BLAKE3-256 of a chunk's plain bytes. As text, and in JSON, 64 lower-case hexadecimal characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 32]);

impl ChunkId {
    /// Stands for any number of zero bytes; nothing is stored for it.
    pub const ZERO: ChunkId = ChunkId([0; 32]);

    /// The id of these bytes: [`ChunkId::ZERO`] where all of them are zero (or there are none).
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        if all_zero(bytes) { Self::ZERO } else { Self(*blake3::hash(bytes).as_bytes()) }
    }

    /// The first half, by which the index finds a chunk.
    pub(super) fn prefix(&self) -> [u8; 16] {
        let mut prefix = [0; 16];
        prefix.iter_mut().zip(self.0).for_each(|(to, from)| *to = from);
        prefix
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkId({self})")
    }
}

impl FromStr for ChunkId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        from_hex(text).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("{text:?} is not a chunk id: 64 lower-case hexadecimal characters"))
        })
    }
}

impl Serialize for ChunkId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChunkId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One chunk of a file: its id and its plain length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkRef {
    /// The id; [`ChunkId::ZERO`] stands for `len` zero bytes that take no space.
    pub id: ChunkId,
    /// Plain bytes.
    pub len: u32,
}

/// How a file's content is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutting {
    /// Fixed 32 KiB from offset 0: Postgres relation files and SLRU segments.
    Pages,
    /// Fixed 1 MiB: sealed WAL segments.
    Wal,
    /// Whole up to 128 KiB, then FastCDC 32/128/512 KiB: everything else.
    Content,
}

/// Bytes of a chunk of [`Cutting::Pages`].
pub(super) const PAGES: usize = 32 << 10;
/// Bytes of a chunk of [`Cutting::Wal`].
pub(super) const WAL: usize = 1 << 20;
/// A file of [`Cutting::Content`] up to this size is one chunk.
pub(super) const WHOLE: usize = 128 << 10;
/// FastCDC's smallest, average and largest chunk.
pub(super) const CDC: [usize; 3] = [32 << 10, 128 << 10, 512 << 10];

impl Cutting {
    /// The length of the first chunk of `window`, the bytes of a file from offset 0 (`first`) or from a cut on; `eof`
    /// tells that the file ends with them. `None` where more bytes are needed first, or none are left.
    pub(crate) fn next(self, window: &[u8], first: bool, eof: bool) -> Option<usize> {
        let fixed = |size: usize| if window.len() >= size { Some(size) } else { (eof && !window.is_empty()).then_some(window.len()) };
        match self {
            Cutting::Pages => fixed(PAGES),
            Cutting::Wal => fixed(WAL),
            Cutting::Content if first && eof && window.len() <= WHOLE => (!window.is_empty()).then_some(window.len()),
            Cutting::Content => {
                let [min, average, max] = CDC;
                if window.is_empty() || (!eof && window.len() < max) {
                    return None;
                }
                let (small, large) = fastcdc::v2020::select_masks(average, fastcdc::v2020::Normalization::Level1);
                Some(fastcdc::v2020::cut(window, min, average, max, small, large, small << 1, large << 1).1)
            }
        }
    }
}

/// How zeros are cut: where so many of them (`window`) follow a cut, the next chunk has `len` of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZeroRun {
    pub(crate) window: u64,
    pub(crate) len: u32,
}

impl ZeroRun {
    /// That of [`Cutting::Content`].
    pub(crate) fn of_content() -> Option<Self> {
        let [_, _, window] = CDC;
        let len = Cutting::Content.next(&vec![0; window], false, false)?;
        Some(Self { window: window as u64, len: u32::try_from(len).ok()? })
    }

    /// Appends the chunks of the zeros from the cut at `offset` on that lie in a hole, exactly as if they had been read and
    /// cut, and gives the offset of the first byte that has to be read.
    pub(crate) fn skip(self, holes: &[(u64, u64)], mut offset: u64, chunks: &mut Vec<ChunkRef>) -> u64 {
        let after = holes.partition_point(|(start, _)| *start <= offset);
        let hole = after.checked_sub(1).and_then(|at| holes.get(at));
        let end = hole.map_or(0, |(start, length)| start + length);
        // One byte is left over, so that the file's end is read and not assumed.
        while offset + self.window < end {
            chunks.push(ChunkRef { id: ChunkId::ZERO, len: self.len });
            offset += u64::from(self.len);
        }
        offset
    }
}

/// Whether every byte is zero; one comparison of the slice with itself, shifted by a byte.
pub(super) fn all_zero(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        None => true,
        Some((first, tail)) => *first == 0 && bytes.get(..tail.len()) == Some(tail),
    }
}

/// 64 lower-case hexadecimal characters.
pub(super) fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}

/// The bytes behind exactly 64 lower-case hexadecimal characters.
pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let lower = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    lower.then(|| blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())).flatten()
}
