//! Reading chunks and manifests; every read checks the hash.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::chunk::MAX_CHUNK;
use super::disk::Held;
use super::index::View;
use super::packfile::PackCache;
use super::session::PATIENCE;
use super::{ChunkId, ChunkRef, ManifestReader, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::lock::Mode;

/// A reader of one store; shared between threads. Holds the shared lock where the store is writable.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    /// None on a read-only mount without a lock file, or where the lock file is not ours to open.
    lock: Option<Held>,
    pid: u32,
    view: RwLock<Arc<View>>,
    packs: PackCache,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Reader {
    pub(super) fn begin(store: &Store, control: &Control) -> Result<Self> {
        let lock = shared(store, control)?;
        Self::locked_elsewhere(store, lock)
    }

    /// A reader under a lock that the caller holds, or with `lock` of its own.
    pub(super) fn locked_elsewhere(store: &Store, lock: Option<Held>) -> Result<Self> {
        let view = RwLock::new(store.view(false)?);
        Ok(Self { store: store.clone(), lock, pid: std::process::id(), view, packs: PackCache::default() })
    }

    /// The plain bytes of one chunk; `Corrupt` (with the pack's path) where they are missing or wrong.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `Forked`; `InvalidArgument` for more than 4 MiB of zeros at once.
    pub fn chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>> {
        if chunk.id == ChunkId::ZERO {
            let len = chunk.len as usize;
            return if len <= MAX_CHUNK {
                Ok(vec![0; len])
            } else {
                Err(Error::new(ErrorKind::InvalidArgument, format!("{len} zero bytes are too many for one read")).hint("use copy"))
            };
        }
        let mut bytes = Vec::new();
        self.chunk_into(chunk, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`Reader::chunk`] for what is stored, into a buffer whose content it replaces: reused, it spares memory. Of zeros it
    /// gives as many as there are.
    ///
    /// # Errors
    /// As [`Reader::chunk`]; the buffer's content is then worth nothing.
    pub fn chunk_into(&self, chunk: &ChunkRef, bytes: &mut Vec<u8>) -> Result<()> {
        if chunk.id == ChunkId::ZERO {
            *bytes = self.chunk(chunk)?;
            return Ok(());
        }
        self.blob_into(&chunk.id, bytes)?;
        if bytes.len() != chunk.len as usize {
            let (id, have, want) = (chunk.id, bytes.len(), chunk.len);
            return Err(Error::new(ErrorKind::Corrupt, format!("chunk {id} has {have} bytes where {want} are expected"))
                .with("chunk", id)
                .hint("the manifest that names it is damaged; `forklift store verify --level full` tells which checkpoints are hit"));
        }
        Ok(())
    }

    /// Whether the chunk is there (not read).
    ///
    /// # Errors
    /// `Io`, `Forked`.
    pub fn has(&self, id: &ChunkId) -> Result<bool> {
        self.check_process()?;
        Ok(*id == ChunkId::ZERO || self.known(&self.view(), id) || self.known(self.reload()?.as_ref(), id))
    }

    fn known(&self, view: &View, id: &ChunkId) -> bool {
        view.locate(id)
            .any(|(_, location)| self.packs.open(self.store.layout(), &location.pack).is_ok_and(|pack| pack.size() == location.pack_size))
    }

    /// Writes the content of a chunk list to `out`, holes as zeros.
    ///
    /// # Errors
    /// As [`Reader::chunk`]; `Io` and its like where `out` fails.
    pub fn copy(&self, chunks: &[ChunkRef], out: &mut dyn Write) -> Result<()> {
        let failed = |source: std::io::Error| Error::io("write", &PathBuf::from("the content of a file"), source);
        let mut bytes = Vec::new();
        for chunk in chunks {
            if chunk.id == ChunkId::ZERO {
                let mut left = chunk.len as usize;
                while left > 0 {
                    let piece = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
                    out.write_all(piece).map_err(failed)?;
                    left -= piece.len();
                }
            } else {
                self.chunk_into(chunk, &mut bytes)?;
                out.write_all(&bytes).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The entries of a manifest, in path order.
    ///
    /// # Errors
    /// `Corrupt` where its root is missing or damaged, `Io`, `Forked`.
    pub fn manifest(&self, root: &ChunkId) -> Result<ManifestReader<'_>> {
        ManifestReader::new(self, root)
    }

    /// The entries in which two manifests may differ, of the first and of the second, each in path order; what is in neither is the
    /// same in both. Only the blocks that one of them has alone are read.
    ///
    /// # Errors
    /// As [`Reader::manifest`].
    pub fn apart(&self, first: &ChunkId, second: &ChunkId) -> Result<(Vec<super::Entry>, Vec<super::Entry>)> {
        super::manifest::apart(self, first, second)
    }

    /// The entry of one path in a manifest, where it has one.
    ///
    /// # Errors
    /// As [`Reader::manifest`].
    pub fn entry(&self, root: &ChunkId, path: &[u8]) -> Result<Option<super::Entry>> {
        super::manifest::find(self, root, path)
    }

    /// The plain bytes behind an id, from whichever copy is whole.
    pub(super) fn blob(&self, id: &ChunkId) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.blob_into(id, &mut bytes)?;
        Ok(bytes)
    }

    fn blob_into(&self, id: &ChunkId, bytes: &mut Vec<u8>) -> Result<()> {
        self.check_process()?;
        let first = match self.attempt(&self.view(), id, bytes) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // The index may have moved on, or a copy may lie in a pack that no segment covers.
        self.packs.clear();
        let fresh = self.reload()?;
        self.attempt(&fresh, id, bytes).map_err(|second| first.or(second).unwrap_or_else(|| self.missing(&fresh, id)))
    }

    /// The bytes, or the first failure; `None` where no copy is known.
    fn attempt(&self, view: &View, id: &ChunkId, bytes: &mut Vec<u8>) -> std::result::Result<(), Option<Error>> {
        let mut failure = None;
        for (_, location) in view.locate(id) {
            match self.packs.open(self.store.layout(), &location.pack).and_then(|pack| pack.read_into(id, &location, bytes)) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.store.doubt(location.pack);
                    failure.get_or_insert(error.with("chunk", id));
                }
            }
        }
        Err(failure)
    }

    fn missing(&self, view: &View, id: &ChunkId) -> Error {
        let packs = self.store.layout().packs();
        let error = match view.unreadable().first() {
            Some(pack) => {
                let path = self.store.layout().pack(pack);
                Error::new(ErrorKind::Corrupt, format!("chunk {id} is in no pack that can be read; pack {} is damaged", path.display()))
                    .with("path", path.display())
            }
            None => Error::new(ErrorKind::Corrupt, format!("chunk {id} is in no pack")).with("path", packs.display()),
        };
        error.with("chunk", id).hint("put the missing pack back from a copy of the store, or capture the same content again; `forklift store verify` tells which checkpoints are hit")
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn reload(&self) -> Result<Arc<View>> {
        let fresh = self.store.view(true)?;
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }

    fn check_process(&self) -> Result<()> {
        match &self.lock {
            Some(lock) => lock.check_process(),
            None if self.pid == std::process::id() => Ok(()),
            None => Err(Error::new(ErrorKind::Forked, format!("the reader was opened by process {} before a fork", self.pid))
                .hint("open the store again in the child")),
        }
    }
}

/// The shared lock, behind the gate; `None` where it cannot be had because the store cannot be written.
pub(super) fn shared(store: &Store, control: &Control) -> Result<Option<Held>> {
    let layout = store.layout();
    let unavailable = |error: &Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Permission | ErrorKind::ReadOnly);
    let gate = match layout.disk().lock_existing(&layout.gate(), Mode::Shared, PATIENCE, control) {
        Ok(gate) => Some(gate),
        Err(error) if unavailable(&error) => None,
        Err(error) => return Err(error),
    };
    let lock = match layout.disk().lock_existing(&layout.lock(), Mode::Shared, PATIENCE, control) {
        Ok(lock) => Some(lock),
        Err(error) if unavailable(&error) => None,
        Err(error) => return Err(error),
    };
    drop(gate);
    Ok(lock)
}
