//! What a restore would do, path by path, before anything is touched.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::compare::{Disk, Guard, Known, Links, State};
use super::ignores::Rules;
use super::scan::{Scan, by_nature, scan};
use super::{Scope, StatCache};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::{ChunkId, Entry, EntryKind, Reader};
use crate::sys::parallel;
use crate::sys::tree::{Kind, Stat};

/// What happens to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Exists and becomes what the checkpoint has.
    Restore,
    /// Is made.
    Create,
    /// Is removed: the checkpoint's scope covers it and the checkpoint does not have it.
    Delete,
    /// Is already as in the checkpoint.
    Unchanged,
    /// Was not captured (left out by the checkpoint's scope), or is named by an ignore rule of then or now: stays.
    #[serde(rename = "not captured")]
    NotCaptured,
    /// Only today's scope has it, not the checkpoint's: stays.
    Outside,
    /// Somebody changed it while the restore ran, or has it open for writing: the content that was displaced is kept beside the result.
    Kept,
    /// Is not what the rewound step left: stays.
    #[serde(rename = "kept: edited after this step")]
    KeptAfter,
    /// Somebody else changed it between two of the rewound steps, or while two sessions were at work: stays.
    #[serde(rename = "kept: edited between steps")]
    KeptBetween,
    /// Somebody has it open or mapped for writing: stays.
    #[serde(rename = "kept: open for writing")]
    KeptOpen,
}

impl Verdict {
    /// The fixed words for it, as in JSON.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Unchanged => "unchanged",
            Self::NotCaptured => "not captured",
            Self::Outside => "outside",
            Self::Kept => "kept",
            Self::KeptAfter => "kept: edited after this step",
            Self::KeptBetween => "kept: edited between steps",
            Self::KeptOpen => "kept: open for writing",
        }
    }

    /// Whether somebody's edit is the reason that it is not as it was to be.
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::KeptAfter | Self::KeptBetween | Self::KeptOpen)
    }

    /// Whether the path is made, replaced or removed.
    #[must_use]
    pub fn touches(self) -> bool {
        matches!(self, Self::Restore | Self::Create | Self::Delete)
    }
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanItem {
    /// Raw bytes relative to the root.
    pub path: Vec<u8>,
    /// What happens.
    pub verdict: Verdict,
}

/// A plan: only paths that are not `unchanged` are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Hash of all it saw.
    pub id: String,
    /// In path order.
    pub items: Vec<PlanItem>,
    /// How many paths stay as they are.
    pub unchanged: u64,
}

/// Compares the manifest `target`, made under `target_scope` (with today's root), with the disk as today's `scope` and
/// `target_scope` see it. Nothing is written; files that `cache` knows are not read.
///
/// # Errors
/// `Corrupt` where the manifest cannot be read or names what no capture has, `Cancelled`, `Io`.
pub fn plan(
    reader: &Reader,
    target: &ChunkId,
    target_scope: &Scope,
    scope: &Scope,
    cache: &mut StatCache,
    control: &Control,
) -> Result<Plan> {
    let entries = entries_of(reader, target)?;
    // The checkpoint's source list may name what is gone today: that is what the restore brings back.
    let disk = scan(&target_scope.existing(), control)?;
    let today = if same_selection(target_scope, scope) { None } else { Some(scan(&scope.existing(), control)?) };
    let rules_then = Rules::of_manifest(reader, entries.iter())?;
    let guard = Guard::new(target_scope, rules_then, &disk.rules)?;

    let cache = &*cache;
    let known = |path: &[u8], stat: &Stat| cache.find(path, stat).map(|content| Known { chunks: &content.chunks, xattrs: &content.xattrs });
    let states = compare_all(&Disk { root: &disk.root, known: &known }, &entries, control)?;

    let mut hash = blake3::Hasher::new();
    hash.update(&target.0);
    let mut verdicts = BTreeMap::new();
    let mut unchanged = 0;
    for (path, verdict, stat) in targets(&entries, &states) {
        note(&mut hash, path, verdict, stat);
        match verdict {
            Verdict::Unchanged => unchanged += 1,
            verdict => drop(verdicts.insert(path.to_vec(), verdict)),
        }
    }
    let captured: BTreeSet<&[u8]> = entries.iter().map(|entry| entry.path.as_slice()).collect();
    others(&disk, today.as_ref(), &guard, &captured, &mut hash, &mut verdicts);
    let items = verdicts.into_iter().map(|(path, verdict)| PlanItem { path, verdict }).collect();
    Ok(Plan { id: hash.finalize().to_hex().to_string(), items, unchanged })
}

/// The entries of a manifest, checked once more against what must never be touched.
pub(super) fn entries_of(reader: &Reader, root: &ChunkId) -> Result<Vec<Entry>> {
    let entries: Vec<Entry> = reader.manifest(root)?.collect::<Result<_>>()?;
    check_names(&entries)?;
    Ok(entries)
}

