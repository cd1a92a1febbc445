//! Capturing the files of a scope into a store session.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

use rustix::io::Errno;

use super::cache::now_ns;
use super::content::{Content, HashOnly, Outcome, Sink, read};
use super::scan::{Found, lossy, scan};
use super::{Coverage, DiskState, Scope, StatCache};
use crate::error::{Error, Result};
use crate::progress::{Control, Unit};
use crate::report::Reads;
use crate::store::{Entry, EntryKind, Half, Session};
use crate::sys::parallel;
use crate::sys::tree::{Kind, Root, Stat, split};

/// A captured tree.
#[derive(Debug, Clone)]
pub struct Captured {
    /// For the ref; its facts hold scope and coverage.
    pub half: Half,
    /// What was left out.
    pub coverage: Coverage,
    /// Regular files opened and read, because the cache did not know them.
    pub files_opened: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// The same, with why they were read.
    pub reads: Reads,
    /// Paths that changed while they were read, three times over.
    pub unstable: Vec<PathBuf>,
    /// Hash over path and stat of every entry, for [`moved_since`].
    pub fingerprint: [u8; 32],
}

/// Captures every entry of `scope`. Reads only files that `cache` does not know, and updates it.
///
/// # Errors
/// `NotFound` for a selected path that does not exist, `Cancelled`, `Io`, and what the session gives.
pub fn capture(scope: &Scope, session: &Session, cache: &mut StatCache, control: &Control) -> Result<Captured> {
    let mut manifest = session.manifest();
    let (mut entries, mut bytes, mut unstable) = (0, 0, Vec::new());
    let tree = read_tree(scope, session, cache, control, &mut |entry| {
        entries += 1;
        if let EntryKind::File { size, .. } = entry.kind {
            bytes += size;
        }
        if entry.unstable {
            unstable.push(lossy(&entry.path));
        }
        manifest.push(&entry)
    })?;
    let root = manifest.finish()?;
    let recorded = Scope { left_out: tree.coverage.left_out.clone(), ..scope.clone() };
    let facts = serde_json::json!({ "scope": recorded, "coverage": tree.coverage });
    Ok(Captured {
        half: Half { root, entries, bytes, facts },
        coverage: tree.coverage,
        files_opened: tree.reads.files_opened,
        bytes_read: tree.reads.bytes_read,
        reads: tree.reads,
        unstable,
        fingerprint: tree.fingerprint,
    })
}

/// Whether any entry of the scope was made, changed or removed since `captured`: by stat alone.
///
/// # Errors
/// As [`capture`].
pub fn moved_since(scope: &Scope, captured: &Captured, control: &Control) -> Result<bool> {
    let scan = scan(scope, control)?;
    let mut fingerprint = Fingerprint::default();
    for found in &scan.found {
        fingerprint.add(&found.path, &found.stat);
    }
    Ok(fingerprint.finish() != captured.fingerprint)
}

/// The entries of a scope as they are on disk now, with chunk ids and without storing anything. Files that `cache` knows are not read.
///
/// # Errors
/// As [`capture`].
pub fn disk_entries(scope: &Scope, cache: &mut StatCache, control: &Control) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    read_tree(scope, &HashOnly, cache, control, &mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    Ok(entries)
}

