//! flock on open files: released by the kernel when the process dies, so no lock is ever stale.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// A held lock; dropping it, or the death of the process, releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    pid: u32,
}

impl Lock {
    /// Takes the lock on `path` (created with mode 0600 where absent) if that needs no waiting.
    ///
    /// # Errors
    /// `Io` and its like; a lock that is held elsewhere is `Ok(None)`.
    pub fn attempt(path: &Path, mode: Mode) -> Result<Option<Self>> {
        Self::attempt_on(open(path, mode)?, path, mode)
    }

    /// As [`Lock::attempt`] for a file or folder that exists and is only opened for reading: nothing is written.
    ///
    /// # Errors
    /// `NotFound`, `Permission`, `Io`; a lock that is held elsewhere is `Ok(None)`.
    pub fn attempt_existing(path: &Path, mode: Mode) -> Result<Option<Self>> {
        Self::attempt_on(open_existing(path)?, path, mode)
    }

    fn attempt_on(file: File, path: &Path, mode: Mode) -> Result<Option<Self>> {
        let operation = match mode {
            Mode::Shared => FlockOperation::NonBlockingLockShared,
            Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            match rustix::fs::flock(file.as_fd(), operation) {
                Ok(()) => return Ok(Some(Self { file, path: path.to_owned(), pid: std::process::id() })),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("lock", path, errno)),
            }
        }
    }

    /// Takes the lock, waiting at most `patience` and as long as `control` is not cancelled.
    ///
    /// # Errors
    /// `Busy` after `patience`, `Cancelled`, `Io`.
    pub fn wait(path: &Path, mode: Mode, patience: Duration, control: &Control) -> Result<Self> {
        poll(path, patience, control, || Self::attempt(path, mode))
    }

    /// As [`Lock::wait`] for a file that exists: see [`Lock::attempt_existing`].
    ///
    /// # Errors
    /// `Busy` after `patience`, `Cancelled`, `NotFound`, `Permission`, `Io`.
    pub fn wait_existing(path: &Path, mode: Mode, patience: Duration, control: &Control) -> Result<Self> {
        poll(path, patience, control, || Self::attempt_existing(path, mode))
    }

    /// As [`Lock::wait`] for a folder.
    ///
    /// # Errors
    /// `Busy` after `patience`, `Cancelled`, `NotFound`, `Permission`, `Io`.
    pub fn wait_folder(path: &Path, mode: Mode, patience: Duration, control: &Control) -> Result<Self> {
        Self::wait_existing(path, mode, patience, control)
    }

    /// The locked file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file that carries the lock.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets the lock go also where children of forks still have the file open, which would otherwise hold it for as long as they live;
    /// nothing in such a child. Not for a lock that was handed to another process.
    pub fn release(&self) {
        if self.check_process().is_ok() {
            rustix::fs::flock(self.file.as_fd(), FlockOperation::Unlock).ok();
        }
    }

    /// Fails in a child of a fork, which shares the lock with its parent without having taken it.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Forked, format!("the handle was opened by process {} before a fork", self.pid))
                .hint("open the store again in the child"))
        }
    }
}

/// Attempts until it succeeds, at most for `patience` and as long as `control` is not cancelled.
///
/// # Errors
/// `Busy` after `patience`, `Cancelled`, and what `attempt` fails with.
pub fn poll<T>(path: &Path, patience: Duration, control: &Control, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(lock) = attempt()? {
            return Ok(lock);
        }
        control.check()?;
        if start.elapsed() >= patience {
            return Err(Error::new(ErrorKind::Busy, format!("{} is locked by another process", path.display()))
                .with("path", path.display())
                .hint("wait for the other command to end and try again"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn open(path: &Path, mode: Mode) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let created = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    match created {
        Ok(file) => check_kind(file, path),
        // A read-only store can still be read: a shared lock needs no writing.
        Err(error) if mode == Mode::Shared && matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES)) => open_existing(path),
        Err(source) => Err(Error::io("open", path, source)),
    }
}

/// Opens what is there for reading, without waiting for the writer of a named pipe.
fn open_existing(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    check_kind(opened.map_err(|source| Error::io("open", path, source))?, path)
}

/// Files and folders carry locks; with anything else somebody has put something in their place.
fn check_kind(file: File, path: &Path) -> Result<File> {
    let metadata = file.metadata().map_err(|source| Error::io("stat", path, source))?;
    if metadata.is_file() || metadata.is_dir() {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::Io, format!("{} is neither a file nor a folder, so it cannot be locked", path.display()))
        .with("path", path.display())
        .hint("move it away; a lock file is made anew when it is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_fork_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::attempt(&folder.path().join("lock"), Mode::Shared).unwrap().unwrap();
        lock.check_process().unwrap();
        // SAFETY: the child only compares its process id and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let told = lock.check_process().is_err_and(|error| error.kind() == ErrorKind::Forked);
            // SAFETY: ends the child at once, running nothing of the parent's.
            unsafe { libc::_exit(i32::from(!told)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; the pointer is to a live integer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }

    #[test]
    fn an_exclusive_lock_keeps_others_out_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(Lock::attempt_existing(&path, Mode::Shared).is_err());
        let alone = Lock::attempt(&path, Mode::Exclusive).unwrap().unwrap();
        assert!(Lock::attempt(&path, Mode::Shared).unwrap().is_none());
        let busy = Lock::wait_existing(&path, Mode::Shared, Duration::from_millis(5), &Control::silent()).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        drop(alone);
        let _first = Lock::attempt(&path, Mode::Shared).unwrap().unwrap();
        assert!(Lock::attempt_existing(&path, Mode::Shared).unwrap().is_some());
    }
}
