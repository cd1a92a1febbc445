//! In a rewind: what came out and is not what was planned for goes back to where it was.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::displaced::{Fate, examine, keep, rename_new};
use super::work::Work;
use crate::error::Result;
use crate::files::plan::Verdict;
use crate::files::temporary;
use crate::sys::tree::{Kind, split, stat_at};

/// How often somebody may save again while their file is put back.
const ATTEMPTS: usize = 8;

/// Puts what lies under a temporary name back to its path, and notes why. What comes out of that is looked at too: ours is
/// removed; a later save of somebody's stays at the path, and the earlier one goes to the folder of kept files.
pub(super) fn put_back(work: &mut Work<'_>, parent: &OwnedFd, aside: &[u8], path: &[u8], why: Fate) -> Result<()> {
    let name = split(path).1;
    work.touched.insert(split(path).0.to_vec());
    let verdict = if why == Fate::Open { Verdict::KeptOpen } else { Verdict::KeptAfter };
    for _ in 0..ATTEMPTS {
        let there = stat_at(parent.as_fd(), name).map_err(|errno| work.failed("stat", path, errno))?;
        let result = match there {
            None => match rename_new(parent, aside, name) {
                Ok(()) => {
                    work.note(path, verdict);
                    return Ok(());
                }
                result => result,
            },
            Some(stat) if stat.kind == Kind::Folder => return keep(work, parent, aside, path),
            Some(_) => match rustix::fs::renameat_with(parent, aside, parent, name, RenameFlags::EXCHANGE) {
                Ok(()) => return settle(work, parent, aside, path, verdict),
                Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV) => {
                    let (_, out) = temporary::pair(path)?;
                    match rename_new(parent, name, &out) {
                        Ok(()) => {
                            if !matches!(examine(work, parent, &out, path)?, Fate::Removed | Fate::Unsure) {
                                // Theirs, and later than what lies aside.
                                return restore_later(work, parent, &out, aside, path);
                            }
                            continue;
                        }
                        Err(errno) => Err(errno),
                    }
                }
                Err(errno) => Err(errno),
            },
        };
        match result {
            Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => {}
            Err(errno) => return Err(work.failed("put back what was at", path, errno)),
        }
    }
    keep(work, parent, aside, path)
}

/// Looks at what the exchange back brought out.
fn settle(work: &mut Work<'_>, parent: &OwnedFd, out: &[u8], path: &[u8], verdict: Verdict) -> Result<()> {
    if matches!(examine(work, parent, out, path)?, Fate::Removed | Fate::Unsure) {
        work.note(path, verdict);
        return Ok(());
    }
    // They saved once more: that stays in place, and what they saved before it is kept.
    match rustix::fs::renameat_with(parent, out, parent, split(path).1, RenameFlags::EXCHANGE) {
        Ok(()) | Err(Errno::NOENT) => keep(work, parent, out, path),
        Err(errno) => Err(work.failed("put back what was at", path, errno)),
    }
}

fn restore_later(work: &mut Work<'_>, parent: &OwnedFd, later: &[u8], earlier: &[u8], path: &[u8]) -> Result<()> {
    match rename_new(parent, later, split(path).1) {
        Ok(()) => {}
        Err(Errno::EXIST) => keep(work, parent, later, path)?,
        Err(errno) => return Err(work.failed("put back what was at", path, errno)),
    }
    keep(work, parent, earlier, path)
}