/// As [`disk_entries`], with what was left out.
///
/// # Errors
/// As [`capture`].
pub fn disk_state(scope: &Scope, cache: &mut StatCache, control: &Control) -> Result<DiskState> {
    let mut entries = Vec::new();
    let tree = read_tree(scope, &HashOnly, cache, control, &mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    Ok(DiskState { entries, scope: Scope { left_out: tree.coverage.left_out, ..scope.clone() } })
}

/// Names that are read between two looks at what was found, so that content and attributes are held for so many only.
const BATCH: usize = 4096;

struct Tree {
    coverage: Coverage,
    reads: Reads,
    fingerprint: [u8; 32],
}

/// One entry that was read, its last stat, and what the cache may learn from it.
struct Taken {
    entry: Entry,
    stat: Stat,
    learned: Option<Content>,
    from_cache: bool,
    noted: Option<String>,
}

enum Item {
    Taken(Box<Taken>),
    Gone,
    Denied(Vec<u8>, Stat, Errno),
}

/// Reads what the scope names and gives it to `keep`, in path order.
fn read_tree(
    scope: &Scope,
    sink: &dyn Sink,
    cache: &mut StatCache,
    control: &Control,
    keep: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<Tree> {
    cache.begin();
    let looked = now_ns();
    let mut scan = scan(scope, control)?;
    let before = now_ns();
    let found = std::mem::take(&mut scan.found);
    let mut links = Links::of(&found);
    let mut fingerprint = Fingerprint::default();
    let (mut reads, mut files) = (Reads::default(), 0);
    for (number, batch) in found.chunks(BATCH).enumerate() {
        control.report("read files", (number * BATCH) as u64, found.len() as u64, Unit::Items);
        let known = &*cache;
        let items = parallel::map(batch, |found| {
            control.check()?;
            take(&scan.root, found, sink, known)
        })?;
        for item in items {
            let mut item = match item {
                Item::Taken(item) => item,
                Item::Gone => continue,
                // It is seen again by a later look, so it counts.
                Item::Denied(path, stat, errno) => {
                    fingerprint.add(&path, &stat);
                    scan.left_out.push((path, format!("unreadable: {}", std::io::Error::from(errno))));
                    continue;
                }
            };
            fingerprint.add(&item.entry.path, &item.stat);
            files += usize::from(item.stat.kind == Kind::File);
            if item.from_cache {
                cache.met(&item.entry.path, looked);
            }
            if let Some(content) = &item.learned {
                reads.count(cache.why(&item.entry.path, &item.stat), content.bytes_read);
                cache.learn(&item.entry.path, content, before);
            }
            if let Some(note) = item.noted.take() {
                scan.left_out.push((item.entry.path.clone(), note));
            }
            links.number(&mut item);
            keep(item.entry)?;
        }
    }
    control.report("read files", found.len() as u64, found.len() as u64, Unit::Items);
    cache.end(files);
    scan.left_out.sort_unstable();
    let coverage = scan.coverage();
    Ok(Tree { coverage, reads, fingerprint: fingerprint.finish() })
}

/// Takes one name; what it is may have changed since it was listed, so it is looked at again where the read says so.
fn take(root: &Root, found: &Found, sink: &dyn Sink, cache: &StatCache) -> Result<Item> {
    let mut found = Cow::Borrowed(found);
    for _ in 0..3 {
        let done = match found.stat.kind {
            Kind::File => take_file(root, &found, sink, cache)?,
            Kind::Symlink => take_symlink(root, &found)?,
            Kind::Folder => Some(plain(&found, EntryKind::Folder)),
            Kind::Fifo => Some(plain(&found, EntryKind::Fifo)),
            Kind::Socket => Some(plain(&found, EntryKind::Socket)),
            Kind::Device => Some(Item::Gone),
        };
        if let Some(item) = done {
            return Ok(item);
        }
        match root.stat(&found.path).map_err(|errno| Error::io("stat", &root.full(&found.path), errno))? {
            Some(stat) => found.to_mut().stat = stat,
            None => return Ok(Item::Gone),
        }
    }
    Ok(Item::Gone)
}

fn take_file(root: &Root, found: &Found, sink: &dyn Sink, cache: &StatCache) -> Result<Option<Item>> {
    if let Some(content) = cache.find(&found.path, &found.stat) {
        let mut whole = true;
        for chunk in &content.chunks {
            whole = whole && sink.has(&chunk.id)?;
        }
        if whole {
            return Ok(Some(file_item(found, content, None, true)));
        }
    }
    Ok(match read(root, &found.path, sink)? {
        Outcome::Read(content) => Some(file_item(found, &content, Some(&content), false)),
        Outcome::Changed => None,
        Outcome::Denied(errno) => Some(Item::Denied(found.path.clone(), found.stat, errno)),
    })
}

fn file_item(found: &Found, content: &Content, learned: Option<&Content>, from_cache: bool) -> Item {
    let kind = EntryKind::File { size: content.stat.size, chunks: content.chunks.clone(), holes: content.holes.clone(), link: 0 };
    let mut entry = entry(&found.path, &content.stat, kind);
    entry.xattrs = content.xattrs.clone();
    entry.unstable = content.unstable;
    let noted = content.unreadable.first().map(|name| format!("unreadable: attribute {}", String::from_utf8_lossy(name)));
    // The link count is no part of what the cache compares, so the fresh one counts.
    let stat = Stat { nlink: if from_cache { found.stat.nlink } else { content.stat.nlink }, ..content.stat };
    Item::Taken(Box::new(Taken { entry, stat, learned: learned.cloned(), from_cache, noted }))
}

fn take_symlink(root: &Root, found: &Found) -> Result<Option<Item>> {
    let text = root.parent(&found.path).and_then(|folder| rustix::fs::readlinkat(folder, split(&found.path).1, Vec::new()));
    match text {
        Ok(text) => Ok(Some(plain(found, EntryKind::Symlink(text.into_bytes())))),
        Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(Error::io("read link", &root.full(&found.path), errno)),
    }
}

fn plain(found: &Found, kind: EntryKind) -> Item {
    let mut entry = entry(&found.path, &found.stat, kind);
    entry.xattrs = found.xattrs.clone();
    Item::Taken(Box::new(Taken { entry, stat: found.stat, learned: None, from_cache: false, noted: None }))
}

fn entry(path: &[u8], stat: &Stat, kind: EntryKind) -> Entry {
    let (mode, uid, gid, mtime_ns) = (stat.mode, stat.uid, stat.gid, stat.mtime_ns);
    Entry { path: path.to_vec(), kind, mode, uid, gid, mtime_ns, xattrs: Vec::new(), unstable: false }
}

/// Hard link groups, numbered from 1 in path order; a file whose other names are outside the scope is none.
struct Links {
    /// By inode: names that were listed.
    names: HashMap<(u64, u64), u32>,
    /// By inode: its number.
    groups: HashMap<(u64, u64), u64>,
}

impl Links {
    fn of(found: &[Found]) -> Self {
        let mut names = HashMap::new();
        for inode in found.iter().filter_map(|found| Self::inode(&found.stat)) {
            *names.entry(inode).or_default() += 1;
        }
        names.retain(|_, count| *count > 1);
        Self { names, groups: HashMap::new() }
    }

    fn inode(stat: &Stat) -> Option<(u64, u64)> {
        (stat.kind == Kind::File && stat.nlink > 1).then_some((stat.dev, stat.ino))
    }

    fn number(&mut self, item: &mut Taken) {
        if let Some(inode) = Self::inode(&item.stat).filter(|inode| self.names.contains_key(inode))
            && let EntryKind::File { link, .. } = &mut item.entry.kind
        {
            let next = self.groups.len() as u64 + 1;
            *link = *self.groups.entry(inode).or_insert(next);
        }
    }
}

/// Hash over path and stat. The times of a folder do not count: they move with every name in it, captured or not.
#[derive(Default)]
struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    fn add(&mut self, path: &[u8], stat: &Stat) {
        self.0.update(&(path.len() as u64).to_le_bytes());
        self.0.update(path);
        let of_content = if stat.kind == Kind::Folder { [0; 3] } else { [stat.size.cast_signed(), stat.mtime_ns, stat.ctime_ns] };
        self.0.update(&[stat.kind as u8]);
        self.0.update(&stat.mode.to_le_bytes());
        for number in [stat.dev, stat.ino, stat.uid.into(), stat.gid.into()] {
            self.0.update(&number.to_le_bytes());
        }
        for number in of_content {
            self.0.update(&number.to_le_bytes());
        }
    }

    fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}
