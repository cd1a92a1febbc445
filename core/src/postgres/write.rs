//! Writing a captured cluster: into a new folder, or over another state of it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::{ChunkId, ChunkRef, Entry, EntryKind, Half, Reader};
use crate::sys;
use crate::sys::fs::Syncs;

/// It comes last, and goes first: without it no server takes the folder for a cluster.
const CONTROL_FILE: &[u8] = b"global/pg_control";
/// Where it is written; what is left of it is in no manifest, and goes with the next call.
const CONTROL_BESIDE: &[u8] = b"global/pg_control.new";
/// Chunks of a large file that one thread takes at once.
const PIECE: usize = 64;
/// Bytes that are written at once, about.
const RUN: u64 = 1 << 20;
/// From this size on the kernel is asked to begin writing a file to disk when it is complete.
const LARGE: u64 = 1 << 20;
/// Chunk positions in memory at once: what a batch of files may have.
const BATCH: usize = 64 << 10;
/// Files that are open at once.
const OPEN: usize = 128;

/// What writing a cluster did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Plain bytes of the cluster.
    pub bytes: u64,
    /// Of these, bytes that were written because they were not there.
    pub bytes_written: u64,
    /// Files whose content was not touched.
    pub files_same: u64,
    /// fsyncs and syncfs.
    pub fsyncs: u64,
}

/// Writes the cluster of `half` into the folder `data`.
///
/// Where `data` is absent or empty nothing is synced: the caller makes the file system durable before anything relies on it.
/// Where it holds another state of the cluster, whose server must be stopped, only what differs is written: first pg_control
/// goes, durably; what the manifest does not have is removed; chunks that differ are overwritten in place; all of it is made durable,
/// and pg_control comes back last. Until then no server starts on it, so that an interrupted call is never taken for a whole
/// cluster: call it again. A file with other names, or of another kind, is replaced and not written to.
///
/// # Errors
/// `Corrupt` where a chunk or pg_control is missing, or the manifest holds what no cluster has; `Cancelled`, `NoSpace`,
/// `Permission`, `Io`. What was written is left.
pub fn write_cluster(reader: &Reader, half: &Half, root_mode: u32, data: &Path, control: &Control) -> Result<Written> {
    sys::fs::make_folder(data, 0o700)?;
    let over = !sys::fs::names(data)?.is_empty();
    let (same, written, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let cluster = Writing { reader, half, data, over, control, same, written, done, syncs: Syncs::new() };
    if over {
        cluster.clear()?;
    }
    let bytes = cluster.all()?;
    set_mode(data, root_mode)?;
    if over {
        cluster.syncs.folder(data)?;
    }
    Ok(Written { bytes, bytes_written: cluster.written.into_inner(), files_same: cluster.same.into_inner(), fsyncs: cluster.syncs.count() })
}

struct Writing<'a> {
    reader: &'a Reader,
    half: &'a Half,
    data: &'a Path,
    /// Something is there already.
    over: bool,
    control: &'a Control,
    same: AtomicU64,
    written: AtomicU64,
    done: AtomicU64,
    syncs: Syncs,
}

/// A file that is open for writing, and what it must hold.
struct Target<'e> {
    path: PathBuf,
    file: File,
    mode: u32,
    size: u64,
    chunks: &'e [ChunkRef],
    /// It was there before, so chunks are compared first.
    compare: bool,
    changed: AtomicU64,
}

/// Chunks that follow one another and are written at once: large writes cost the kernel less.
#[derive(Default)]
struct Run {
    offset: u64,
    length: u64,
    /// The first `count` are in use.
    buffers: Vec<Vec<u8>>,
    count: usize,
}

/// Some chunks of one target: its index, the first chunk, and the offset in the file.
struct Piece {
    target: usize,
    first: usize,
    offset: u64,
}

