//! Keeping WAL without a slot: each segment is copied aside as soon as the server has filled it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::wal::{self, Position, Segment};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::Sink;
use crate::progress::Control;
use crate::sys::lock::{Lock, Mode};
use crate::sys::{fs, id};

/// How often the server is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// Segments held open ahead of the server: it can fill no more of them between two looks.
const AHEAD: usize = 4;

const PREFIX: &str = ".forklift-wal-";

/// A folder beside the data folder and the thread that fills it. Dropping it ends the thread and removes the folder; that of
/// a killed process is removed by the next spool.
pub(super) struct Spool {
    folder: PathBuf,
    /// Tells the next spool that this one is in use.
    _lock: Lock,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Follower>>>,
}

impl Spool {
    /// Keeps all WAL from `start` on.
    pub(super) fn start(data: &Path, start: &Position) -> Result<Self> {
        let parent = data.parent().unwrap_or(data);
        sweep(parent)?;
        let (folder, lock) = make(parent)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut spool = Self { folder: folder.clone(), _lock: lock, stop: Arc::clone(&stop), thread: None };
        let mut follower = Follower { wal: data.join("pg_wal"), folder, segment: start.first(), held: BTreeMap::new() };
        // The first look is made here: whatever comes later, these files are held.
        follower.look()?;
        let body = move || {
            while !stop.load(Ordering::Relaxed) {
                follower.look()?;
                std::thread::sleep(PAUSE);
            }
            Ok(follower)
        };
        let thread = std::thread::Builder::new().name("forklift-wal".to_owned()).spawn(body);
        spool.thread = Some(thread.map_err(|source| Error::io("start a thread for", &spool.folder, source))?);
        Ok(spool)
    }

    /// Takes the rest, proves that every one of `segments` is whole, and gives them to the sink.
    pub(super) fn finish(mut self, segments: &[Segment], sink: &mut dyn Sink, control: &Control) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(Ok(follower)) = self.thread.take().map(JoinHandle::join) else {
            return Err(Error::new(ErrorKind::Internal, "the thread that keeps WAL panicked"));
        };
        let mut follower = follower?;
        // The stop has filled the last one.
        while segments.contains(&follower.segment) {
            follower.hold()?;
            follower.keep()?;
        }
        for segment in segments {
            segment.written(&self.folder)?.ok_or_else(|| segment.gone())?;
        }
        wal::give(&self.folder, segments, sink, control)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        fs::remove_tree(&self.folder).ok();
    }
}

/// Follows the server from segment to segment.
struct Follower {
    wal: PathBuf,
    folder: PathBuf,
    /// The first that is not kept yet.
    segment: Segment,
    /// Open files by name: one that the server removes is still there, one that it renames keeps its bytes until the server has
    /// come round to it.
    held: BTreeMap<String, File>,
}

impl Follower {
    /// Keeps what the server has filled since the last look. Segments are written in order: once the next one has begun this one is whole.
    fn look(&mut self) -> Result<()> {
        self.hold()?;
        while self.held.get(&self.segment.next().name()).is_some_and(|file| self.segment.next().begins(file)) {
            self.keep()?;
            self.hold()?;
        }
        Ok(())
    }

    /// Opens the segment and those after it.
    fn hold(&mut self) -> Result<()> {
        let mut segment = self.segment;
        for _ in 0..AHEAD {
            let name = segment.name();
            // Before the server has come to a segment another file may still get its name.
            if !self.held.get(&name).is_some_and(|file| segment.begins(file)) {
                let path = self.wal.join(&name);
                match File::open(&path) {
                    Ok(file) => drop(self.held.insert(name, file)),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(source) => return Err(Error::io("open", &path, source)),
                }
            }
            segment = segment.next();
        }
        Ok(())
    }

    /// Copies the segment and goes on to the next.
    fn keep(&mut self) -> Result<()> {
        let segment = self.segment;
        let name = segment.name();
        let from = self.held.remove(&name).filter(|file| segment.begins(file)).ok_or_else(|| segment.gone())?;
        let mode = from.metadata().map_err(|source| Error::io("examine", &self.wal.join(&name), source))?.mode() & 0o7777;
        let path = self.folder.join(&name);
        let to = fs::create_new(&path, mode)?;
        let mut block = vec![0; 1 << 20];
        let mut at = 0;
        while at < segment.size() {
            let read = from.read_at(&mut block, at).map_err(|source| Error::io("read", &self.wal.join(&name), source))?;
            let Some(bytes) = block.get(..read).filter(|bytes| !bytes.is_empty()) else { return Err(segment.gone()) };
            to.write_all_at(bytes, at).map_err(|source| Error::io("write", &path, source))?;
            at += read as u64;
        }
        // A file that is used again is overwritten from its first page on: where that is as it was, so was the rest.
        if !segment.begins(&from) {
            return Err(segment.gone());
        }
        self.segment = segment.next();
        Ok(())
    }
}

fn make(parent: &Path) -> Result<(PathBuf, Lock)> {
    // A sweep of another process may take a folder that is not locked yet.
    for _ in 0..10 {
        let folder = parent.join(format!("{PREFIX}{}", id::sortable()?));
        fs::make_folder(&folder, 0o700)?;
        match Lock::attempt(&folder.join("lock"), Mode::Exclusive) {
            Ok(Some(lock)) => return Ok((folder, lock)),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                fs::remove_tree(&folder)?;
                return Err(error);
            }
        }
    }
    Err(Error::new(ErrorKind::Busy, format!("a folder for WAL beside {} is removed again and again", parent.display())))
}

/// Removes what killed processes have left.
fn sweep(parent: &Path) -> Result<()> {
    for name in fs::names(parent)? {
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let folder = parent.join(name);
            match Lock::attempt(&folder.join("lock"), Mode::Exclusive) {
                Ok(Some(_lock)) => fs::remove_tree(&folder)?,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
