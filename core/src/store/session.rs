//! Writing: a session gathers chunks into packs and ends with one commit.
//!
//! Chunks are hashed and compressed by the thread that brings them and appended to a pack in memory; a full pack is
//! written to `tmp/` by the thread that filled it. Nothing leaves `tmp/` before the commit (see `publish`).

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::chunk::MAX_CHUNK;
use super::codec;
use super::create;
use super::disk::Held;
use super::index::{Presence, View};
use super::pack::{Kind, OpenPack};
use super::parallel::Helpers;
use super::publish::{self, Sealed};
use super::{ChunkId, ChunkRef, Cutting, ManifestWriter, Ref, Store, refs};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::Syncs;
use crate::sys::lock::Mode;

/// How long a session or reader waits for a prune, whose exclusive part is short.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes read from a file at a time.
const BUFFER: usize = 4 << 20;
/// Less than this is not worth a thread.
const PARALLEL: usize = 512 << 10;
/// Packs being written at once, each of about 32 MiB in memory.
const WRITERS: usize = 3;
/// Written packs whose content is not synced yet; each keeps a file open.
const UNSYNCED: usize = 32;

/// One writing session. Shared between threads (`&self`); holds the store's shared lock until it is dropped or committed.
///
/// A session that is dropped leaves nothing behind. After a failed write it only fails: begin another one.
#[derive(Debug)]
pub struct Session {
    store: Store,
    lock: Held,
    control: Control,
    view: Arc<View>,
    presence: Presence,
    state: Mutex<State>,
    writers: Mutex<usize>,
    writer_left: Condvar,
    helpers: Helpers,
    syncs: Syncs,
    read: AtomicU64,
    new: AtomicU64,
    stored: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Prefixes of the chunks that this session stores.
    seen: HashSet<[u8; 16]>,
    data: OpenPack,
    metadata: OpenPack,
    sealed: Vec<Sealed>,
    /// The first failed write.
    failed: Option<(ErrorKind, String)>,
}

/// What reading one file into the session found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRead {
    /// The chunks, in order; their lengths add up to the bytes that were read.
    pub chunks: Vec<ChunkRef>,
    /// Bytes read.
    pub size: u64,
}

/// The byte counts of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionReport {
    /// Plain bytes given to the session.
    pub bytes_read: u64,
    /// Plain bytes that the store did not have.
    pub bytes_new: u64,
    /// Bytes written to packs.
    pub bytes_stored: u64,
    /// fsyncs of packs, index and ref.
    pub fsyncs: u64,
}

impl Session {
    pub(super) fn begin(store: &Store, control: &Control) -> Result<Self> {
        let (layout, disk) = (store.layout(), store.layout().disk());
        disk.check_writable(&layout.tmp())?;
        // A prune that waits for the lock keeps the gate, so that sessions that follow one another cannot keep it out.
        let gate = disk.lock(&layout.gate(), Mode::Shared, PATIENCE, control)?;
        let lock = disk.lock(&layout.lock(), Mode::Shared, PATIENCE, control)?;
        drop(gate);
        create::finish(layout)?;
        let view = store.view(true)?;
        let presence = Presence::of(&view);
        Ok(Self {
            store: store.clone(),
            lock,
            control: control.clone(),
            view,
            presence,
            state: Mutex::default(),
            writers: Mutex::new(0),
            writer_left: Condvar::new(),
            helpers: Helpers::new(disk.limits().helpers),
            syncs: Syncs::new(),
            read: AtomicU64::new(0),
            new: AtomicU64::new(0),
            stored: AtomicU64::new(0),
        })
    }

    /// Stores one chunk unless the store has it. At most 4 MiB.
    ///
    /// # Errors
    /// `InvalidArgument` (too long), `NoSpace`, `Io`, `Forked`.
    pub fn put(&self, bytes: &[u8]) -> Result<ChunkId> {
        self.put_kind(bytes, Kind::Data)
    }

