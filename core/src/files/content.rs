//! Reading the content of files: into a store, for its chunk ids alone, or to compare it.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::store::{ChunkId, ChunkRef, Cutting, FileRead, Session, Xattr, ZeroRun};
use crate::sys;
use crate::sys::fs::read_at;
use crate::sys::tree::{Kind, Root, Stat, stat_open};

/// The holes of less than this are read like the rest.
const SPARSE: u64 = 4 << 20;
/// Bytes read at a time.
const WINDOW: usize = 1 << 20;
/// How often a file that changes while it is read is read anew.
const ATTEMPTS: usize = 3;

/// Where it has no blocks; nothing where it has all of them.
fn holes_of(file: &File, path: &Path) -> Result<Vec<(u64, u64)>> {
    let stat = stat_open(file).map_err(|errno| Error::io("stat", path, errno))?;
    if stat.allocated >= stat.size {
        return Ok(Vec::new());
    }
    sys::holes::holes(file, stat.size).map_err(|errno| Error::io("seek in", path, errno))
}

/// Where content goes.
pub(super) trait Sink: Sync {
    /// Reads a file from its start to its end.
    fn put(&self, file: &File, path: &Path) -> Result<FileRead>;
    /// Whether a chunk that was read earlier need not be read again.
    fn has(&self, id: &ChunkId) -> Result<bool>;
}

impl Sink for Session {
    fn put(&self, file: &File, path: &Path) -> Result<FileRead> {
        self.put_file(file, path, Cutting::Content)
    }

    fn has(&self, id: &ChunkId) -> Result<bool> {
        if *id == ChunkId::ZERO { Ok(true) } else { Session::has(self, id) }
    }
}

/// Gives the ids that a session would give, and stores nothing.
#[derive(Debug)]
pub(super) struct HashOnly;

impl Sink for HashOnly {
    fn put(&self, file: &File, path: &Path) -> Result<FileRead> {
        let holes = holes_of(file, path)?;
        let zeros = if holes.is_empty() { None } else { ZeroRun::of_content() };
        let mut window = vec![0; WINDOW];
        let mut read = FileRead { chunks: Vec::new(), size: 0 };
        loop {
            if let Some(zeros) = zeros {
                read.size = zeros.skip(&holes, read.size, &mut read.chunks);
            }
            let filled = read_at(file, path, &mut window, read.size)?;
            let eof = filled < window.len();
            let mut rest = window.get(..filled).unwrap_or_default();
            while let Some(length) = Cutting::Content.next(rest, read.size == 0, eof) {
                let (chunk, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                read.chunks.push(ChunkRef { id: ChunkId::of(chunk), len: u32::try_from(length).unwrap_or(u32::MAX) });
                read.size += length as u64;
                rest = after;
            }
            if eof {
                return Ok(read);
            }
        }
    }

    fn has(&self, _id: &ChunkId) -> Result<bool> {
        Ok(true)
    }
}

/// The content of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// The stat before and after the read; of the last read where the file would not stand still.
    pub(super) stat: Stat,
    /// In order.
    pub(super) chunks: Vec<ChunkRef>,
    /// Offset and length.
    pub(super) holes: Vec<(u64, u64)>,
    /// Sorted by name.
    pub(super) xattrs: Vec<Xattr>,
    /// Names of attributes that could not be read.
    pub(super) unreadable: Vec<Vec<u8>>,
    /// It changed each time.
    pub(super) unstable: bool,
    /// Bytes read in all attempts.
    pub(super) bytes_read: u64,
}

/// What reading a file that lstat called regular came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Its content.
    Read(Box<Content>),
    /// It is gone, or is no longer a regular file.
    Changed,
    /// The system does not let us.
    Denied(Errno),
}

/// Reads a file between two stats, anew where they differ.
pub(super) fn read(root: &Root, path: &[u8], sink: &dyn Sink) -> Result<Outcome> {
    let full = root.full(path);
    let failed = |action: &str, errno: Errno| Error::io(action, &full, errno);
    let mut bytes_read = 0;
    let mut attempt = 1;
    loop {
        let file = match root.file(path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Ok(Outcome::Changed),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Ok(Outcome::Denied(errno)),
            Err(errno) => return Err(failed("open", errno)),
        };
        let before = stat_open(&file).map_err(|errno| failed("stat", errno))?;
        if before.kind != Kind::File {
            return Ok(Outcome::Changed);
        }
        let read = sink.put(&file, &full)?;
        bytes_read += read.size;
        let sparse = before.allocated < before.size;
        let holes = if sparse { sys::holes::holes(&file, before.size).map_err(|errno| failed("seek in", errno))? } else { Vec::new() };
        let (xattrs, unreadable) = sys::xattr::read(file.as_fd()).map_err(|errno| failed("read attributes of", errno))?;
        let after = stat_open(&file).map_err(|errno| failed("stat", errno))?;
        let stable = same_state(&before, &after) && read.size == after.size;
        if stable || attempt == ATTEMPTS {
            let xattrs = xattrs.into_iter().map(|(name, value)| Xattr { name, value }).collect();
            let stat = Stat { size: read.size, ..after };
            let holes = if stable { holes } else { Vec::new() };
            return Ok(Outcome::Read(Box::new(Content {
                stat,
                chunks: read.chunks,
                holes,
                xattrs,
                unreadable,
                unstable: !stable,
                bytes_read,
            })));
        }
        attempt += 1;
    }
}

/// Whether nothing was done to a file between two stats, as far as stats tell.
pub(super) fn same_state(first: &Stat, second: &Stat) -> bool {
    let key = |stat: &Stat| (stat.kind, stat.dev, stat.ino, stat.size, stat.mode, stat.uid, stat.gid, stat.mtime_ns, stat.ctime_ns);
    key(first) == key(second)
}

/// Whether the file, from its start to its end, is exactly these chunks. `more` is asked after each of them and ends the
/// comparison, as different, where it says no.
pub(super) fn matches(file: &File, path: &Path, chunks: &[ChunkRef], more: &mut dyn FnMut() -> bool) -> Result<bool> {
    let mut buffer = Vec::new();
    let mut offset = 0;
    let zeros: u64 = chunks.iter().filter(|chunk| chunk.id == ChunkId::ZERO).map(|chunk| u64::from(chunk.len)).sum();
    let holes = if zeros > SPARSE { holes_of(file, path)? } else { Vec::new() };
    for chunk in chunks {
        let end = offset + u64::from(chunk.len);
        let hole = holes.partition_point(|(start, _)| *start <= offset).checked_sub(1).and_then(|at| holes.get(at));
        if chunk.id == ChunkId::ZERO && hole.is_some_and(|(start, length)| end <= start + length) {
            if !more() {
                return Ok(false);
            }
            offset = end;
            continue;
        }
        buffer.resize(usize::try_from(chunk.len).unwrap_or(usize::MAX), 0);
        let got = read_at(file, path, &mut buffer, offset)?;
        if got != buffer.len() || ChunkId::of(&buffer) != chunk.id || !more() {
            return Ok(false);
        }
        offset = end;
    }
    Ok(read_at(file, path, &mut [0], offset)? == 0)
}
