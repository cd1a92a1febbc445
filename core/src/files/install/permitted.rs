//! Whether this user may do what an install has to do: found out before anything is touched.

use std::collections::HashMap;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use super::InstallRequest;
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::{Guard, State};
use crate::files::ignores::{Rules, prefixes};
use crate::files::scan::{lossy, scan};
use crate::store::EntryKind;
use crate::sys::tree::{Kind, Stat, split, stat_open};

/// How many paths an error names.
const NAMED: usize = 3;

/// Fails where a path that would be made, replaced, deleted or changed is out of this user's hands.
pub(super) fn check(work: &Work<'_>, request: &InstallRequest<'_>) -> Result<()> {
    let mut look = Look { work, folders: HashMap::new(), refused: Vec::new() };
    let (wanted, on_disk) = (work.leaders(), work.leaders_on_disk());
    for (own, (entry, (state, stat))) in work.target.iter().zip(&work.states).enumerate() {
        match state {
            _ if entry.kind == EntryKind::Socket => {}
            State::Same if wanted.get(own) == on_disk.get(own) => {}
            State::Metadata if wanted.get(own) == on_disk.get(own) => look.metadata(&entry.path, stat.as_ref()),
            _ => look.name(&entry.path, stat.as_ref()),
        }
    }
    for path in leaving(work, request)? {
        let stat = work.root.stat(&path).ok().flatten();
        look.name(&path, stat.as_ref());
    }
    look.verdict()
}

/// What an install would delete. A restore stages before its safety capture, so the disk tells what that will have.
fn leaving(work: &Work<'_>, request: &InstallRequest<'_>) -> Result<Vec<Vec<u8>>> {
    if request.safety != request.target {
        return Ok(work.deletions.clone());
    }
    let disk = scan(&request.scope.existing(), work.control)?;
    let guard = Guard::new(request.scope, Rules::of_manifest(work.reader, work.target.iter())?, &disk.rules)?;
    let captured = |path: &[u8]| work.target.binary_search_by(|entry| entry.path.as_slice().cmp(path)).is_ok();
    let gone = disk.found.iter().filter(|found| !captured(&found.path) && !matches!(found.stat.kind, Kind::Socket | Kind::Device));
    let gone = gone.filter(|found| guard.may_delete(&found.path, found.stat.kind == Kind::Folder));
    Ok(gone.map(|found| found.path.clone()).collect())
}

/// What is known of a folder in which names change.
#[derive(Clone, Copy)]
enum Folder {
    /// Names in it can change, or will be able to once its owner, this user, has opened it.
    Open(Option<Stat>),
    /// They cannot.
    Closed(Errno),
}

struct Look<'w, 'a> {
    work: &'w Work<'a>,
    folders: HashMap<Vec<u8>, Folder>,
    refused: Vec<(Vec<u8>, Errno)>,
}

impl Look<'_, '_> {
    /// A name that is made, replaced or taken away.
    fn name(&mut self, path: &[u8], stat: Option<&Stat>) {
        let above = split(path).0;
        let folder = match self.folders.get(above) {
            Some(folder) => *folder,
            None => {
                let folder = self.folder(above);
                self.folders.insert(above.to_vec(), folder);
                folder
            }
        };
        match (folder, stat) {
            (Folder::Closed(errno), _) => self.refuse(path, errno),
            (Folder::Open(Some(folder)), Some(stat)) if folder.mode & 0o1000 != 0 && !owns(&folder) && !owns(stat) => {
                self.refuse(path, Errno::PERM);
            }
            (Folder::Open(_), Some(_)) if self.fixed(path) => self.refuse(path, Errno::PERM),
            _ => {}
        }
    }

    /// Mode, owner or attributes of what stays in place.
    fn metadata(&mut self, path: &[u8], stat: Option<&Stat>) {
        if stat.is_some_and(|stat| !owns(stat)) || self.fixed(path) {
            self.refuse(path, Errno::PERM);
        }
    }

    /// A folder, or the nearest one above it that is there: the rest will be made.
    fn folder(&self, path: &[u8]) -> Folder {
        let root = &self.work.root;
        let above: Vec<&[u8]> = if path.is_empty() { Vec::new() } else { prefixes(path).chain([path]).collect() };
        let mut nearest: &[u8] = b"";
        for folder in above {
            match root.stat(folder) {
                Ok(Some(stat)) if stat.kind == Kind::Folder => nearest = folder,
                Ok(None) => break,
                // A file that becomes a folder: its own name is looked at.
                Ok(Some(_)) => return Folder::Open(None),
                // The one above lets nobody in; whose it is says whether that can change.
                Err(Errno::ACCESS) => break,
                Err(errno) => return Folder::Closed(errno),
            }
        }
        let held = match root.parent(&[nearest, b"/x"].concat()) {
            _ if nearest.is_empty() => root.parent(b"x"),
            held => held,
        };
        let found = held.and_then(|held| {
            let stat = stat_open(&held)?;
            match rustix::fs::accessat(held.as_fd(), ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
                Err(Errno::ACCESS) if owns(&stat) && !nearest.is_empty() => Ok(stat),
                Ok(()) => Ok(stat),
                Err(errno) => Err(errno),
            }
        });
        match found {
            Ok(_) if !nearest.is_empty() && self.fixed(nearest) => Folder::Closed(Errno::PERM),
            Ok(stat) => Folder::Open(Some(stat)),
            Err(errno) => Folder::Closed(errno),
        }
    }

    /// Whether it is marked immutable or append-only, which also stops root.
    fn fixed(&self, path: &[u8]) -> bool {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{StatxAttributes, StatxFlags};
            let stat = self.work.root.parent(path).and_then(|folder| {
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
                rustix::fs::statx(folder, split(path).1, flags, StatxFlags::empty())
            });
            stat.is_ok_and(|stat| stat.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = path;
            false
        }
    }

    fn refuse(&mut self, path: &[u8], errno: Errno) {
        self.refused.push((path.to_vec(), errno));
    }

    fn verdict(self) -> Result<()> {
        let Some((first, errno)) = self.refused.first() else { return Ok(()) };
        let named: Vec<String> = self.refused.iter().take(NAMED).map(|(path, _)| lossy(path).display().to_string()).collect();
        let more = self.refused.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let kind = if *errno == Errno::ROFS { ErrorKind::ReadOnly } else { ErrorKind::Permission };
        let reason = std::io::Error::from(*errno);
        Err(Error::new(kind, format!("this user may not change {}{more}: {reason}", named.join(", ")))
            .with("path", self.work.root.full(first).display())
            .hint(
                "nothing was touched: give them and their folders to this user (chown, chmod, chattr), or move them away, and run it again",
            ))
    }
}

fn owns(stat: &Stat) -> bool {
    let own = rustix::process::geteuid();
    own.is_root() || own.as_raw() == stat.uid
}
