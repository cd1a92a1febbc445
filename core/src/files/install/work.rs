//! What an install has to do, from two manifests and one look at the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use rustix::io::Errno;

use super::{Extent, InstallReport, InstallRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::files::compare::{Disk, Guard, Known, Links, State};
use crate::files::diff::compare;
use crate::files::ignores::{Rules, prefixes};
use crate::files::plan::{PlanItem, Verdict, check_names, compare_all, entries_of};
use crate::files::rewind::link_of;
use crate::progress::Control;
use crate::store::{ChunkId, Entry, EntryKind, Reader};
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::tree::{Kind, Root, Stat};

/// Everything the steps share.
pub(super) struct Work<'a> {
    pub(super) reader: &'a Reader,
    pub(super) staging: &'a Path,
    pub(super) kept: &'a Path,
    pub(super) control: &'a Control,
    pub(super) extent: Extent,
    pub(super) root: Root,
    /// In path order.
    pub(super) target: Vec<Entry>,
    /// How the disk stood to each of them at the start.
    pub(super) states: Vec<(State, Option<Stat>)>,
    /// By path.
    pub(super) safety: HashMap<Vec<u8>, Entry>,
    /// Paths to delete, in path order.
    pub(super) deletions: Vec<Vec<u8>>,
    pub(super) syncs: Syncs,
    pub(super) verdicts: BTreeMap<Vec<u8>, Verdict>,
    pub(super) warnings: Vec<String>,
    /// Folders in which a name changed.
    pub(super) touched: BTreeSet<Vec<u8>>,
    /// Folders that were made writable for a while, and the mode they had.
    pub(super) opened: BTreeMap<Vec<u8>, u16>,
    /// Paths at which an interrupted rewind had taken away what was planned.
    pub(super) vacated: HashSet<Vec<u8>>,
    prepared: HashSet<Vec<u8>>,
}

impl<'a> Work<'a> {
    /// Reads both manifests and compares the target with the disk, without touching anything.
    pub(super) fn new(request: &InstallRequest<'a>, control: &'a Control) -> Result<Self> {
        let InstallRequest { reader, scope, target, safety, staging, kept, extent } = *request;
        let root = Root::open(&scope.root)?;
        let (mut target, mut safety) = match extent {
            Extent::Whole => (entries_of(reader, &target)?, entries_of(reader, &safety)?),
            Extent::Differences => entries_apart(reader, &target, &safety)?,
        };
        let deletions = match extent {
            Extent::Whole => {
                let guard = (Rules::of_manifest(reader, target.iter())?, Rules::of_manifest(reader, safety.iter())?);
                deletions(&target, &safety, &Guard::new(scope, guard.0, &guard.1)?)
            }
            Extent::Differences => differences(&mut target, &mut safety),
        };
        let safety: HashMap<Vec<u8>, Entry> = safety.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        // The safety capture was made a moment ago: what has its stat has its content.
        let known = |path: &[u8], stat: &Stat| known(&safety, path, stat);
        let states = compare_all(&Disk { root: &root, known: &known }, &target, control)?;
        Ok(Self {
            reader,
            staging,
            kept,
            control,
            extent,
            root,
            target,
            states,
            safety,
            deletions,
            syncs: Syncs::new(),
            verdicts: BTreeMap::new(),
            warnings: Vec::new(),
            touched: BTreeSet::new(),
            opened: BTreeMap::new(),
            vacated: HashSet::new(),
            prepared: HashSet::new(),
        })
    }

    pub(super) fn report(self) -> InstallReport {
        let items = self.verdicts.into_iter().map(|(path, verdict)| PlanItem { path, verdict }).collect();
        InstallReport { items, fsyncs: self.syncs.count(), warnings: self.warnings }
    }

    /// For each path of the target the index of the first one that is the same file.
    pub(super) fn leaders(&self) -> Vec<usize> {
        let links = Links::of_manifest(self.target.iter());
        let index = |path: &[u8]| self.target.binary_search_by(|entry| entry.path.as_slice().cmp(path));
        self.target.iter().enumerate().map(|(own, entry)| index(links.leader(&entry.path)).unwrap_or(own)).collect()
    }

