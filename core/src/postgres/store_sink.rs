//! The sink that puts a cluster into the store.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::cluster_cache::{CLOCK_SLACK_NS, Stat, UNGUARDED_SLACK_NS, now_ns};
use super::sink::{STEP, check_path, open_source};
use super::{ClusterCache, Sink, SourceFile};
use crate::error::{Error, Result};
use crate::progress::{Control, Unit};
use crate::report::{Reads, Why};
use crate::store::{ChunkId, ChunkRef, Cutting, Entry, EntryKind, Half, Session};
use crate::sys::parallel;

/// Puts files into a session in parallel and keeps what the manifest will say of them. Files that the cache of the last
/// capture knows by an equal stat, and whose chunks the store still has, are not read.
#[derive(Debug)]
pub struct StoreSink<'a> {
    pub(super) session: &'a Session,
    entries: BTreeMap<Vec<u8>, Entry>,
    root_mode: u32,
    pub(super) known: ClusterCache,
    pub(super) seen: ClusterCache,
    c0_ns: Option<i64>,
    copied: u64,
    pub(super) reads: Reads,
}

/// Modification time of folders and of files made by the copy: equal clusters get equal manifests, and Postgres does not look.
const NO_TIME: i64 = 0;

/// What one file became.
struct Taken {
    entry: Entry,
    stat: Stat,
    /// The stat proves the content.
    proven: bool,
    /// Why it was read, and how much: not where the cache knew the file.
    read: Option<(Why, u64)>,
}

impl<'a> StoreSink<'a> {
    /// Into `session`, with what the last capture of the same cluster left ([`ClusterCache::default`] where there is nothing).
    #[must_use]
    pub fn new(session: &'a Session, known: ClusterCache) -> Self {
        Self {
            session,
            entries: BTreeMap::new(),
            root_mode: 0o700,
            known,
            seen: ClusterCache::default(),
            c0_ns: None,
            copied: 0,
            reads: Reads::default(),
        }
    }

    /// What was read until now; files that the cache knows were not.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// Writes the manifest. The half's facts hold `root_mode`, the 12 mode bits of the data folder, which has no entry; the
    /// cache is for the next capture, to be saved once this one is committed.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn finish(self) -> Result<(Half, ClusterCache)> {
        let mut manifest = self.session.manifest();
        for entry in self.entries.values() {
            manifest.push(entry)?;
        }
        let entries = count(self.entries.len());
        let half =
            Half { root: manifest.finish()?, entries, bytes: self.copied, facts: serde_json::json!({ "root_mode": self.root_mode }) };
        Ok((half, self.seen))
    }

    /// Up to which ctime a stat proves the content: a running server's files by the checkpoint that came after c0; others by age.
    pub(super) fn settled_by(&self, live: bool) -> i64 {
        match (live, self.c0_ns) {
            (true, Some(c0)) => c0.saturating_sub(CLOCK_SLACK_NS),
            (true, None) => i64::MIN,
            (false, _) => now_ns().saturating_sub(UNGUARDED_SLACK_NS),
        }
    }

    fn take(&self, file: &SourceFile, settled_by: i64) -> Result<Option<Taken>> {
        check_path(&file.path)?;
        // What is known is not opened; what cannot be looked at fails where it is opened.
        let mut lacking = None;
        if let Ok(metadata) = std::fs::metadata(&file.source) {
            let stat = Stat::new(&metadata, file.cutting);
            if let Some(chunks) = self.known.find(&stat).filter(|_| stat.is_settled(settled_by)) {
                if self.has_all(chunks)? {
                    let entry = file_entry(file, &metadata, chunks.clone());
                    return Ok(Some(Taken { entry, stat, proven: true, read: None }));
                }
                lacking = Some(Why::InDoubt);
            }
        }
        let Some(open) = open_source(file)? else { return Ok(None) };
        let (before, metadata) = Stat::of(&open, &file.source, file.cutting)?;
        let read = self.session.put_file(&open, &file.source, file.cutting)?;
        let (after, _) = Stat::of(&open, &file.source, file.cutting)?;
        let proven = before == after && before.is_settled(settled_by);
        let bytes = length(&read.chunks);
        let entry = file_entry(file, &metadata, read.chunks);
        let why = lacking.unwrap_or_else(|| self.known.why(&before));
        Ok(Some(Taken { entry, stat: before, proven, read: Some((why, bytes)) }))
    }

    fn has_all(&self, chunks: &[ChunkRef]) -> Result<bool> {
        for chunk in chunks {
            if chunk.id != ChunkId::ZERO && !self.session.has(&chunk.id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn add(&mut self, entry: Entry) {
        if let EntryKind::File { size, .. } = &entry.kind {
            self.copied += size;
        }
        self.entries.insert(entry.path.clone(), entry);
    }
}

impl Sink for StoreSink<'_> {
    fn begin(&mut self, c0_ns: i64) {
        self.c0_ns = Some(c0_ns);
    }

    fn folder(&mut self, path: &Path, mode: u32) -> Result<()> {
        check_path(path)?;
        if path.as_os_str().is_empty() {
            self.root_mode = mode & 0o7777;
        } else {
            self.add(entry(path, mode, ids(), NO_TIME, None));
        }
        Ok(())
    }

    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()> {
        let mut done = 0;
        for step in files.chunks(STEP) {
            let settled_by = (self.settled_by(true), self.settled_by(false));
            let take = |file: &SourceFile| {
                control.check()?;
                self.take(file, if file.live { settled_by.0 } else { settled_by.1 })
            };
            for taken in parallel::map(step, take)?.into_iter().flatten() {
                match &taken.entry.kind {
                    EntryKind::File { chunks, .. } if taken.proven => self.seen.insert(taken.stat, chunks.clone()),
                    _ => self.seen.insert_unproven(taken.stat),
                }
                if let Some((why, bytes)) = taken.read {
                    self.reads.count(why, bytes);
                }
                self.add(taken.entry);
            }
            done += step.len();
            control.report("store cluster", count(done), count(files.len()), Unit::Items);
        }
        Ok(())
    }

    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        check_path(path)?;
        let read = self.session.put_bytes(bytes, Cutting::Content)?;
        self.reads.bytes_read += count(bytes.len());
        self.add(entry(path, mode, ids(), NO_TIME, Some(read.chunks)));
        Ok(())
    }

    fn copied(&self) -> u64 {
        self.copied
    }
}

