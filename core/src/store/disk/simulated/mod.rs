//! A disk in memory that loses what was not synced, fails any call, and runs out of space.
//!
//! Read `state` (what is there, and since when it may outlive a loss of power), `crash` (what a loss of power leaves),
//! `order` (what is asserted on every disk), then the calls here. Each primitive call of [`Disk`] and [`Handle`] has a
//! number; what changes something is recorded on demand, so that one run gives every crash point of an operation.

mod crash;
mod order;
mod state;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(in crate::store) use crash::{Model, Random};
use state::{Errno, Id, Node, State};

use super::{Disk, Handle, Held, Limits, Stat};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::lock::Mode;

/// What the calls of a disk suffer.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Faults {
    /// The first call that fails, counted from [`SimulatedDisk::suffer`], and how.
    pub(in crate::store) fail_at: Option<(u64, Errno)>,
    /// All calls from that one on fail.
    pub(in crate::store) from_then_on: bool,
    /// Reads and writes take at most so many bytes.
    pub(in crate::store) short: Option<usize>,
    /// Every second read and write is interrupted before it does anything.
    pub(in crate::store) interrupted: bool,
    /// Bytes of files and names that fit.
    pub(in crate::store) capacity: Option<u64>,
    /// A full disk shows in syncs only, which then drop what was written.
    pub(in crate::store) full_at_sync: bool,
}

/// The disk as it was after one change.
#[derive(Clone)]
pub(in crate::store) struct Shot {
    state: State,
    /// The call that had just been made.
    pub(in crate::store) after: String,
    /// What [`SimulatedDisk::mark`] was last told.
    pub(in crate::store) mark: usize,
}

/// Called once, just before the call of that number.
type Hook = (u64, Box<dyn FnOnce() + Send>);

struct Inner {
    state: State,
    faults: Faults,
    calls: u64,
    /// The names of the calls, where they are recorded.
    names: Option<Vec<String>>,
    interrupt: bool,
    shots: Option<Vec<Shot>>,
    mark: usize,
    hook: Option<Hook>,
}

/// See the module.
pub(in crate::store) struct SimulatedDisk {
    inner: Arc<Mutex<Inner>>,
    locks: Locks,
    /// Whether the order of writes is asserted.
    asserting: bool,
    limits: Limits,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedDisk")
    }
}

/// Shared holders of each lock, and whether one holds it alone.
type Locks = Arc<Mutex<HashMap<Id, (u32, bool)>>>;

/// A lock of a simulated process.
#[derive(Debug)]
pub(in crate::store) struct SimulatedLock {
    locks: Locks,
    id: Id,
    mode: Mode,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let (shared, alone) = locks.entry(self.id).or_default();
        match self.mode {
            Mode::Shared => *shared -= 1,
            Mode::Exclusive => *alone = false,
        }
    }
}

impl SimulatedDisk {
    /// An empty disk with one folder, `/disk`.
    pub(in crate::store) fn new() -> Arc<Self> {
        let mut state = State::new();
        state.make(Path::new("/disk"), true).unwrap();
        state.sync_names(state::ROOT).unwrap();
        Self::with(state, true)
    }

    fn with(state: State, asserting: bool) -> Arc<Self> {
        let inner = Inner { state, faults: Faults::default(), calls: 0, names: None, interrupt: false, shots: None, mark: 0, hook: None };
        let limits = Limits { pack: 1500, helpers: 0 };
        Arc::new(Self { inner: Arc::new(Mutex::new(inner)), locks: Locks::default(), asserting, limits })
    }

    /// From now on its calls suffer this; they are counted from here.
    pub(in crate::store) fn suffer(&self, faults: Faults) {
        let mut inner = self.inner();
        inner.faults = faults;
        inner.calls = 0;
    }

    /// Calls since [`SimulatedDisk::suffer`].
    pub(in crate::store) fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Bytes of files and names.
    pub(in crate::store) fn used(&self) -> u64 {
        self.inner().state.used
    }

    /// Runs `hook` just before the call of this number, counted from [`SimulatedDisk::suffer`].
    pub(in crate::store) fn before_call(&self, number: u64, hook: impl FnOnce() + Send + 'static) {
        self.inner().hook = Some((number, Box::new(hook)));
    }

    /// Tells the shots that follow what is to be expected of them.
    pub(in crate::store) fn mark(&self, mark: usize) {
        self.inner().mark = mark;
    }

    /// Begins to record the disk, as it is and after every change, and the names of all calls.
    pub(in crate::store) fn record(&self) {
        let mut inner = self.inner();
        inner.calls = 0;
        inner.names = Some(Vec::new());
        let first = Shot { state: inner.state.clone(), after: "the start".to_owned(), mark: inner.mark };
        inner.shots = Some(vec![first]);
    }

    /// What was recorded.
    pub(in crate::store) fn recorded(&self) -> Vec<Shot> {
        self.inner().shots.take().unwrap_or_default()
    }

    /// The names of the calls that were made while it recorded, in the order of their numbers.
    pub(in crate::store) fn call_names(&self) -> Vec<String> {
        self.inner().names.take().unwrap_or_default()
    }

