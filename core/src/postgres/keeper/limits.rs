//! How long a server runs: for a time, or until nobody has been connected for a time. Times are those of the kernel's clock since
//! boot, which goes on while the machine sleeps and which nobody sets.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::time::{ClockId, clock_gettime};

use super::super::Limits;
use crate::sys::process;

/// Most time between two looks, as the machine may have slept.
const LONGEST: Duration = Duration::from_secs(30);
/// Least time between two looks.
const SHORTEST: Duration = Duration::from_millis(50);

/// The limits of one public server.
pub(super) struct Watch {
    limits: Limits,
    data: PathBuf,
    socket: PathBuf,
    postmaster: u32,
    begun: Duration,
    /// When somebody was last connected.
    used: Duration,
    looked: Duration,
    /// Times of access and change of the socket's file after the last look.
    seen: Option<(Time, Time)>,
}

type Time = (i64, i64);

impl Watch {
    /// Begins now.
    pub(super) fn new(limits: Limits, data: PathBuf, socket: PathBuf, postmaster: u32) -> Self {
        let now = since_boot();
        Self { limits, data, socket, postmaster, begun: now, used: now, looked: now, seen: None }
    }

    /// How long nothing has to be looked at.
    pub(super) fn patience(&self) -> Option<Duration> {
        let now = since_boot();
        let until_end = self.limits.ttl_ms.map(|ttl| self.begun.saturating_add(Duration::from_millis(ttl)).saturating_sub(now));
        let until_look = self.interval().map(|interval| (self.looked + interval).saturating_sub(now));
        let next = [until_end, until_look].into_iter().flatten().min()?;
        Some(next.clamp(Duration::from_millis(1), LONGEST))
    }

    /// Whether its time is over, clients or not.
    pub(super) fn has_expired(&self) -> bool {
        self.limits.ttl_ms.is_some_and(|ttl| since_boot() >= self.begun.saturating_add(Duration::from_millis(ttl)))
    }

    /// Whether nobody has been connected for the time of the limit.
    pub(super) fn is_idle(&mut self) -> bool {
        let (Some(idle), Some(interval)) = (self.limits.idle_ms, self.interval()) else { return false };
        let now = since_boot();
        if now < self.looked + interval {
            return false;
        }
        self.looked = now;
        if self.was_called() || self.has_clients() {
            self.used = now;
        }
        now >= self.used.saturating_add(Duration::from_millis(idle))
    }

    /// Whether there is a session now.
    pub(super) fn has_clients(&self) -> bool {
        // Every session comes over the Unix socket, which the title of its process says as "[local]".
        let serves = |pid: &u32| process::arguments(*pid).iter().any(|part| contains(part, b"[local]"));
        let mine = |pid: &u32| process::stat(*pid).is_some_and(|stat| stat.parent == self.postmaster);
        process::working_in(&self.data, "postgres").unwrap_or_default().iter().filter(|pid| mine(pid)).any(serves)
    }

    /// Somebody is there again.
    pub(super) fn begin_anew(&mut self) {
        self.used = since_boot();
    }

    /// Whether anybody connected since the last call, however short: a connection is an access to the socket's file. Where times of
    /// access are not kept nobody ever did.
    fn was_called(&mut self) -> bool {
        let Some((accessed, changed)) = self.times() else { return false };
        // The server itself sets both times now and then, so that nobody clears the file away.
        let called = self.seen.is_some_and(|seen| accessed != seen.0 && (changed == seen.1 || accessed > changed));
        // With a change after the access the next access is written down, under `relatime` too.
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW } };
        let armed = rustix::fs::utimensat(CWD, &self.socket, &times, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        self.seen = self.times().filter(|_| armed).map(|(_, changed)| (accessed, changed));
        called
    }

    fn times(&self) -> Option<(Time, Time)> {
        let metadata = std::fs::metadata(&self.socket).ok()?;
        Some(((metadata.atime(), metadata.atime_nsec()), (metadata.mtime(), metadata.mtime_nsec())))
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.limits.idle_ms? / 10).clamp(SHORTEST, Duration::from_secs(5)))
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn watch(folder: &std::path::Path, limits: Limits) -> Watch {
        Watch::new(limits, folder.to_owned(), folder.join("socket"), std::process::id())
    }

    #[test]
    fn a_connection_that_came_and_went_is_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let mut watch = watch(folder.path(), Limits::default());
        watch.was_called();
        assert!(!watch.was_called());
        // The clock of the file system ticks between two accesses.
        std::thread::sleep(Duration::from_millis(20));
        drop(UnixStream::connect(folder.path().join("socket")).unwrap());
        if !watch.was_called() {
            println!("SKIPPED a_connection_that_came_and_went_is_seen_once: times of access are not kept here");
            return;
        }
        assert!(!watch.was_called());
    }

    #[test]
    fn without_limits_nothing_is_looked_at_and_with_them_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut free = watch(folder.path(), Limits::default());
        assert_eq!((free.patience(), free.has_expired(), free.is_idle()), (None, false, false));
        let mut over = watch(folder.path(), Limits { ttl_ms: Some(0), idle_ms: None });
        assert!(over.has_expired() && !over.is_idle());
        let long = watch(folder.path(), Limits { ttl_ms: Some(u64::MAX), idle_ms: Some(u64::MAX) });
        assert!(!long.has_expired() && long.patience().is_some_and(|patience| patience <= LONGEST));
    }
}
