//! What the store already has of a cluster's files, told by their stat.
//!
//! The file: the line `forklift cluster cache 2`, the boot id (u8 length, bytes), i64 time of saving, u64 count, per file
//! u64 dev, ino, size, i64 mtime, ctime, u32 mode, u8 cutting, u32 chunk count, chunks of 32 bytes id and u32 length; then
//! the BLAKE3 of all before it. A chunk count of 2^32 - 1 stands for a file that was read while it might still have changed unseen.
//! Integers are little-endian. It is a cache: one that does not parse is an empty one.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::report::Why;
use crate::store::{ChunkId, ChunkRef, Cutting, Session};
use crate::sys::fs;

const MAGIC: &[u8] = b"forklift cluster cache 2\n";
/// In place of the number of chunks: no list.
const UNPROVEN: u32 = u32::MAX;
/// A stat that was younger than this when the machine went down may be on disk with older content.
const YOUNG_NS: i64 = 120 * 1_000_000_000;
/// How far the clock of a file's ctime may lag behind a write that is under way.
pub(super) const CLOCK_SLACK_NS: i64 = 20_000_000;
/// The same for a file that no checkpoint of a server guards.
pub(super) const UNGUARDED_SLACK_NS: i64 = 2_000_000_000;

/// Everything that changes when a file's content or way of cutting does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stat {
    dev: u64,
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    mode: u32,
    cutting: u8,
}

impl Stat {
    /// Of an open file.
    pub(super) fn of(file: &File, path: &Path, cutting: Cutting) -> Result<(Self, std::fs::Metadata)> {
        let metadata = file.metadata().map_err(|source| Error::io("examine", path, source))?;
        Ok((Self::new(&metadata, cutting), metadata))
    }

    /// Of what the file system says.
    pub(super) fn new(metadata: &std::fs::Metadata, cutting: Cutting) -> Self {
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
            cutting: match cutting {
                Cutting::Pages => 0,
                Cutting::Wal => 1,
                Cutting::Content => 2,
            },
        }
    }

    /// Whether everything written by then, and nothing later, is in the content that goes with this stat.
    pub(super) fn is_settled(&self, by_ns: i64) -> bool {
        self.ctime_ns < by_ns
    }
}

/// Chunk lists of the files of one cluster as its last capture read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterCache {
    files: HashMap<Stat, Vec<ChunkRef>>,
    /// What cannot be believed, and why.
    unproven: HashMap<Stat, Why>,
    /// The last stat of each device and inode, to say what changed.
    inodes: HashMap<(u64, u64), Stat>,
    /// It was saved before the machine was started the last time.
    other_boot: bool,
}

impl ClusterCache {
    /// Reads the cache at `path`; one that is absent, damaged or cannot be read is empty. `boot_id` is the machine's now:
    /// entries of another boot that were young when they were saved are dropped.
    #[must_use]
    pub fn load(path: &Path, boot_id: &str) -> Self {
        let bytes = fs::read_optional(path).ok().flatten().unwrap_or_default();
        decode(&bytes, boot_id).unwrap_or_default()
    }

    /// Writes it, whole or not at all, and whether it was written. Not durable, and no failure is one of the caller's (a full
    /// disk, most likely): a lost cache costs one full read.
    pub fn save(&self, path: &Path, boot_id: &str) -> bool {
        self.write(path, boot_id).is_ok()
    }

    fn write(&self, path: &Path, boot_id: &str) -> Result<()> {
        let bytes = self.encode(boot_id);
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", crate::sys::id::sortable()?));
        let temporary = path.with_file_name(name);
        let mut file = fs::create_new(&temporary, 0o600)?;
        let written = std::io::Write::write_all(&mut file, &bytes).map_err(|source| Error::io("write", &temporary, source));
        let renamed = written.and_then(|()| rustix::fs::rename(&temporary, path).map_err(|errno| Error::io("rename to", path, errno)));
        if renamed.is_err() {
            fs::remove_file(&temporary)?;
        }
        renamed
    }

