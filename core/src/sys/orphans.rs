//! Processes that lost their parents within a tree of ours: they become children of its first process, which ends them.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

use super::process;

/// Makes orphans below this process its own children instead of init's.
///
/// # Errors
/// That of prctl.
pub fn adopt() -> std::io::Result<()> {
    // SAFETY: plain numbers.
    let status = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if status < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes note of every child that has ended but `except`, which somebody else waits for.
pub fn reap(except: u32) {
    loop {
        // SAFETY: siginfo_t is plain data for which all zeroes is a value.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer is valid for the call.
        let looked = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, look) };
        // SAFETY: the kernel has filled in this member, or left it zero where no child has ended.
        let pid = unsafe { found.si_pid() };
        if looked < 0 || pid <= 0 || u32::try_from(pid) == Ok(except) {
            return;
        }
        if rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::NOHANG).is_err() {
            return;
        }
    }
}

/// Kills every child, those of `patient` (name of their executable) only after `grace`, until there is none or `limit` is over.
pub fn end_all(patient: &str, grace: Duration, limit: Duration) {
    let (own, begin) = (std::process::id(), Instant::now());
    while begin.elapsed() < limit {
        reap(0);
        let children: Vec<u32> =
            process::all().into_iter().filter(|pid| process::stat(*pid).is_some_and(|stat| stat.parent == own)).collect();
        if children.is_empty() {
            return;
        }
        for pid in children.iter().filter(|pid| begin.elapsed() >= grace || !process::runs(**pid, patient)) {
            // A child that was not waited for yet still owns its pid.
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