    pub(super) fn put_kind(&self, bytes: &[u8], kind: Kind) -> Result<ChunkId> {
        self.lock.check_process()?;
        if bytes.len() > MAX_CHUNK {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("a chunk has at most {MAX_CHUNK} bytes, this one {}", bytes.len()))
                .hint("cut the content with put_bytes"));
        }
        let id = ChunkId::of(bytes);
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if id == ChunkId::ZERO || self.knows(&id) {
            return Ok(id);
        }
        let full = codec::encode(bytes, |codec, payload| {
            let mut state = self.state();
            if let Some(failed) = &state.failed {
                return Err(again(failed));
            }
            if !state.seen.insert(id.prefix()) {
                return Ok(None);
            }
            self.new.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            let pack = if kind == Kind::Data { &mut state.data } else { &mut state.metadata };
            pack.push(id, kind, bytes.len() as u32, codec, payload);
            Ok(pack.is_full(self.store.layout().disk().limits().pack).then(|| std::mem::take(pack)))
        })?;
        if let Some(pack) = full {
            self.seal(pack)?;
        }
        Ok(id)
    }

    /// Reads `file` from its current position to its end, cuts and stores it: in parallel where it is large, with a few MiB
    /// of memory in any case. A file that grows or shrinks meanwhile is stored as it was read.
    ///
    /// # Errors
    /// `Io` with `path` where it cannot be read; `Cancelled`; as [`Session::put`].
    pub fn put_file(&self, file: &File, path: &Path, cutting: Cutting) -> Result<FileRead> {
        let expected = file.metadata().map_err(|source| Error::io("stat", path, source))?.len();
        // One byte more than the file has, so that the first read that is not filled tells its end.
        let capacity = usize::try_from(expected).unwrap_or(BUFFER).saturating_add(1).clamp(4 << 10, BUFFER);
        let mut reader = file;
        self.put_stream(capacity, cutting, |space| {
            loop {
                match reader.read(space) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => return other.map_err(|source| Error::io("read", path, source)),
                }
            }
        })
    }

    /// Cuts and stores bytes in memory.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn put_bytes(&self, bytes: &[u8], cutting: Cutting) -> Result<FileRead> {
        let cuts = cut_all(bytes, cutting, true, true);
        Ok(FileRead { chunks: self.put_cuts(bytes, &cuts)?, size: bytes.len() as u64 })
    }

    fn put_stream(&self, capacity: usize, cutting: Cutting, mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<FileRead> {
        let mut buffer = vec![0; capacity];
        let mut found = FileRead { chunks: Vec::new(), size: 0 };
        let (mut filled, mut eof) = (0, false);
        loop {
            self.control.check()?;
            while let Some(space) = buffer.get_mut(filled..).filter(|space| !space.is_empty()) {
                match read(space)? {
                    0 => {
                        eof = true;
                        break;
                    }
                    len => {
                        found.size += len as u64;
                        filled += len;
                    }
                }
            }
            let window = buffer.get(..filled).unwrap_or_default();
            let cuts = cut_all(window, cutting, found.chunks.is_empty(), eof);
            found.chunks.append(&mut self.put_cuts(window, &cuts)?);
            if eof {
                return Ok(found);
            }
            let used = cuts.last().map_or(0, |cut| cut.end);
            buffer.copy_within(used..filled, 0);
            filled -= used;
            if used == 0 || buffer.len() < BUFFER {
                // It has more than was expected.
                buffer.resize(BUFFER, 0);
            }
        }
    }

    fn put_cuts(&self, window: &[u8], cuts: &[Range<usize>]) -> Result<Vec<ChunkRef>> {
        let put = |cut: &Range<usize>| {
            let bytes = window.get(cut.clone()).unwrap_or_default();
            self.put(bytes).map(|id| ChunkRef { id, len: bytes.len() as u32 })
        };
        if cuts.len() > 1 && window.len() >= PARALLEL { self.helpers.map(cuts, put) } else { cuts.iter().map(put).collect() }
    }

    /// Whether the store, or this session, has the chunk: a cached chunk list is reusable only if it has every one. A chunk
    /// whose pack has gone missing is not there, so that capturing its content again heals the store.
    ///
    /// # Errors
    /// `Forked`.
    pub fn has(&self, id: &ChunkId) -> Result<bool> {
        self.lock.check_process()?;
        Ok(*id == ChunkId::ZERO || self.knows(id))
    }

    fn knows(&self, id: &ChunkId) -> bool {
        let stored = self.view.locate(id).any(|(segment, location)| self.presence.check(self.store.layout(), segment, &location));
        stored || self.state().seen.contains(&id.prefix())
    }

    /// A manifest that is written entry by entry, in path order.
    pub fn manifest(&self) -> ManifestWriter<'_> {
        ManifestWriter::new(self)
    }

    /// Counts so far.
    pub fn report(&self) -> SessionReport {
        SessionReport {
            bytes_read: self.read.load(Ordering::Relaxed),
            bytes_new: self.new.load(Ordering::Relaxed),
            bytes_stored: self.stored.load(Ordering::Relaxed),
            fsyncs: self.syncs.count(),
        }
    }

    /// Makes all packs and the index durable, then publishes `reference`: the commit point. Fails with `AlreadyExists`
    /// where the id is taken; on any failure no ref exists. Not cancellable.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument` (a root that is not stored, an id or facts that cannot be kept), `NoSpace`, `Io`,
    /// `Forked`.
    pub fn commit(self, reference: &Ref) -> Result<SessionReport> {
        self.lock.check_process()?;
        let text = refs::encode(reference)?;
        for half in [&reference.files, &reference.cluster].into_iter().flatten() {
            if !self.has(&half.root)? || half.root == ChunkId::ZERO {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("checkpoint {}: manifest {} is not in the store", reference.id, half.root),
                )
                .hint("commit the session that wrote the manifest"));
            }
        }
        if refs::exists(self.store.layout(), &reference.id)? {
            return Err(refs::taken(&reference.id));
        }
        let (mut data, metadata) = {
            let mut state = self.state();
            (std::mem::take(&mut state.data), std::mem::take(&mut state.metadata))
        };
        if data.has_room_for(&metadata, self.store.layout().disk().limits().pack) {
            data.append(metadata);
        } else {
            self.seal(metadata)?;
        }
        self.seal(data)?;
        let mut sealed = {
            let mut state = self.state();
            if let Some(failed) = &state.failed {
                return Err(again(failed));
            }
            std::mem::take(&mut state.sealed)
        };
        let published = publish::packs_and_index(&self.store, &self.view, &mut sealed, &self.helpers, &self.syncs);
        // What did not get out of tmp/ is removed when the session is dropped.
        self.state().sealed = sealed;
        published?;
        refs::publish(self.store.layout(), &reference.id, &text, &self.syncs)?;
        Ok(self.report())
    }

    /// Writes a pack to `tmp/`; a failure fails the whole session.
    fn seal(&self, pack: OpenPack) -> Result<()> {
        if pack.is_empty() {
            return Ok(());
        }
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        while *writers >= WRITERS {
            writers = self.writer_left.wait(writers).unwrap_or_else(PoisonError::into_inner);
        }
        *writers += 1;
        drop(writers);
        let written = self.write(pack);
        *self.writers.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.writer_left.notify_one();
        written.inspect_err(|error| {
            self.state().failed.get_or_insert_with(|| (error.kind(), error.message().to_owned()));
        })
    }

    fn write(&self, pack: OpenPack) -> Result<()> {
        let sealed = Sealed::write(self.store.layout(), self.store.uuid_bytes(), pack)?;
        self.stored.fetch_add(sealed.size(), Ordering::Relaxed);
        let oldest = {
            let mut state = self.state();
            state.sealed.push(sealed);
            let unsynced = state.sealed.iter().filter(|sealed| sealed.is_open()).count();
            if unsynced > UNSYNCED { state.sealed.iter_mut().find(|sealed| sealed.is_open()).and_then(Sealed::take_file) } else { None }
        };
        match oldest {
            Some((file, path)) => self.store.layout().disk().sync_file(file.as_ref(), &path, &self.syncs),
            None => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A child of a fork must not take away its parent's files.
        if self.lock.check_process().is_ok() {
            for sealed in std::mem::take(&mut self.state().sealed) {
                sealed.discard(self.store.layout());
            }
        }
    }
}

fn cut_all(window: &[u8], cutting: Cutting, first: bool, eof: bool) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut at = 0;
    while let Some(len) = window.get(at..).and_then(|rest| cutting.next(rest, first && at == 0, eof)) {
        cuts.push(at..at + len);
        at += len;
    }
    cuts
}

fn again((kind, message): &(ErrorKind, String)) -> Error {
    Error::new(*kind, format!("the session has failed before: {message}")).hint("begin again once the cause is gone; nothing was published")
}