impl Writing<'_> {
    /// Removes pg_control, durably, then everything that the manifest does not have or has of another kind.
    fn clear(&self) -> Result<()> {
        let global = self.data.join("global");
        sys::fs::remove_file(&global.join("pg_control"))?;
        if global.is_dir() {
            self.syncs.folder(&global)?;
        }
        let mut folders: HashSet<Vec<u8>> = HashSet::new();
        let mut files: HashSet<Vec<u8>> = HashSet::new();
        for entry in self.reader.manifest(&self.half.root)? {
            let entry = entry?;
            if entry.kind == EntryKind::Folder { &mut folders } else { &mut files }.insert(entry.path);
        }
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            self.control.check()?;
            for name in sys::fs::names(&self.data.join(&folder))? {
                let relative = folder.join(&name);
                let path = self.data.join(&relative);
                let found = std::fs::symlink_metadata(&path).map_err(|source| Error::io("examine", &path, source))?;
                let key = relative.as_os_str().as_bytes();
                if found.is_dir() {
                    if folders.contains(key) { open.push(relative) } else { sys::fs::remove_tree(&path)? }
                } else if !(found.is_file() && found.nlink() == 1 && files.contains(key)) {
                    sys::fs::remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    fn all(&self) -> Result<u64> {
        let (mut bytes, mut last, mut positions) = (0, None, 0);
        let mut batch: Vec<Entry> = Vec::new();
        for entry in self.reader.manifest(&self.half.root)? {
            let entry = entry?;
            match &entry.kind {
                EntryKind::Folder => {
                    let path = self.place(&entry.path);
                    sys::fs::make_folder(&path, 0o700)?;
                    set_mode(&path, u32::from(entry.mode))?;
                }
                EntryKind::File { size, chunks, .. } => {
                    bytes += size;
                    if entry.path == CONTROL_FILE {
                        last = Some(entry);
                        continue;
                    }
                    positions += chunks.len() + 1;
                    batch.push(entry);
                    if positions >= BATCH {
                        self.files(&batch)?;
                        batch.clear();
                        positions = 0;
                    }
                }
                EntryKind::Symlink(_) | EntryKind::Fifo | EntryKind::Socket => {
                    let path = String::from_utf8_lossy(&entry.path);
                    return Err(damaged(format!("the checkpoint's cluster holds {path}, which is no file or folder")));
                }
            }
        }
        self.files(&batch)?;
        let Some(last) = last else { return Err(damaged("the checkpoint's cluster has no global/pg_control".to_owned())) };
        let path = self.place(&last.path);
        if self.over {
            self.syncs.file_system(self.data)?;
        }
        // Beside first: half of it is nobody's control file.
        let beside = Entry { path: CONTROL_BESIDE.to_vec(), ..last };
        self.files(std::slice::from_ref(&beside))?;
        let written = self.place(CONTROL_BESIDE);
        if self.over {
            let file = File::open(&written).map_err(|source| Error::io("open", &written, source))?;
            self.syncs.file(&file, &written)?;
        }
        sys::fs::rename(&written, &path)?;
        if self.over {
            self.syncs.folder(&self.data.join("global"))?;
        }
        Ok(bytes)
    }

    /// Files in parallel, large ones in pieces; in the order of the manifest, which is that of the packs.
    fn files(&self, entries: &[Entry]) -> Result<()> {
        for some in entries.chunks(OPEN) {
            let targets = sys::parallel::map(some, |entry| self.open(entry))?;
            let pieces: Vec<Piece> = targets.iter().enumerate().flat_map(|(target, of)| of.pieces(target)).collect();
            sys::parallel::map_one_by_one(&pieces, |piece| {
                self.control.check()?;
                targets.get(piece.target).map_or(Ok(()), |target| self.piece(target, piece))
            })?;
            sys::parallel::map(&targets, |target| self.close(target))?;
            self.control.report("write cluster", self.done.load(Ordering::Relaxed), self.half.bytes, Unit::Bytes);
        }
        Ok(())
    }

    fn open<'e>(&self, entry: &'e Entry) -> Result<Target<'e>> {
        let EntryKind::File { size, chunks, .. } = &entry.kind else { return Err(damaged("a folder is no file".to_owned())) };
        let path = self.place(&entry.path);
        let mut options = std::fs::OpenOptions::new();
        options.read(self.over).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = if self.over { options.open(&path) } else { options.create_new(true).open(&path) };
        let file = file.map_err(|source| Error::io("create", &path, source))?;
        let compare = self.over && file.metadata().map_err(|source| Error::io("examine", &path, source))?.len() > 0;
        Ok(Target { path, file, mode: u32::from(entry.mode), size: *size, chunks, compare, changed: AtomicU64::new(0) })
    }

    fn piece(&self, target: &Target<'_>, piece: &Piece) -> Result<()> {
        let mut offset = piece.offset;
        let mut there = Vec::new();
        let mut run = Run::default();
        for chunk in target.chunks.iter().skip(piece.first).take(PIECE) {
            let same = target.compare && target.has(chunk, offset, &mut there)?;
            // Zeros take no space in the store, and stay holes in a new file.
            if !same && (target.compare || chunk.id != ChunkId::ZERO) {
                if run.end() != offset || run.length >= RUN {
                    run.write(target)?;
                    run.offset = offset;
                }
                run.read(self.reader, chunk)?;
                target.changed.fetch_add(u64::from(chunk.len), Ordering::Relaxed);
            }
            offset += u64::from(chunk.len);
        }
        run.write(target)
    }

    fn close(&self, target: &Target<'_>) -> Result<()> {
        let path = &target.path;
        let metadata = target.file.metadata().map_err(|source| Error::io("examine", path, source))?;
        if metadata.len() != target.size {
            target.file.set_len(target.size).map_err(|source| Error::io("set the length of", path, source))?;
        }
        if metadata.permissions().mode() & 0o7777 != target.mode {
            let mode = std::fs::Permissions::from_mode(target.mode);
            target.file.set_permissions(mode).map_err(|source| Error::io("set the mode of", path, source))?;
        }
        let changed = target.changed.load(Ordering::Relaxed);
        if changed >= LARGE {
            sys::fs::start_writeback(&target.file);
        }
        self.written.fetch_add(changed, Ordering::Relaxed);
        self.done.fetch_add(target.size, Ordering::Relaxed);
        self.same.fetch_add(u64::from(changed == 0 && metadata.len() == target.size), Ordering::Relaxed);
        Ok(())
    }

    fn place(&self, path: &[u8]) -> PathBuf {
        self.data.join(OsStr::from_bytes(path))
    }
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Takes the next chunk.
    fn read(&mut self, reader: &Reader, chunk: &ChunkRef) -> Result<()> {
        if self.count == self.buffers.len() {
            self.buffers.push(Vec::new());
        }
        let Some(buffer) = self.buffers.get_mut(self.count) else { return Ok(()) };
        reader.chunk_into(chunk, buffer)?;
        self.count += 1;
        self.length += u64::from(chunk.len);
        Ok(())
    }

    /// Writes what it has, and is empty then.
    fn write(&mut self, target: &Target<'_>) -> Result<()> {
        let mut slices: Vec<IoSlice<'_>> = self.buffers.iter().take(self.count).map(|buffer| IoSlice::new(buffer)).collect();
        let (mut left, mut offset) = (slices.as_mut_slice(), self.offset);
        while !left.is_empty() {
            match rustix::io::pwritev(&target.file, left, offset) {
                Ok(0) => return Err(Error::io("write", &target.path, std::io::Error::from(std::io::ErrorKind::WriteZero))),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::io("write", &target.path, errno)),
            }
        }
        (self.count, self.length) = (0, 0);
        Ok(())
    }
}

impl Target<'_> {
    fn pieces(&self, target: usize) -> Vec<Piece> {
        let mut offset = 0;
        let starts = self.chunks.chunks(PIECE).enumerate().map(|(at, chunks)| {
            let piece = Piece { target, first: at * PIECE, offset };
            offset += chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
            piece
        });
        starts.collect()
    }

    /// Whether the file has this chunk at this offset.
    fn has(&self, chunk: &ChunkRef, offset: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        buffer.resize(chunk.len as usize, 0);
        match self.file.read_exact_at(buffer, offset) {
            Ok(()) => Ok(ChunkId::of(buffer) == chunk.id),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }
}

fn damaged(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, message).hint("`forklift store verify` tells what is damaged")
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|source| Error::io("set the mode of", path, source))
}