    /// The disk as it is now.
    pub(in crate::store) fn shot(&self) -> Shot {
        let inner = self.inner();
        Shot { state: inner.state.clone(), after: "the end".to_owned(), mark: inner.mark }
    }

    /// Puts bytes in the place of those of a file, durably: damage.
    pub(in crate::store) fn damage(&self, path: &Path, bytes: Vec<u8>) {
        let mut inner = self.inner();
        let id = inner.state.find(path).unwrap();
        let node = Node::File { synced: bytes.len(), bytes: Arc::new(bytes), dropped: false, changed: 0 };
        inner.state.nodes.insert(id, Arc::new(node));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, runs the hook that waits for it, and fails where it has to.
    fn call(&self, name: &str, path: &Path) -> Result<MutexGuard<'_, Inner>> {
        before(&self.inner, name, path).map_err(|errno| error(name, path, errno))
    }

    fn done<T>(&self, name: &str, path: &Path, result: std::result::Result<T, Errno>, inner: &mut Inner) -> Result<T> {
        changed(inner, name, path);
        result.map_err(|errno| error(name, path, errno))
    }
}

impl Shot {
    /// Bytes of files and names.
    pub(in crate::store) fn used(&self) -> u64 {
        self.state.used
    }

    /// The disks that a loss of power may leave, each with a number that is the same for equal ones. They assert nothing:
    /// what is asserted during an operation was asserted on the disk that lost its power.
    pub(in crate::store) fn crashed(&self, model: Model, random: usize, seed: u64) -> Vec<([u8; 32], Arc<SimulatedDisk>)> {
        let outcomes = crash::outcomes(&self.state, model, random, seed);
        outcomes.into_iter().map(|state| (crash::digest(&state), SimulatedDisk::with(state, false))).collect()
    }

    /// The disk when all processes have died here: nothing is lost yet.
    pub(in crate::store) fn killed(&self) -> Arc<SimulatedDisk> {
        SimulatedDisk::with(self.state.clone(), true)
    }
}

fn before<'a>(inner: &'a Arc<Mutex<Inner>>, name: &str, path: &Path) -> std::result::Result<MutexGuard<'a, Inner>, Errno> {
    let lock = || inner.lock().unwrap_or_else(PoisonError::into_inner);
    let mut held = lock();
    let number = held.calls;
    if held.hook.as_ref().is_some_and(|(at, _)| *at == number) {
        let hook = held.hook.take();
        drop(held);
        if let Some((_, hook)) = hook {
            hook();
        }
        held = lock();
    }
    held.calls += 1;
    if let Some(names) = &mut held.names {
        names.push(format!("{name} {}", path.display()));
    }
    match held.faults.fail_at {
        Some((at, errno)) if number == at || (number > at && held.faults.from_then_on) => Err(errno),
        _ => Ok(held),
    }
}

fn changed(inner: &mut Inner, name: &str, path: &Path) {
    if let Some(shots) = &mut inner.shots {
        shots.push(Shot { state: inner.state.clone(), after: format!("{name} {}", path.display()), mark: inner.mark });
    }
}

fn error(name: &str, path: &Path, errno: Errno) -> Error {
    Error::io(name, path, io::Error::from_raw_os_error(errno))
}

