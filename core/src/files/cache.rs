//! The stat cache: which files need not be read again.
//!
//! A file's content is taken from the cache where device, inode, size, modification and change time, mode and owner are what they
//! were at the read. That is only proof if a later write must move the change time, so a file is read again
//! whose change time was less than two seconds before the read (or in its future, where the clock was set). After a
//! boot, what was written shortly before the last look may not have reached the disk although its stat did: younger
//! entries are read again.

use std::collections::HashMap;
use std::path::Path;

use super::content::Content;
use crate::error::{Error, Result};
use crate::report::Why;
use crate::store::{ChunkId, ChunkRef, Xattr};
use crate::sys;
use crate::sys::tree::{Kind, Stat};

const MAGIC: &[u8; 8] = b"FLSTAT\x00\x01";
/// How much older than the read a change must be.
const SETTLED_NS: i64 = 2_000_000_000;
/// How much older than the last look before a boot: well above the time in which a kernel writes back.
const WRITTEN_BACK_NS: i64 = 120_000_000_000;
/// The least that an entry takes in the file.
const LEAST: usize = 106;
/// Entries that no scan met are kept up to this many times the number of those that were met.
const UNMET_FACTOR: usize = 2;

/// Remembers chunk lists by (dev, inode, size, mtime, ctime, mode, owner, boot id). A damaged or absent cache file is an empty cache.
#[derive(Debug, Default)]
pub struct StatCache {
    /// Boxed, since a map of a million files keeps room for another million.
    files: HashMap<Box<[u8]>, Box<Cached>>,
    boot: u128,
    look: u64,
    changed: bool,
}

#[derive(Debug, Clone)]
struct Cached {
    content: Content,
    boot: u128,
    /// The clock at the last time it was found valid.
    seen_ns: i64,
    /// The look at which it was last met.
    look: u64,
}

impl StatCache {
    /// Reads the cache file; never fails for its content.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        let bytes = sys::fs::read_optional(path).ok().flatten().unwrap_or_default();
        let mut cache = decode(&bytes).unwrap_or_default();
        cache.boot = boot();
        cache
    }

    /// Replaces the cache file (not synced: it is only a cache), unless nothing was learned since it was loaded.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`, `Permission`, `Io`; the old file is then still there.
    pub fn save(&self, path: &Path) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", sys::id::sortable()?));
        let temporary = path.with_file_name(name);
        let file = sys::fs::create_new(&temporary, 0o600)?;
        let written = std::io::Write::write_all(&mut &file, &encode(self))
            .map_err(|source| Error::io("write", &temporary, source))
            .and_then(|()| rustix::fs::rename(&temporary, path).map_err(|errno| Error::io("rename to", path, errno)));
        if let Err(error) = written {
            sys::fs::remove_file(&temporary)?;
            return Err(error);
        }
        Ok(())
    }

    /// The content of a file that has this stat now, if that is certain.
    pub(super) fn find(&self, path: &[u8], stat: &Stat) -> Option<&Content> {
        let cached = self.files.get(path)?;
        (self.is_certain(cached) && super::content::same_state(&cached.content.stat, stat)).then_some(&cached.content)
    }

    fn is_certain(&self, cached: &Cached) -> bool {
        let age = cached.seen_ns.saturating_sub(cached.content.stat.ctime_ns);
        if cached.boot == self.boot { age >= SETTLED_NS } else { age >= WRITTEN_BACK_NS }
    }

    /// Why a file that has this stat now has to be read.
    pub(super) fn why(&self, path: &[u8], stat: &Stat) -> Why {
        match self.files.get(path) {
            None => Why::New,
            Some(cached) if cached.content.stat.size != stat.size => Why::SizeChanged,
            Some(cached) if !super::content::same_state(&cached.content.stat, stat) => Why::TimesChanged,
            Some(cached) if self.is_certain(cached) => Why::InDoubt,
            Some(cached) if cached.boot == self.boot => Why::Racy,
            Some(_) => Why::OtherBoot,
        }
    }

    /// Begins a new look at a tree.
    pub(super) fn begin(&mut self) {
        if self.boot == 0 {
            self.boot = boot();
        }
        self.look += 1;
    }

    /// Notes that a file was met and was as remembered, at this time.
    pub(super) fn met(&mut self, path: &[u8], now_ns: i64) {
        let (boot, look) = (self.boot, self.look);
        if let Some(cached) = self.files.get_mut(path) {
            cached.look = look;
            cached.seen_ns = cached.seen_ns.max(now_ns);
            cached.boot = boot;
        }
    }

    /// Notes what was read of a file; `now_ns` is the clock before the read.
    pub(super) fn learn(&mut self, path: &[u8], content: &Content, now_ns: i64) {
        // One that is too young is kept for the reason of the next read: it is not certain.
        if !content.unstable && content.unreadable.is_empty() {
            let cached = Cached { content: content.clone(), boot: self.boot, seen_ns: now_ns, look: self.look };
            self.files.insert(path.into(), Box::new(cached));
            self.changed = true;
        } else if self.files.remove(path).is_some() {
            self.changed = true;
        }
    }

    /// Ends a look that met `met` files: forgets those that were not met where they outnumber the others.
    pub(super) fn end(&mut self, met: usize) {
        if self.files.len() > met.saturating_mul(UNMET_FACTOR).max(1024) {
            let look = self.look;
            self.files.retain(|_, cached| cached.look == look);
            self.changed = true;
        }
    }
}

