//! `FORMAT`: what a store is, which version wrote it, and what a program must know to use it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::chunk::{CDC, PAGES, WAL, WHOLE};
use crate::error::{Error, ErrorKind, Result};

/// The version this build writes and the newest it reads.
pub(super) const VERSION: u32 = 1;
const MAGIC: &str = "forklift store";
/// A longer file is not ours.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// The content of `FORMAT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Format {
    magic: String,
    pub(super) version: u32,
    /// 32 hexadecimal characters, also in every pack and index segment.
    pub(super) uuid: String,
    chunker: Chunker,
    features: Features,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunker {
    pages: u64,
    wal: u64,
    whole: u64,
    content: String,
    min: u64,
    average: u64,
    max: u64,
    normalization: u32,
    seed: u64,
}

/// Features that a program must know before it may do these things; this build knows none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Features {
    read: Vec<String>,
    write: Vec<String>,
    prune: Vec<String>,
}

/// What somebody wants to do with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    Prune,
}

/// Enough of a `FORMAT` to tell its version, whatever else is in it.
#[derive(Deserialize)]
struct Head {
    magic: String,
    version: u32,
}

impl Format {
    /// The format of a new store.
    pub(super) fn new(uuid: &[u8; 16]) -> Self {
        let uuid = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { magic: MAGIC.to_owned(), version: VERSION, uuid, chunker: Chunker::ours(), features: Features::default() }
    }

    /// As the file holds it.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| Error::new(ErrorKind::Internal, format!("FORMAT: {error}")))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Parses the file at `path` and checks that this build may read such a store.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let corrupt = |why: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Corrupt, format!("{} does not describe a forklift store: {why}", path.display()))
                .with("path", path.display())
                .hint("name the folder of a store, or put FORMAT back from a copy of this one")
        };
        if bytes.len() > MAX_BYTES {
            return Err(corrupt(&"it is too long"));
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|error| corrupt(&error))?;
        if head.magic != MAGIC {
            return Err(corrupt(&"its magic is another"));
        }
        if head.version != VERSION {
            return Err(unsupported(path, &format!("format {}, this build knows format {VERSION}", head.version)));
        }
        let format: Self = serde_json::from_slice(bytes).map_err(|error| unsupported(path, &error.to_string()))?;
        if format.uuid_bytes().is_none() {
            return Err(corrupt(&"its uuid is not 32 hexadecimal characters"));
        }
        format.allow(Use::Read, path)?;
        Ok(format)
    }

    /// Fails where the store asks for a feature that this build does not know.
    pub(super) fn allow(&self, what: Use, path: &Path) -> Result<()> {
        let needed = match what {
            Use::Read => &self.features.read,
            Use::Write => &self.features.write,
            Use::Prune => &self.features.prune,
        };
        if let Some(feature) = needed.first() {
            return Err(unsupported(path, &format!("feature {feature:?}")));
        }
        if what == Use::Write && self.chunker != Chunker::ours() {
            return Err(unsupported(path, "another way of cutting content"));
        }
        Ok(())
    }

    /// The uuid as the binary files carry it.
    pub(super) fn uuid_bytes(&self) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        if self.uuid.len() != 32 || !self.uuid.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(self.uuid.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(bytes)
    }
}

impl Chunker {
    fn ours() -> Self {
        let [min, average, max] = CDC.map(|size| size as u64);
        Self {
            pages: PAGES as u64,
            wal: WAL as u64,
            whole: WHOLE as u64,
            content: "fastcdc-v2020".to_owned(),
            min,
            average,
            max,
            normalization: 1,
            seed: 0,
        }
    }
}

fn unsupported(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::UnsupportedFormat, format!("{} needs a newer forklift: {what}", path.display()))
        .with("path", path.display())
        .hint("open this store with the version of forklift that wrote it; nothing in it was changed")
}