    /// For each path of the target the index of the first one that is the same file on disk.
    pub(super) fn leaders_on_disk(&self) -> Vec<usize> {
        let mut first = HashMap::new();
        let inode = |stat: &Option<Stat>| stat.filter(|stat| stat.kind == Kind::File && stat.nlink > 1).map(|stat| (stat.dev, stat.ino));
        let states = self.states.iter().enumerate();
        states.map(|(own, (_, stat))| inode(stat).map_or(own, |inode| *first.entry(inode).or_insert(own))).collect()
    }

    /// Notes what happened to a path; that something was kept outweighs the rest.
    pub(super) fn note(&mut self, path: &[u8], verdict: Verdict) {
        let noted = self.verdicts.entry(path.to_vec()).or_insert(verdict);
        if !noted.is_kept() {
            *noted = verdict;
        }
    }

    /// Whether this is a rewind and the path is no longer what was planned for: it is left as it is then.
    pub(super) fn leave_moved(&mut self, path: &[u8]) -> Result<bool> {
        if self.extent == Extent::Whole {
            return Ok(false);
        }
        let moved = match self.safety.get(path) {
            None => self.root.stat(path).map_err(|errno| self.failed("stat", path, errno))?.is_some(),
            Some(entry) => {
                let known = |path: &[u8], stat: &Stat| known(&self.safety, path, stat);
                let (state, _) = Disk { root: &self.root, known: &known }.state(entry)?;
                state != State::Same && !(state == State::Missing && self.vacated.contains(path))
            }
        };
        if moved {
            self.note(path, Verdict::KeptAfter);
        }
        Ok(moved)
    }

    /// After the selection a path that this user may not change is left and told of: stopping there would never end.
    pub(super) fn leave_refused(&mut self, path: &[u8], error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Permission {
            return Err(error);
        }
        self.warnings.push(format!("{} was left as it is: {error}", crate::files::scan::lossy(path).display()));
        self.note(path, Verdict::NotCaptured);
        Ok(())
    }

    pub(super) fn failed(&self, action: &str, path: &[u8], errno: Errno) -> Error {
        let error = Error::io(action, &self.root.full(path), errno);
        if errno == Errno::LOOP || errno == Errno::NOTDIR { in_the_way(path).because(error) } else { error }
    }

    /// Makes the folders above a path passable and writable for an ordinary user, and makes those that are missing.
    /// In a rewind a folder that somebody made something else of is left so, and the answer is no.
    pub(super) fn prepare_above(&mut self, path: &[u8]) -> Result<bool> {
        for folder in self.unprepared(path) {
            match self.root.stat(folder).map_err(|errno| self.failed("stat", folder, errno))? {
                None => {
                    let parent = self.root.parent(folder).map_err(|errno| self.failed("open the folder of", folder, errno))?;
                    rustix::fs::mkdirat(&parent, sys::tree::split(folder).1, rustix::fs::Mode::from_raw_mode(0o755))
                        .map_err(|errno| self.failed("create folder", folder, errno))?;
                    self.touched.insert(sys::tree::split(folder).0.to_vec());
                    self.note(folder, Verdict::Create);
                }
                Some(stat) if stat.kind == Kind::Folder => self.open_up(folder, &stat)?,
                Some(_) if self.extent == Extent::Differences => {
                    self.note(path, Verdict::KeptAfter);
                    return Ok(false);
                }
                Some(_) => return Err(in_the_way(folder)),
            }
            self.prepared.insert(folder.to_vec());
        }
        Ok(true)
    }

    /// As [`Work::prepare_above`] for a path that shall go: tells whether there are folders above it at all.
    pub(super) fn open_above(&mut self, path: &[u8]) -> Result<bool> {
        for folder in self.unprepared(path) {
            match self.root.stat(folder).map_err(|errno| self.failed("stat", folder, errno))? {
                Some(stat) if stat.kind == Kind::Folder => self.open_up(folder, &stat)?,
                _ => return Ok(false),
            }
            self.prepared.insert(folder.to_vec());
        }
        Ok(true)
    }

