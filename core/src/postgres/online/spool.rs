//! Keeping WAL without a slot: each segment is copied aside as soon as the server has filled it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
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

/// A checkpoint, which is what removes segments, takes longer than this.
const PAUSE: Duration = Duration::from_millis(10);

const PREFIX: &str = ".forklift-wal-";

/// A folder beside the data folder and the thread that fills it. Dropping it ends the thread and removes the folder; that of
/// a killed process is removed by the next spool.
pub(super) struct Spool {
    folder: PathBuf,
    wal: PathBuf,
    /// Tells the next spool that this one is in use.
    _lock: Lock,
    stop: Arc<AtomicBool>,
    /// Gives the first segment that it has not copied.
    thread: Option<JoinHandle<Result<Segment>>>,
}

impl Spool {
    /// Keeps all WAL from `start` on.
    pub(super) fn start(data: &Path, start: &Position) -> Result<Self> {
        let parent = data.parent().unwrap_or(data);
        sweep(parent)?;
        let (folder, lock) = make(parent)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut spool = Self { folder: folder.clone(), wal: data.join("pg_wal"), _lock: lock, stop: Arc::clone(&stop), thread: None };
        let (wal, mut segment) = (spool.wal.clone(), start.first());
        let body = move || {
            while !stop.load(Ordering::Relaxed) {
                // Segments are written in order: once the next one has begun this one is whole.
                if segment.next().written(&wal)?.is_some() {
                    keep(&wal, &folder, &segment)?;
                    segment = segment.next();
                } else {
                    std::thread::sleep(PAUSE);
                }
            }
            Ok(segment)
        };
        let thread = std::thread::Builder::new().name("forklift-wal".to_owned()).spawn(body);
        spool.thread = Some(thread.map_err(|source| Error::io("start a thread for", &spool.folder, source))?);
        Ok(spool)
    }

    /// Takes the rest, proves that every one of `segments` is whole, and gives them to the sink.
    pub(super) fn finish(mut self, segments: &[Segment], sink: &mut dyn Sink, control: &Control) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let Some(Ok(reached)) = ended else {
            return Err(Error::new(ErrorKind::Internal, "the thread that keeps WAL panicked"));
        };
        let reached = reached?;
        for segment in segments.iter().skip_while(|segment| **segment != reached) {
            keep(&self.wal, &self.folder, segment)?;
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

/// Copies one segment that the server has filled.
fn keep(wal: &Path, folder: &Path, segment: &Segment) -> Result<()> {
    let before = segment.written(wal)?.ok_or_else(|| segment.gone())?;
    let (from_path, to_path) = (wal.join(segment.name()), folder.join(segment.name()));
    let mut from = match File::open(&from_path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(segment.gone()),
        opened => opened.map_err(|source| Error::io("open", &from_path, source))?,
    };
    let mode = from.metadata().map_err(|source| Error::io("stat", &from_path, source))?.mode() & 0o7777;
    let mut to = fs::create_new(&to_path, mode)?;
    let copied = std::io::copy(&mut from, &mut to).map_err(|source| Error::io("copy to", &to_path, source))?;
    // Where the same file still has the name it was not recycled while it was read.
    if copied != segment.size() || segment.written(wal)? != Some(before) {
        return Err(segment.gone());
    }
    Ok(())
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
