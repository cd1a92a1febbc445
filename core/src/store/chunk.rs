//! Chunk ids and how content is cut.

/// BLAKE3-256 of a chunk's plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ChunkId(pub [u8; 32]);

/// One chunk of a file: its id and its plain length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
