//! Room on the worktree's file system: asked for before anything is touched.

use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::State;
use crate::store::{Entry, EntryKind};

/// The most and the least that is asked for beyond the content itself: folders grow, and journals.
const SLACK: [u64; 2] = [64 << 10, 1 << 20];

/// Fails where what will be written beside the files does not fit, in bytes or in inodes, before anything is freed.
pub(super) fn check(work: &Work<'_>, needed: &[(&Entry, State)]) -> Result<()> {
    let others = work.target.iter().zip(&work.states).filter(|(entry, (state, _))| {
        let made = matches!(state, State::Missing | State::Kind | State::Content);
        made && !matches!(entry.kind, EntryKind::File { .. } | EntryKind::Socket)
    });
    let files = (needed.len() + others.count()) as u64;
    if files == 0 {
        return Ok(());
    }
    let root = work.root.path();
    let system = rustix::fs::statvfs(root).map_err(|errno| Error::io("examine the file system of", root, errno))?;
    let block = system.f_frsize.max(1);
    let content = needed.iter().map(|(entry, _)| content_of(entry).div_ceil(block).saturating_mul(block));
    let [least, most] = SLACK;
    let slack = (system.f_blocks.saturating_mul(block) / 64).clamp(least, most);
    let bytes = content.fold(slack, u64::saturating_add);
    let free = system.f_bavail.saturating_mul(block);
    if bytes > free {
        return Err(short(work, "bytes", bytes, free));
    }
    // File systems that make inodes as they need them count none.
    if system.f_files > 0 && files + 1 > system.f_favail {
        return Err(short(work, "inodes", files + 1, system.f_favail));
    }
    Ok(())
}

/// Bytes that get blocks.
fn content_of(entry: &Entry) -> u64 {
    match &entry.kind {
        EntryKind::File { size, holes, .. } => holes.iter().fold(*size, |left, (_, length)| left.saturating_sub(*length)),
        _ => 0,
    }
}

fn short(work: &Work<'_>, what: &str, needed: u64, free: u64) -> Error {
    let root = work.root.path().display();
    Error::new(ErrorKind::NoSpace, format!("{needed} {what} are needed on the file system of {root}, and {free} are free"))
        .with("path", &root)
        .with("needed", needed)
        .with("free", free)
        .hint(format!("nothing was touched: free space on the file system of {root} and try again"))
}
