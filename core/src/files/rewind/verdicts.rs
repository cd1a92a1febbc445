//! The verdict of each path: by itself, then by what becomes of the folders above and of what is below.

use std::collections::BTreeMap;

use super::RewindRequest;
use super::history::{At, History, View};
use crate::error::Result;
use crate::files::diff::{ChangeKind, compare};
use crate::files::ignores::prefixes;
use crate::files::plan::Verdict;
use crate::files::scope::is_below;
use crate::store::{Entry, EntryKind};
use crate::sys::lease::{Asked, ask};
use crate::sys::tree::Root;

type Verdicts = BTreeMap<Vec<u8>, Verdict>;

/// Every changed path by itself.
pub(super) fn of_paths(request: &RewindRequest<'_>, history: &History<'_>, disk: &View<'_>) -> Result<Verdicts> {
    let mut verdicts = Verdicts::new();
    for path in &history.changed {
        let verdict = match of_path(history, disk, path) {
            // Whatever the checkpoints say.
            verdict if verdict.touches() && request.claimed.iter().any(|above| is_below(path, above)) => Verdict::KeptBetween,
            verdict => verdict,
        };
        verdicts.insert(path.clone(), verdict);
    }
    if verdicts.values().any(|verdict| verdict.touches()) {
        let root = Root::open(&request.disk.scope.root)?;
        for (path, verdict) in &mut verdicts {
            if verdict.touches() && replaces_content(history, disk, path) && is_open_for_writing(&root, path) {
                *verdict = Verdict::KeptOpen;
            }
        }
    }
    Ok(verdicts)
}

fn of_path(history: &History<'_>, disk: &View<'_>, path: &[u8]) -> Verdict {
    let is_folder = history.was_folder(path);
    let (target, there) = (history.target.at(path, is_folder), disk.at(path, is_folder));
    if there.same(target) {
        return Verdict::Unchanged;
    }
    // Sockets are recorded and never put back.
    let socket = |at: At<'_>| matches!(at, At::Has(entry) if entry.kind == EntryKind::Socket);
    if socket(target) || socket(there) {
        return Verdict::NotCaptured;
    }
    // What was there when one step ended and the next began, and the same for those steps alone that changed the path: somebody
    // who took their edit back before the next of these left nothing behind.
    let (mut last, mut base) = (target, target);
    let (mut joined, mut whole) = (true, true);
    for step in &history.steps {
        let (before, after) = (step.before.at(path, is_folder), step.after.at(path, is_folder));
        if let Some(verdict) = [last, before, after, there].into_iter().find_map(unknown) {
            return verdict;
        }
        joined &= last.same(before);
        last = after;
        if !before.same(after) {
            whole &= base.same(before) && !step.shared;
            base = after;
        }
    }
    match (whole, base.same(there), target, there) {
        (true, true, At::Has(_), At::Absent) => Verdict::Create,
        (true, true, At::Has(_), _) => Verdict::Restore,
        (true, true, ..) => Verdict::Delete,
        (true, false, ..) if joined => Verdict::KeptAfter,
        _ => Verdict::KeptBetween,
    }
}

fn unknown(at: At<'_>) -> Option<Verdict> {
    match at {
        At::NotCaptured => Some(Verdict::NotCaptured),
        At::Outside => Some(Verdict::Outside),
        At::Has(_) | At::Absent => None,
    }
}

/// Whether the bytes of a file that is there go away.
fn replaces_content(history: &History<'_>, disk: &View<'_>, path: &[u8]) -> bool {
    let Some(there) = disk.entry(path).filter(|entry| matches!(entry.kind, EntryKind::File { .. })) else { return false };
    history.target.entry(path).is_none_or(|target| matches!(compare(there, target), Some(ChangeKind::Modified | ChangeKind::Type)))
}

fn is_open_for_writing(root: &Root, path: &[u8]) -> bool {
    root.file(path).is_ok_and(|file| matches!(ask(&file), Asked::OpenForWriting))
}

/// Makes the verdicts fit together: a folder with something in it that stays does not go, and nothing is made below what is no folder.
pub(super) fn settle(verdicts: &mut Verdicts, request: &RewindRequest<'_>, history: &History<'_>, disk: &View<'_>) {
    loop {
        let before = verdicts.clone();
        keep_full_folders(verdicts, request, history, disk);
        need_folders_above(verdicts, history, disk);
        // Each round keeps more than the one before, so this ends.
        if *verdicts == before {
            return;
        }
    }
}

/// Backwards, so that a folder learns first what becomes of the folders in it.
fn keep_full_folders(verdicts: &mut Verdicts, request: &RewindRequest<'_>, history: &History<'_>, disk: &View<'_>) {
    let goes = |verdicts: &Verdicts, path: &[u8]| {
        let becomes_folder = history.target.entry(path).is_some_and(|entry| entry.kind == EntryKind::Folder);
        verdicts.get(path).is_some_and(|verdict| matches!(verdict, Verdict::Delete | Verdict::Restore) && !becomes_folder)
    };
    let folders: Vec<Vec<u8>> = verdicts.keys().rev().filter(|path| disk.at(path, true).is_folder()).cloned().collect();
    for folder in folders {
        if !goes(verdicts, &folder) {
            continue;
        }
        let mut stays = None;
        for entry in below(&request.disk.entries, &folder) {
            match verdicts.get(&entry.path) {
                Some(Verdict::Delete) => {}
                Some(Verdict::NotCaptured | Verdict::Outside) => stays = stays.or(Some(Verdict::NotCaptured)),
                _ => stays = Some(Verdict::KeptAfter),
            }
        }
        if stays.is_none() && request.disk.scope.left_out.iter().any(|left| is_in(&left.path, &folder)) {
            stays = Some(Verdict::NotCaptured);
        }
        if let Some(stays) = stays {
            verdicts.insert(folder, stays);
        }
    }
}

/// What is to be made needs folders above it; those that are missing are made too, as they were.
fn need_folders_above(verdicts: &mut Verdicts, history: &History<'_>, disk: &View<'_>) {
    let wanted: Vec<Vec<u8>> = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Create | Verdict::Restore))
        .map(|(path, _)| path.clone())
        .collect();
    for path in wanted {
        for folder in prefixes(&path) {
            let there = disk.at(folder, true);
            match verdicts.get(folder) {
                Some(Verdict::Create | Verdict::Restore) if history.target.at(folder, true).is_folder() => {}
                _ if there.is_folder() => {}
                None if matches!(there, At::Absent) && history.target.at(folder, true).is_folder() => {
                    verdicts.insert(folder.to_vec(), Verdict::Create);
                }
                _ => {
                    verdicts.insert(path.clone(), Verdict::KeptAfter);
                    break;
                }
            }
        }
    }
}

/// The entries below a folder.
fn below<'e>(entries: &'e [Entry], folder: &[u8]) -> impl Iterator<Item = &'e Entry> {
    let start = [folder, b"/"].concat();
    let first = entries.partition_point(|entry| entry.path < start);
    entries.get(first..).unwrap_or_default().iter().take_while(move |entry| entry.path.starts_with(&start))
}

fn is_in(path: &std::path::Path, folder: &[u8]) -> bool {
    let folder = crate::files::scan::lossy(folder);
    path.starts_with(&folder) && path != folder
}