    /// How many files it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it knows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn find(&self, stat: &Stat) -> Option<&Vec<ChunkRef>> {
        self.files.get(stat)
    }

    pub(super) fn insert(&mut self, stat: Stat, chunks: Vec<ChunkRef>) {
        self.inodes.insert((stat.dev, stat.ino), stat);
        self.files.insert(stat, chunks);
    }

    /// Notes a file whose stat proves nothing, so that the next capture can say why it reads it.
    pub(super) fn insert_unproven(&mut self, stat: Stat) {
        self.inodes.insert((stat.dev, stat.ino), stat);
        self.unproven.insert(stat, Why::Racy);
    }

    /// Whether it was saved before the machine was started the last time.
    pub(super) fn is_of_other_boot(&self) -> bool {
        self.other_boot
    }

    /// Why a file with this stat, of which no list is known or believed, has to be read.
    pub(super) fn why(&self, stat: &Stat) -> Why {
        match self.inodes.get(&(stat.dev, stat.ino)) {
            None => Why::New,
            Some(last) if last == stat => self.unproven.get(stat).copied().unwrap_or(Why::Racy),
            Some(last) if last.size != stat.size => Why::SizeChanged,
            Some(_) => Why::TimesChanged,
        }
    }

    /// For tests: believes that the file at `path` holds these chunks.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, path: &Path, chunks: Vec<ChunkRef>) {
        let metadata = std::fs::symlink_metadata(path).expect("metadata");
        self.insert(Stat::new(&metadata, Cutting::Pages), chunks);
    }

    /// Forgets the lists of which the store lacks a chunk.
    pub(super) fn forget_missing(&mut self, session: &Session) -> Result<()> {
        let mut missing = Vec::new();
        for (stat, chunks) in &self.files {
            for chunk in chunks {
                if chunk.id != ChunkId::ZERO && !session.has(&chunk.id)? {
                    missing.push(*stat);
                    break;
                }
            }
        }
        for stat in missing {
            self.files.remove(&stat);
            self.unproven.insert(stat, Why::InDoubt);
        }
        Ok(())
    }

    fn encode(&self, boot_id: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let boot = boot_id.as_bytes().get(..boot_id.len().min(255)).unwrap_or_default();
        bytes.push(u8::try_from(boot.len()).unwrap_or(u8::MAX));
        bytes.extend(boot);
        bytes.extend(now_ns().to_le_bytes());
        bytes.extend(u64::try_from(self.files.len() + self.unproven.len()).unwrap_or(u64::MAX).to_le_bytes());
        let unproven = self.unproven.keys().map(|stat| (stat, None));
        for (stat, chunks) in self.files.iter().map(|(stat, chunks)| (stat, Some(chunks))).chain(unproven) {
            for number in [stat.dev, stat.ino, stat.size] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(stat.mtime_ns.to_le_bytes());
            bytes.extend(stat.ctime_ns.to_le_bytes());
            bytes.extend(stat.mode.to_le_bytes());
            bytes.push(stat.cutting);
            let count = chunks.map_or(UNPROVEN, |chunks| u32::try_from(chunks.len()).unwrap_or(UNPROVEN));
            bytes.extend(count.to_le_bytes());
            for chunk in chunks.into_iter().flatten() {
                bytes.extend(chunk.id.0);
                bytes.extend(chunk.len.to_le_bytes());
            }
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }
}

fn decode(bytes: &[u8], boot_id: &str) -> Option<ClusterCache> {
    let (body, hash) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if blake3::hash(body).as_bytes() != hash {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let [boot_length] = take(&mut rest)?;
    let (boot, after) = rest.split_at_checked(usize::from(boot_length))?;
    rest = after;
    let same_boot = boot == boot_id.as_bytes();
    let saved_ns = i64::from_le_bytes(take(&mut rest)?);
    let count = u64::from_le_bytes(take(&mut rest)?);
    let mut cache = ClusterCache { other_boot: !same_boot, ..ClusterCache::default() };
    for _ in 0..count {
        let stat = Stat {
            dev: u64::from_le_bytes(take(&mut rest)?),
            ino: u64::from_le_bytes(take(&mut rest)?),
            size: u64::from_le_bytes(take(&mut rest)?),
            mtime_ns: i64::from_le_bytes(take(&mut rest)?),
            ctime_ns: i64::from_le_bytes(take(&mut rest)?),
            mode: u32::from_le_bytes(take(&mut rest)?),
            cutting: u8::from_le_bytes(take(&mut rest)?),
        };
        let chunks = u32::from_le_bytes(take(&mut rest)?);
        if chunks == UNPROVEN {
            cache.insert_unproven(stat);
            continue;
        }
        let mut list = Vec::new();
        for _ in 0..chunks {
            list.push(ChunkRef { id: ChunkId(take(&mut rest)?), len: u32::from_le_bytes(take(&mut rest)?) });
        }
        if same_boot || stat.is_settled(saved_ns.saturating_sub(YOUNG_NS)) {
            cache.insert(stat, list);
        } else {
            cache.insert_unproven(stat);
            cache.unproven.insert(stat, Why::OtherBoot);
        }
    }
    Some(cache)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// The wall clock, which on local file systems is the clock of ctime too.
pub(super) fn now_ns() -> i64 {
    i64::try_from(crate::sys::id::now_ms()).unwrap_or(i64::MAX).saturating_mul(1_000_000)
}