    /// The folders above a path below the last one that was looked at: each look walks from the root.
    fn unprepared<'p>(&self, path: &'p [u8]) -> Vec<&'p [u8]> {
        let above: Vec<&[u8]> = prefixes(path).collect();
        let known = above.iter().rposition(|folder| self.prepared.contains(*folder)).map_or(0, |at| at + 1);
        above.into_iter().skip(known).collect()
    }

    /// A folder that is gone, or was made anew, is not prepared any more.
    pub(super) fn forget_prepared(&mut self, folder: &[u8]) {
        self.prepared.remove(folder);
        self.opened.remove(folder);
    }

    pub(super) fn open_up(&mut self, folder: &[u8], stat: &Stat) -> Result<()> {
        let own = rustix::process::geteuid();
        // What is somebody else's cannot be opened, and may be passable as it is.
        if own.is_root() || own.as_raw() != stat.uid || stat.mode & 0o700 == 0o700 {
            return Ok(());
        }
        sys::tree::chmod(&self.root, folder, stat.mode | 0o700).map_err(|errno| self.failed("make writable", folder, errno))?;
        self.opened.insert(folder.to_vec(), stat.mode);
        Ok(())
    }
}

/// What the safety capture says of a file, if the file still has the stat it had then.
pub(super) fn known<'s>(safety: &'s HashMap<Vec<u8>, Entry>, path: &[u8], stat: &Stat) -> Option<Known<'s>> {
    let entry = safety.get(path)?;
    let EntryKind::File { size, chunks, .. } = &entry.kind else { return None };
    let same = !entry.unstable
        && (*size, entry.mtime_ns, entry.mode, entry.uid, entry.gid) == (stat.size, stat.mtime_ns, stat.mode, stat.uid, stat.gid);
    same.then_some(Known { chunks, xattrs: &entry.xattrs })
}

fn deletions(target: &[Entry], safety: &[Entry], guard: &Guard<'_>) -> Vec<Vec<u8>> {
    let wanted: HashSet<&[u8]> = target.iter().map(|entry| entry.path.as_slice()).collect();
    let gone = safety.iter().filter(|entry| !wanted.contains(entry.path.as_slice()) && entry.kind != EntryKind::Socket);
    let gone = gone.filter(|entry| guard.may_delete(&entry.path, entry.kind == EntryKind::Folder));
    gone.map(|entry| entry.path.clone()).collect()
}

/// What may differ; all, where names of one file do: their other names may be anywhere.
fn entries_apart(reader: &Reader, target: &ChunkId, safety: &ChunkId) -> Result<(Vec<Entry>, Vec<Entry>)> {
    let (one, other) = reader.apart(target, safety)?;
    if one.iter().any(|entry| link_of(entry) != 0) {
        return Ok((entries_of(reader, target)?, entries_of(reader, safety)?));
    }
    check_names(&one)?;
    check_names(&other)?;
    Ok((one, other))
}

/// Leaves in both manifests only what differs, and gives the paths that go.
fn differences(target: &mut Vec<Entry>, safety: &mut Vec<Entry>) -> Vec<Vec<u8>> {
    let before: HashMap<&[u8], &Entry> = safety.iter().map(|entry| (entry.path.as_slice(), entry)).collect();
    let wanted: HashSet<&[u8]> = target.iter().map(|entry| entry.path.as_slice()).collect();
    let gone = safety.iter().filter(|entry| !wanted.contains(entry.path.as_slice()) && entry.kind != EntryKind::Socket);
    let gone: Vec<Vec<u8>> = gone.map(|entry| entry.path.clone()).collect();
    // A file that is only no longer one with others needs nothing done.
    let joined = |old: &Entry, new: &Entry| link_of(new) != 0 && link_of(new) != link_of(old);
    let differs = |entry: &Entry| before.get(entry.path.as_slice()).is_none_or(|old| compare(old, entry).is_some() || joined(old, entry));
    // The other names of a file are needed where one is to become the same file again.
    let groups: HashSet<u64> = target.iter().filter(|entry| differs(entry)).map(link_of).filter(|group| *group != 0).collect();
    let keep: Vec<bool> = target.iter().map(|entry| groups.contains(&link_of(entry)) || differs(entry)).collect();
    let mut keep = keep.into_iter();
    target.retain(|_| keep.next().unwrap_or(false));
    let changed: HashSet<&[u8]> = target.iter().map(|entry| entry.path.as_slice()).chain(gone.iter().map(Vec::as_slice)).collect();
    safety.retain(|entry| changed.contains(entry.path.as_slice()));
    gone
}

fn in_the_way(path: &[u8]) -> Error {
    let path = crate::files::scan::lossy(path);
    Error::new(ErrorKind::Edited, format!("{} is no longer a folder, and the checkpoint has files below it", path.display()))
        .with("path", path.display())
        .hint("move it away and run it again")
}
