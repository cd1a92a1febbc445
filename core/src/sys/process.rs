//! Processes: who they are beyond a pid that may be reused, what folder they work in, signals and waiting.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::{Error, ErrorKind, Result};

/// A process for life: a pid together with the clock ticks since boot at which it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Process number.
    pub pid: u32,
    /// Start time in raw clock ticks since boot, as in `/proc/PID/stat`.
    pub ticks: u64,
}

/// What `/proc/PID/stat` says of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// State letter; `Z` is a zombie.
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// Clock ticks of processor time it has used.
    pub cpu: u64,
    /// Clock ticks since boot at its start.
    pub ticks: u64,
}

impl Identity {
    /// The identity of a living process; `None` where there is none, and for a zombie.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        stat(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X')).map(|stat| Self { pid, ticks: stat.ticks })
    }

    /// The identity of this process.
    ///
    /// # Errors
    /// `Unsupported` where `/proc` is not mounted.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "/proc does not show this process").hint("mount /proc and try again"))
    }

    /// Whether this very process lives, not another one that got its pid.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// Reads `/proc/PID/stat`.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    let bytes = super::fs::read(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The name may hold spaces and parentheses: it ends at the last closing one.
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        cpu: number(11)?.saturating_add(number(12)?),
        ticks: number(19)?,
    })
}

/// The kernel's identifier of this boot: pids and ticks mean nothing across two of them.
///
/// # Errors
/// `Unsupported` where `/proc` is not mounted.
pub fn boot_id() -> Result<String> {
    let bytes = super::fs::read(Path::new("/proc/sys/kernel/random/boot_id"))
        .map_err(|error| Error::new(ErrorKind::Unsupported, "/proc has no boot identifier").because(error))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Every pid there is now, in no order.
#[must_use]
pub fn all() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The living processes of `program` (name of its executable) whose working folder is `folder`, also when it was renamed
/// since they started. An ordinary user sees its own only; root sees those of the folder's owner also where it may not look
/// into other users' processes (a container without `CAP_SYS_PTRACE`).
///
/// # Errors
/// `Io` where the folder cannot be examined; a folder that does not exist has no processes.
pub fn working_in(folder: &Path, program: &str) -> Result<Vec<u32>> {
    let described = match std::fs::metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::io("examine", folder, source)),
    };
    let wanted = (described.dev(), described.ino());
    let mut pids = scan(wanted, program);
    if rustix::process::geteuid().is_root() && described.uid() != 0 {
        let look = super::identity::Look::as_account(described.uid(), described.gid());
        pids.extend(scan(wanted, program));
        drop(look);
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn scan(wanted: (u64, u64), program: &str) -> Vec<u32> {
    let works_there = |pid: &u32| std::fs::metadata(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| (cwd.dev(), cwd.ino()) == wanted);
    all().into_iter().filter(works_there).filter(|pid| runs(*pid, program) && Identity::of(*pid).is_some()).collect()
}

/// Whether a process executes a file of this name (as far as this user can see, else by the name in its stat).
#[must_use]
pub fn runs(pid: u32, program: &str) -> bool {
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => path.file_name().is_some_and(|name| name.to_string_lossy().trim_end_matches(" (deleted)") == program),
        Err(_) => stat(pid).is_some_and(|stat| stat.name == program),
    }
}