/// The clock that stamps files, coarse as their stamps.
pub(super) fn now_ns() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// This boot, and 1 where the system does not tell: then a boot is not noticed.
fn boot() -> u128 {
    let text = sys::fs::read_optional(Path::new("/proc/sys/kernel/random/boot_id")).ok().flatten().unwrap_or_default();
    let digits: String = String::from_utf8_lossy(&text).chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(1).max(1)
}

fn encode(cache: &StatCache) -> Vec<u8> {
    let mut out = Vec::with_capacity(cache.files.len() * 200);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(cache.files.len() as u64).to_le_bytes());
    for (path, cached) in &cache.files {
        let Cached { content, boot, seen_ns, .. } = &**cached;
        let stat = &content.stat;
        put_bytes(&mut out, path);
        out.extend_from_slice(&boot.to_le_bytes());
        out.extend_from_slice(&seen_ns.to_le_bytes());
        for number in [stat.dev, stat.ino, stat.nlink, stat.size, stat.allocated] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&stat.mode.to_le_bytes());
        out.extend_from_slice(&stat.uid.to_le_bytes());
        out.extend_from_slice(&stat.gid.to_le_bytes());
        out.extend_from_slice(&stat.mtime_ns.to_le_bytes());
        out.extend_from_slice(&stat.ctime_ns.to_le_bytes());
        put_length(&mut out, content.chunks.len());
        for chunk in &content.chunks {
            out.extend_from_slice(&chunk.id.0);
            out.extend_from_slice(&chunk.len.to_le_bytes());
        }
        put_length(&mut out, content.holes.len());
        for (offset, length) in &content.holes {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        }
        put_length(&mut out, content.xattrs.len());
        for xattr in &content.xattrs {
            put_bytes(&mut out, &xattr.name);
            put_bytes(&mut out, &xattr.value);
        }
    }
    let hash = blake3::hash(&out);
    out.extend_from_slice(hash.as_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<StatCache> {
    let (body, hash) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if blake3::hash(body).as_bytes().as_slice() != hash {
        return None;
    }
    let mut input = Input(body.strip_prefix(MAGIC)?);
    let count = u64::from_le_bytes(input.array()?);
    let mut cache = StatCache::default();
    // No more than the bytes can hold.
    cache.files.reserve(usize::try_from(count).unwrap_or(0).min(body.len() / LEAST));
    for _ in 0..count {
        let path = input.bytes()?.into();
        let boot = u128::from_le_bytes(input.array()?);
        let seen_ns = i64::from_le_bytes(input.array()?);
        let mut number = || input.array().map(u64::from_le_bytes);
        let (dev, ino, nlink, size, allocated) = (number()?, number()?, number()?, number()?, number()?);
        let mode = u16::from_le_bytes(input.array()?);
        let (uid, gid) = (u32::from_le_bytes(input.array()?), u32::from_le_bytes(input.array()?));
        let (mtime_ns, ctime_ns) = (i64::from_le_bytes(input.array()?), i64::from_le_bytes(input.array()?));
        let stat = Stat { kind: Kind::File, dev, ino, nlink, size, allocated, mode, uid, gid, mtime_ns, ctime_ns };
        let chunks = input.list(36, |input| Some(ChunkRef { id: ChunkId(input.array()?), len: u32::from_le_bytes(input.array()?) }))?;
        let holes = input.list(16, |input| Some((u64::from_le_bytes(input.array()?), u64::from_le_bytes(input.array()?))))?;
        let xattrs = input.list(8, |input| Some(Xattr { name: input.bytes()?.to_vec(), value: input.bytes()?.to_vec() }))?;
        let content = Content { stat, chunks, holes, xattrs, unreadable: Vec::new(), unstable: false, bytes_read: 0 };
        cache.files.insert(path, Box::new(Cached { content, boot, seen_ns, look: 0 }));
    }
    input.0.is_empty().then_some(cache)
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn length(&mut self) -> Option<usize> {
        self.array().map(u32::from_le_bytes).and_then(|length| usize::try_from(length).ok())
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// Allocates no more than what is left can hold.
    fn list<T>(&mut self, least: usize, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.length()?;
        if length.checked_mul(least)? > self.0.len() {
            return None;
        }
        (0..length).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000_000_000_000;

    fn content(ctime_ns: i64) -> Content {
        let stat = Stat {
            kind: Kind::File,
            dev: 1,
            ino: 2,
            nlink: 1,
            size: 3,
            allocated: 4096,
            mode: 0o644,
            uid: 5,
            gid: 6,
            mtime_ns: 7,
            ctime_ns,
        };
        let chunks = vec![ChunkRef { id: ChunkId([9; 32]), len: 3 }];
        let xattrs = vec![Xattr { name: b"user.x".to_vec(), value: b"y".to_vec() }];
        Content { stat, chunks, holes: vec![(1, 2)], xattrs, unreadable: Vec::new(), unstable: false, bytes_read: 3 }
    }

    fn learned(ctime_ns: i64) -> (StatCache, Content) {
        let mut cache = StatCache::default();
        cache.begin();
        let content = content(ctime_ns);
        cache.learn(b"file", &content, NOW);
        (cache, content)
    }

    #[test]
    fn only_what_changed_long_before_the_read_is_remembered() {
        for (age_ns, remembered) in
            [(0, false), (1_999_999_999, false), (-5_000_000_000, false), (2_000_000_000, true), (i64::MAX / 2, true)]
        {
            let (cache, content) = learned(NOW - age_ns);
            assert_eq!(cache.find(b"file", &content.stat).is_some(), remembered, "{age_ns}");
        }
        let (mut cache, mut content) = learned(NOW - 10_000_000_000);
        content.unstable = true;
        cache.learn(b"file", &content, NOW);
        assert!(cache.find(b"file", &content.stat).is_none(), "an unstable file is forgotten");
    }

    #[test]
    fn any_difference_in_the_stat_counts() {
        let (cache, content) = learned(NOW - 10_000_000_000);
        let changes: [fn(&mut Stat); 7] = [
            |stat| stat.ino += 1,
            |stat| stat.size += 1,
            |stat| stat.mtime_ns += 1,
            |stat| stat.ctime_ns += 1,
            |stat| stat.mode ^= 1,
            |stat| stat.dev += 1,
            |stat| stat.uid += 1,
        ];
        for change in changes {
            let mut stat = content.stat;
            change(&mut stat);
            assert!(cache.find(b"file", &stat).is_none());
        }
        assert!(cache.find(b"other", &content.stat).is_none());
    }

    #[test]
    fn after_a_boot_young_entries_are_read_again() {
        for (age_ns, certain) in [(10_000_000_000, false), (200_000_000_000, true)] {
            let (mut cache, content) = learned(NOW - age_ns);
            cache.boot += 1;
            assert_eq!(cache.find(b"file", &content.stat).is_some(), certain);
        }
    }

    #[test]
    fn the_file_form_keeps_everything_and_notices_every_flipped_byte() {
        let (cache, content) = learned(NOW - 10_000_000_000);
        let bytes = encode(&cache);
        let mut read = decode(&bytes).expect("decodes");
        read.boot = cache.boot;
        let found = read.find(b"file", &content.stat).expect("found");
        assert_eq!(*found, Content { bytes_read: 0, stat: Stat { ..content.stat }, ..content.clone() });
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_none(), "{at}");
            assert!(decode(&bytes[..at]).is_none(), "{at}");
        }
    }
}