pub(super) fn file_entry(file: &SourceFile, metadata: &std::fs::Metadata, chunks: Vec<ChunkRef>) -> Entry {
    let mtime_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    entry(&file.path, metadata.mode(), (metadata.uid(), metadata.gid()), mtime_ns, Some(chunks))
}

fn entry(path: &Path, mode: u32, (uid, gid): (u32, u32), mtime_ns: i64, chunks: Option<Vec<ChunkRef>>) -> Entry {
    let kind = match chunks {
        None => EntryKind::Folder,
        Some(chunks) => EntryKind::File { size: length(&chunks), chunks, holes: Vec::new(), link: 0 },
    };
    let mode = u16::try_from(mode & 0o7777).unwrap_or_default();
    Entry { path: path.as_os_str().as_bytes().to_vec(), kind, mode, uid, gid, mtime_ns, xattrs: Vec::new(), unstable: false }
}

pub(super) fn length(chunks: &[ChunkRef]) -> u64 {
    chunks.iter().map(|chunk| u64::from(chunk.len)).sum()
}

/// Owner of what the copy adds itself.
fn ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The clock of the file system that holds `folder`, in nanoseconds since 1970: the ctime of a file made there and removed
/// again. It is what [`Sink::begin`] wants.
///
/// # Errors
/// `NoSpace`, `Permission`, `ReadOnly`, `Io`.
pub fn file_system_clock(folder: &Path) -> Result<i64> {
    use rustix::fs::{CWD, Mode, OFlags};
    let time = |file: &std::fs::File, path: &Path| {
        let metadata = file.metadata().map_err(|source| Error::io("examine", path, source))?;
        Ok(metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec()))
    };
    // A file without a name leaves nothing behind, whatever happens; not every file system has them.
    if let Ok(nameless) = rustix::fs::openat(CWD, folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        return time(&nameless.into(), folder);
    }
    let path = folder.join(format!(".forklift-clock-{}", crate::sys::id::sortable()?));
    let file = crate::sys::fs::create_new(&path, 0o600)?;
    let clock = time(&file, &path);
    crate::sys::fs::remove_file(&path)?;
    clock
}