/// The arguments of a process; empty where they cannot be read.
#[must_use]
pub fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let bytes = super::fs::read(Path::new(&format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// How many bytes a process has moved by read and write calls; 0 where that cannot be read.
#[must_use]
pub fn bytes_moved(pid: u32) -> u64 {
    let bytes = super::fs::read(Path::new(&format!("/proc/{pid}/io"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().take(2).filter_map(|line| line.split_once(": ")?.1.parse::<u64>().ok()).sum()
}

/// The working folder of a process, where this user may see it.
#[must_use]
pub fn folder_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// A hold on one process that cannot come to mean another one.
#[derive(Debug)]
pub struct Handle {
    identity: Identity,
    descriptor: Option<OwnedFd>,
}

impl Handle {
    /// Takes hold; `None` where that process is gone.
    #[must_use]
    pub fn open(identity: Identity) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
        let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        // Looked at after the descriptor was opened: were the pid reused before, the ticks would differ.
        identity.is_alive().then_some(Self { identity, descriptor })
    }

    /// Which process.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Becomes readable when it ends, where the kernel has such a descriptor.
    #[must_use]
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptor.as_ref()
    }

    /// Sends a signal; a process that has ended is fine.
    ///
    /// # Errors
    /// `Permission` naming the pid.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if !self.identity.is_alive() {
            return Ok(());
        }
        let sent = match (&self.descriptor, i32::try_from(self.identity.pid).ok().and_then(Pid::from_raw)) {
            (Some(descriptor), _) => rustix::process::pidfd_send_signal(descriptor, signal),
            (None, Some(pid)) => rustix::process::kill_process(pid, signal),
            (None, None) => Ok(()),
        };
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(Error::new(ErrorKind::Permission, format!("cannot signal process {}: {errno}", self.identity.pid))
                .with("pid", self.identity.pid)
                .hint("run as the user that started the server")),
        }
    }

    /// Waits at most `limit` for its end; whether it has ended. A zombie counts as gone.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            if !self.identity.is_alive() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.pause(left.min(Duration::from_millis(50)));
        }
    }

    fn pause(&self, pause: Duration) {
        let Some(descriptor) = &self.descriptor else {
            std::thread::sleep(pause.min(Duration::from_millis(2)));
            return;
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let ready = rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout));
        if ready.is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether somebody is attached to a System V shared memory segment; `false` where there is no such segment.
#[must_use]
pub fn shared_memory_attached(id: i32) -> bool {
    // SAFETY: shmid_ds is plain data for which all zeroes is a value.
    let mut described: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: IPC_STAT writes one shmid_ds to the pointer, which is valid for the call.
    let found = unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut described) };
    found == 0 && described.shm_nattch > 0
}

/// Whether a process with this pid, ours or not, is there to be signalled: what Postgres asks of the pid in a lock file.
#[must_use]
pub fn answers(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(Pid::from_raw).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// A child that a test forked.
#[cfg(test)]
pub(crate) struct Forked(libc::pid_t);

#[cfg(test)]
impl Forked {
    /// Forks and does `work` in the child. For tests in a process of one thread.
    pub(crate) fn new(work: impl FnOnce() -> bool) -> Self {
        // SAFETY: no other thread runs that could hold a lock which the child needs.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: ends the child at once, running nothing of the parent's.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        Self(pid)
    }

    /// Waits for its end; whether the work was true.
    pub(crate) fn wait(self) -> bool {
        let mut status = 0;
        // SAFETY: waits for the child made above; the pointer is to a live integer.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        waited == self.0 && status == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        let stranger = Identity { pid: own.pid, ticks: own.ticks + 1 };
        assert!(!stranger.is_alive());
        assert!(Handle::open(stranger).is_none());
    }

    #[test]
    fn an_ended_child_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let handle = Handle::open(Identity::of(child.id()).unwrap()).unwrap();
        assert!(!handle.wait(Duration::from_millis(1)));
        handle.signal(Signal::KILL).unwrap();
        assert!(handle.wait(Duration::from_secs(10)));
        assert!(handle.signal(Signal::KILL).is_ok());
        child.wait().unwrap();
    }

    #[test]
    fn a_program_is_found_by_its_working_folder_through_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let before = folder.path().join("a");
        let after = folder.path().join("b");
        std::fs::create_dir(&before).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").current_dir(&before).spawn().unwrap();
        rustix::fs::rename(&before, &after).unwrap();
        assert_eq!(working_in(&after, "sleep").unwrap(), vec![child.id()]);
        assert_eq!(working_in(&after, "postgres").unwrap(), Vec::<u32>::new());
        assert_eq!(working_in(&before, "sleep").unwrap(), Vec::<u32>::new());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