fn has_room(inner: &Inner, bytes: u64) -> bool {
    inner.faults.full_at_sync || inner.faults.capacity.is_none_or(|capacity| inner.state.used + bytes <= capacity)
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn Handle>> {
        let inner = self.call("open", path)?;
        let id = inner.state.find(path).map_err(|errno| error("open", path, errno))?;
        Ok(Box::new(SimulatedFile { inner: Arc::clone(&self.inner), id, path: path.to_owned() }))
    }

    fn create_new(&self, path: &Path, _mode: u32) -> Result<Box<dyn Handle>> {
        let mut inner = self.call("create", path)?;
        let made = if has_room(&inner, state::NAME) { inner.state.make(path, false) } else { Err(libc::ENOSPC) };
        let id = self.done("create", path, made, &mut inner)?;
        Ok(Box::new(SimulatedFile { inner: Arc::clone(&self.inner), id, path: path.to_owned() }))
    }

    fn make_one_folder(&self, path: &Path, _mode: u32) -> Result<()> {
        let mut inner = self.call("create folder", path)?;
        let made = if has_room(&inner, state::NAME) { inner.state.make(path, true) } else { Err(libc::ENOSPC) };
        self.done("create folder", path, made, &mut inner).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.move_to(from, to, true)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.move_to(from, to, false)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let mut inner = self.call("remove", path)?;
        let before = self.asserting.then(|| inner.state.clone());
        let gone = inner.state.unlink(path, false);
        self.done("remove", path, gone, &mut inner)?;
        if let Some(before) = before {
            let after = inner.state.clone();
            drop(inner);
            order::removed(&before, &after, path);
        }
        Ok(())
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        let names = match self.names(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for name in names {
            let child = path.join(name);
            if self.is_folder(&child)? { self.remove_tree(&child)? } else { self.remove_file(&child)? }
        }
        let mut inner = self.call("remove", path)?;
        let gone = inner.state.unlink(path, true);
        self.done("remove", path, gone, &mut inner)
    }

    fn sync_names(&self, path: &Path) -> Result<()> {
        let mut inner = self.call("fsync", path)?;
        let synced = inner.state.find(path).and_then(|id| inner.state.sync_names(id));
        self.done("fsync", path, synced, &mut inner)
    }

    fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        self.call("list", path)?.state.names(path).map_err(|errno| error("list", path, errno))
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        let inner = self.call("stat", path)?;
        let Ok(id) = inner.state.find(path) else { return Ok(None) };
        Ok(Some(match inner.state.bytes(id) {
            Ok(bytes) => Stat { len: bytes.len() as u64, folder: false },
            Err(_) => Stat { len: 0, folder: true },
        }))
    }

    fn check_writable(&self, folder: &Path) -> Result<()> {
        self.call("write in", folder)?.state.find(folder).map(drop).map_err(|errno| error("write in", folder, errno))
    }

    fn network_file_system(&self, path: &Path) -> Result<Option<&'static str>> {
        drop(self.call("statfs", path)?);
        Ok(None)
    }

    fn free(&self, path: &Path) -> Result<u64> {
        let inner = self.call("statvfs", path)?;
        Ok(inner.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(inner.state.used)))
    }

    /// One that cannot be had at once is `Busy`: there are no other threads that could release it.
    fn try_lock(&self, path: &Path, mode: Mode, create: bool) -> Result<Option<Held>> {
        let mut inner = self.call("lock", path)?;
        let id = match inner.state.find(path) {
            Err(libc::ENOENT) if create => {
                let made = inner.state.make(path, false);
                self.done("create", path, made, &mut inner)?
            }
            other => other.map_err(|errno| error("open", path, errno))?,
        };
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let (shared, alone) = locks.entry(id).or_default();
        if *alone || (mode == Mode::Exclusive && *shared > 0) {
            return Err(Error::new(ErrorKind::Busy, format!("{} is locked by another process", path.display())));
        }
        match mode {
            Mode::Shared => *shared += 1,
            Mode::Exclusive => *alone = true,
        }
        Ok(Some(Held::Simulated { _lock: SimulatedLock { locks: Arc::clone(&self.locks), id, mode } }))
    }

    fn new_uuid(&self) -> Result<[u8; 16]> {
        Ok([7; 16])
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl SimulatedDisk {
    fn move_to(&self, from: &Path, to: &Path, replace: bool) -> Result<()> {
        let mut inner = self.call("rename to", to)?;
        let before = self.asserting.then(|| inner.state.clone());
        let moved = inner.state.rename(from, to, replace);
        self.done("rename to", to, moved, &mut inner)?;
        if let Some(before) = before {
            let after = inner.state.clone();
            drop(inner);
            order::appeared(&after, to);
            order::removed(&before, &after, from);
        }
        Ok(())
    }
}

/// An open file; it can be read after its name has gone.
#[derive(Debug)]
struct SimulatedFile {
    inner: Arc<Mutex<Inner>>,
    id: Id,
    path: PathBuf,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inner")
    }
}

impl SimulatedFile {
    fn call(&self, name: &str) -> io::Result<MutexGuard<'_, Inner>> {
        before(&self.inner, name, &self.path).map_err(io::Error::from_raw_os_error)
    }

    fn transfer(&self, name: &str) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.call(name)?;
        inner.interrupt = inner.faults.interrupted && !inner.interrupt;
        if inner.interrupt { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(inner) }
    }
}

impl Handle for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        let inner = self.call("stat")?;
        inner.state.bytes(self.id).map(|bytes| bytes.len() as u64).map_err(io::Error::from_raw_os_error)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.transfer("read")?;
        let bytes = inner.state.bytes(self.id).map_err(io::Error::from_raw_os_error)?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len()).min(inner.faults.short.unwrap_or(usize::MAX));
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.transfer("write")?;
        let free = match inner.faults.capacity {
            Some(capacity) if !inner.faults.full_at_sync => capacity.saturating_sub(inner.state.used) as usize,
            _ => usize::MAX,
        };
        let count = bytes.len().min(free).min(inner.faults.short.unwrap_or(usize::MAX));
        if count == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        inner.state.append(self.id, &bytes[..count]);
        changed(&mut inner, "write", &self.path);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        let full = |inner: &Inner| inner.faults.capacity.is_some_and(|capacity| inner.state.used > capacity);
        let failed = match self.call("fsync") {
            Ok(mut inner) if !full(&inner) => {
                inner.state.sync_file(self.id);
                changed(&mut inner, "fsync", &self.path);
                return Ok(());
            }
            Ok(_) => io::Error::from_raw_os_error(libc::ENOSPC),
            Err(error) => error,
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.state.fail_sync(self.id);
        changed(&mut inner, "failed fsync", &self.path);
        Err(failed)
    }

    fn start_writeback(&self) {}
}
