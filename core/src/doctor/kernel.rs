//! What the kernel lets this user do: namespaces, filters, memory that processes share.

use std::path::Path;

use super::place::Place;
use super::{Check, State};
use crate::sys;
use crate::sys::identity::Switch;
use crate::sys::kernel;

/// Postgres keeps the memory of parallel queries here.
const SHARED_MEMORY: &str = "/dev/shm";
/// Containers give 64 MiB by default, which a few parallel queries use up.
const LITTLE_MEMORY: u64 = 128 << 20;
/// Every server needs one segment of System V.
const FEW_SEGMENTS: u64 = 64;

/// What can keep a server from reaching out, from the strongest on.
const CONTAINMENT: [&str; 3] = ["seccomp", "landlock", "network_namespaces"];

pub(super) fn check(place: &Place, checks: &mut Vec<Check>) {
    checks.push(user_namespaces());
    checks.push(network_namespaces());
    checks.push(Check::tried("kernel", "seccomp", kernel::attempt_seccomp(), |()| "a process was given a filter".to_owned()));
    checks.push(landlock());
    checks.push(Check::tried("kernel", "pidfd", kernel::attempt_pidfd(), |()| {
        "signals cannot reach a process that took over a number".to_owned()
    }));
    checks.push(resolve_beneath(place));
    checks.push(shared_memory());
    checks.push(segments());
}

/// The names of those that are there.
pub(super) fn containment(checks: &[Check]) -> Vec<String> {
    let there = |name: &str| checks.iter().any(|check| check.name == name && matches!(check.state, State::Available | State::Limited));
    CONTAINMENT.into_iter().filter(|name| there(name)).map(str::to_owned).collect()
}

/// As nobody, whom every machine has a number for; as whom servers run is decided by its passwd entries.
fn namespace() -> Switch {
    Switch::namespace(65534, 65534)
}

fn user_namespaces() -> Check {
    Check::tried("kernel", "user_namespaces", namespace().attempt(), |()| "a process had one, with a user of its own in it".to_owned())
}

fn network_namespaces() -> Check {
    Check::tried("kernel", "network_namespaces", namespace().attempt_with_network(), |()| {
        "a process had one, without privileges".to_owned()
    })
}

fn landlock() -> Check {
    match kernel::landlock_abi() {
        Ok(abi) => {
            let (state, found) = match abi {
                0..3 => (State::Limited, format!("version {abi}: files can still be cut (3 is needed, Linux 6.2)")),
                3..6 => (State::Limited, format!("version {abi}: signals stay open (6 is needed, Linux 6.12)")),
                _ => (State::Available, format!("version {abi}: files and signals")),
            };
            Check::new("kernel", "landlock", state, found).fact("abi", abi)
        }
        Err(error) => Check::new("kernel", "landlock", State::Unavailable, error.to_string()),
    }
}

fn resolve_beneath(place: &Place) -> Check {
    let found = "paths are resolved below a folder by the kernel";
    Check::tried("kernel", "openat2", attempt_resolve(&place.folder), |()| found.to_owned())
}

#[cfg(target_os = "linux")]
fn attempt_resolve(folder: &Path) -> Result<(), rustix::io::Errno> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn attempt_resolve(_folder: &Path) -> Result<(), rustix::io::Errno> {
    Err(rustix::io::Errno::NOSYS)
}

fn shared_memory() -> Check {
    let folder = Path::new(SHARED_MEMORY);
    let usable = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match usable.and_then(|()| rustix::fs::statvfs(folder)) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let total = found.f_blocks.saturating_mul(found.f_frsize);
            let text = format!("{} of {} MiB are free in {SHARED_MEMORY}", free >> 20, total >> 20);
            let check = if free < LITTLE_MEMORY {
                Check::new("kernel", "shared_memory", State::Limited, format!("{text}: parallel queries may fail (docker run --shm-size)"))
            } else {
                Check::new("kernel", "shared_memory", State::Available, text)
            };
            check.fact("free", free).fact("total", total)
        }
        Err(errno) => Check::new("kernel", "shared_memory", State::Limited, format!("{SHARED_MEMORY} cannot be used: {errno}")),
    }
}

/// Of System V: one for each server.
fn segments() -> Check {
    let limit = |name: &str| {
        let text = sys::fs::read_optional(&Path::new("/proc/sys/kernel").join(name)).ok().flatten()?;
        String::from_utf8_lossy(&text).trim().parse::<u64>().ok()
    };
    let Some((most, largest)) = limit("shmmni").zip(limit("shmmax")) else {
        return Check::new("kernel", "shared_segments", State::Unknown, "/proc/sys/kernel does not tell their limits");
    };
    let state = if most < FEW_SEGMENTS { State::Limited } else { State::Available };
    Check::new("kernel", "shared_segments", state, format!("{most} at most, one for each server that runs"))
        .fact("most", most)
        .fact("largest", largest)
}