/// Checks entries against what must never be touched.
pub(super) fn check_names(entries: &[Entry]) -> Result<()> {
    for entry in entries {
        let bad = |name: &[u8]| matches!(name, b"" | b"." | b".." | b".git") || name.contains(&0);
        if entry.path.split(|byte| *byte == b'/').any(bad) {
            let path = String::from_utf8_lossy(&entry.path);
            return Err(Error::new(ErrorKind::Corrupt, format!("a checkpoint names {path:?}, which no capture has")).with("path", path));
        }
    }
    Ok(())
}

type Compared = (State, Option<Stat>);

/// Entries that a thread compares at once; those of one folder follow one another, mostly.
const GROUP: usize = 64;

/// Compares every entry with the disk, in parallel.
pub(super) fn compare_all(disk: &Disk<'_>, entries: &[Entry], control: &Control) -> Result<Vec<Compared>> {
    let groups: Vec<&[Entry]> = entries.chunks(GROUP).collect();
    let states = parallel::map_one_by_one(&groups, |group| disk.states(group, |_| control.check()))?;
    Ok(states.into_iter().flatten().collect())
}

/// Verdicts of the checkpoint's own paths.
fn targets<'e>(entries: &'e [Entry], states: &'e [Compared]) -> impl Iterator<Item = (&'e [u8], Verdict, Option<&'e Stat>)> {
    let wanted = Links::of_manifest(entries.iter());
    let found = Links::new(entries.iter().zip(states).map(|(entry, (_, stat))| {
        let inode = stat.as_ref().filter(|stat| stat.kind == Kind::File && stat.nlink > 1).map(|stat| (stat.dev, stat.ino));
        (entry.path.as_slice(), inode)
    }));
    entries.iter().zip(states).map(move |(entry, (state, stat))| {
        let path = entry.path.as_slice();
        let verdict = match state {
            _ if entry.kind == EntryKind::Socket => Verdict::Unchanged,
            State::Missing => Verdict::Create,
            State::Same if wanted.leader(path) == found.leader(path) => Verdict::Unchanged,
            _ => Verdict::Restore,
        };
        (path, verdict, stat.as_ref())
    })
}

/// Verdicts of what is on disk and not in the checkpoint.
fn others(
    disk: &Scan,
    today: Option<&Scan>,
    guard: &Guard<'_>,
    captured: &BTreeSet<&[u8]>,
    hash: &mut blake3::Hasher,
    verdicts: &mut BTreeMap<Vec<u8>, Verdict>,
) {
    let mut seen: HashMap<&[u8], Verdict> = HashMap::new();
    let lists = [Some(disk), today];
    for (path, reason) in lists.iter().flatten().flat_map(|scan| &scan.left_out) {
        if !by_nature(reason) && !captured.contains(path.as_slice()) {
            let verdict = if guard.covers(path) { Verdict::NotCaptured } else { Verdict::Outside };
            seen.insert(path, verdict);
        }
    }
    // Children come after their folders, so backwards a folder learns first whether anything in it stays.
    let mut staying: BTreeSet<&[u8]> = lists.iter().flatten().flat_map(|scan| &scan.left_out).map(|(path, _)| path.as_slice()).collect();
    for found in lists.iter().flatten().flat_map(|scan| scan.found.iter().rev()) {
        let path = found.path.as_slice();
        if captured.contains(path) || seen.contains_key(path) {
            continue;
        }
        let is_folder = found.stat.kind == Kind::Folder;
        let verdict = match found.stat.kind {
            _ if !guard.covers(path) => Verdict::Outside,
            Kind::Socket | Kind::Device => Verdict::NotCaptured,
            _ if !guard.may_delete(path, is_folder) || (is_folder && holds_any(&staying, path)) => Verdict::NotCaptured,
            _ => Verdict::Delete,
        };
        if verdict != Verdict::Delete {
            staying.insert(path);
        }
        note(hash, path, verdict, Some(&found.stat));
        seen.insert(path, verdict);
    }
    verdicts.extend(seen.into_iter().map(|(path, verdict)| (path.to_vec(), verdict)));
}

/// Whether any of the paths lies below the folder.
fn holds_any(paths: &BTreeSet<&[u8]>, folder: &[u8]) -> bool {
    let below = [folder, b"/"].concat();
    paths.range(below.as_slice()..).next().is_some_and(|path| path.starts_with(&below))
}

fn note(hash: &mut blake3::Hasher, path: &[u8], verdict: Verdict, stat: Option<&Stat>) {
    hash.update(&(path.len() as u64).to_le_bytes());
    hash.update(path);
    hash.update(&[verdict as u8]);
    if let Some(stat) = stat {
        let times = if stat.kind == Kind::Folder { [0; 3] } else { [stat.size.cast_signed(), stat.mtime_ns, stat.ctime_ns] };
        hash.update(&stat.ino.to_le_bytes());
        hash.update(&stat.mode.to_le_bytes());
        for number in times {
            hash.update(&number.to_le_bytes());
        }
    }
}

fn same_selection(one: &Scope, other: &Scope) -> bool {
    one.sources() == other.sources() && one.exclude == other.exclude && one.never == other.never
}
