//! The disk that holds the store.

use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};

use super::place::Place;
use super::{Check, State};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lease::{self, Asked};
use crate::sys::lock::{Lock, Mode};
use crate::sys::{extents as map, mounts};

/// Below this a capture or a fork soon fails.
const LITTLE_SPACE: u64 = 1 << 30;
/// A cluster has about a thousand files.
const FEW_INODES: u64 = 20_000;

pub(super) fn check(place: &Place, checks: &mut Vec<Check>) {
    checks.push(writable(place).required());
    checks.push(file_system(place).required());
    checks.push(space(place));
    checks.push(inodes(place));
    let mut tried = |name, found: &str, required: bool, attempt: fn(&Path) -> Result<()>| {
        let check = match place.work() {
            Ok(work) => Check::tried("disk", name, attempt(work), |()| found.to_owned()),
            Err(why) => Check::new("disk", name, State::Unknown, format!("not tried: {why}")),
        };
        checks.push(if required { check.required() } else { check });
    };
    tried("locks", "a lock keeps a second one out", true, locks);
    tried("sync", "a file and a folder were made durable", true, sync);
    tried("exchange", "two files were exchanged in one step", false, exchange);
    tried("leases", "a read lease was given and taken back", false, leases);
    tried("extents", "where files lie, and what they share, is told", false, extents);
}

/// A store that this build cannot use, where there is one.
pub(super) fn format(error: Option<&Error>) -> Option<Check> {
    let error = error.filter(|error| error.kind() != ErrorKind::NotFound)?;
    Some(Check::new("disk", "format", State::Unavailable, error.message()).required())
}

fn writable(place: &Place) -> Check {
    match &place.work {
        Ok(_) => Check::new("disk", "writable", State::Available, format!("{} can be written to", place.folder.display())),
        Err(error) if error.kind() == ErrorKind::ReadOnly => {
            Check::new("disk", "writable", State::Unavailable, format!("{} is read-only", place.folder.display()))
        }
        Err(error) => Check::new("disk", "writable", State::Unavailable, error.message()),
    }
}

fn file_system(place: &Place) -> Check {
    let mount = mounts::of(&place.folder).ok().flatten();
    let kind = mount.as_ref().map_or("unknown", |mount| mount.kind.as_str()).to_owned();
    let check = match sys::fs::network_file_system(&place.folder) {
        Ok(Some(name)) => Check::new(
            "disk",
            "file_system",
            State::Unavailable,
            format!("{name} is a network file system: locks and durability do not hold on it"),
        ),
        Ok(None) if matches!(kind.as_str(), "tmpfs" | "ramfs") => {
            Check::new("disk", "file_system", State::Limited, format!("{kind}: a store here is gone with the next boot"))
        }
        Ok(None) => Check::new("disk", "file_system", State::Available, kind.clone()),
        Err(error) => Check::new("disk", "file_system", State::Unknown, error.message()),
    };
    let check = check.fact("kind", kind);
    match mount {
        Some(mount) => check.fact("mount_point", mount.point.display().to_string()).fact("source", mount.source.display().to_string()),
        None => check,
    }
}

fn space(place: &Place) -> Check {
    match rustix::fs::statvfs(&place.folder) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let total = found.f_blocks.saturating_mul(found.f_frsize);
            let (state, found) = verdict(free, LITTLE_SPACE, format!("{} of {} MiB are free", free >> 20, total >> 20));
            Check::new("disk", "space", state, found).fact("free", free).fact("total", total)
        }
        Err(errno) => Check::new("disk", "space", State::Unknown, errno.to_string()),
    }
}

fn inodes(place: &Place) -> Check {
    match rustix::fs::statvfs(&place.folder) {
        Ok(found) if found.f_files == 0 => Check::new("disk", "inodes", State::Available, "this file system makes them as needed"),
        Ok(found) => {
            let (state, text) = verdict(found.f_favail, FEW_INODES, format!("{} of {} are free", found.f_favail, found.f_files));
            Check::new("disk", "inodes", state, text).fact("free", found.f_favail).fact("total", found.f_files)
        }
        Err(errno) => Check::new("disk", "inodes", State::Unknown, errno.to_string()),
    }
}

fn verdict(free: u64, little: u64, found: String) -> (State, String) {
    match free {
        0 => (State::Unavailable, found),
        free if free < little => (State::Limited, found),
        _ => (State::Available, found),
    }
}

fn locks(work: &Path) -> Result<()> {
    let path = work.join("lock");
    let first = Lock::attempt(&path, Mode::Exclusive)?;
    let second = Lock::attempt(&path, Mode::Exclusive)?;
    if first.is_some() && second.is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "a second lock was given on a locked file: two commands could work on one thing"))
}

fn sync(work: &Path) -> Result<()> {
    let syncs = Syncs::new();
    sys::fs::write_new(&work.join("durable"), &[b"durable"], 0o600, &syncs)?;
    syncs.folder(work)
}

fn exchange(work: &Path) -> Result<()> {
    let (one, other) = (work.join("one"), work.join("other"));
    for path in [&one, &other] {
        sys::fs::create_new(path, 0o600)?
            .write_all(path.as_os_str().as_encoded_bytes())
            .map_err(|source| Error::io("write", path, source))?;
    }
    rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).map_err(|errno| Error::io("exchange", &one, errno))?;
    if sys::fs::read(&one)? == other.as_os_str().as_encoded_bytes() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "an exchange of two files did nothing"))
}

fn leases(work: &Path) -> Result<()> {
    let path = work.join("leased");
    drop(sys::fs::create_new(&path, 0o600)?);
    let file = std::fs::File::open(&path).map_err(|source| Error::io("open", &path, source))?;
    match lease::ask(&file) {
        Asked::Held(lease) if lease.is_whole() => Ok(()),
        Asked::Held(_) | Asked::OpenForWriting => {
            Err(Error::new(ErrorKind::Unsupported, "a lease on a file that nobody else has was broken"))
        }
        Asked::Unavailable => {
            Err(Error::new(ErrorKind::Unsupported, "no leases here: an edit in the moment of a restore is found by comparing twice"))
        }
    }
}

fn extents(work: &Path) -> Result<()> {
    let path = work.join("mapped");
    let mut file = sys::fs::create_new(&path, 0o600)?;
    file.write_all(&[5; 64 << 10]).map_err(|source| Error::io("write", &path, source))?;
    match map::extents(&file) {
        Ok(found) if !found.is_empty() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Unsupported, "a file with content is said to lie nowhere")),
        Err(errno) => Err(Error::new(ErrorKind::Unsupported, format!("not told here ({errno})"))),
    }
}
