//! Clusters of checkpoints that are ready to clone: kept only where reflink makes them cheap, least recently used ones go first.
//!
//! A cache is never needed: whatever goes wrong with one, the store is read instead.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::layout::{self, MAKING};
use super::shared::Shared;
use crate::clone::{self, Method, TreeOptions};
use crate::error::Result;
use crate::progress::Control;
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::{Lock, Mode};

/// How many are kept.
const LIMIT: usize = 8;
/// Its time of change tells when the cache was last used.
const USED: &str = "used";

/// Clones the ready cluster of a checkpoint into the new folder `data` and says how; `None` where there is none or it cannot be cloned cheaply.
pub(super) fn take(shared: &Shared, checkpoint: &str, data: &Path, control: &Control) -> Result<Option<Method>> {
    let cache = shared.store.caches().join(checkpoint);
    if !cache.join("data").is_dir() {
        return Ok(None);
    }
    let Ok(Some(_lock)) = lock(shared, Mode::Shared) else { return Ok(None) };
    let cloned = clone_tree(&cache.join("data"), data, control);
    match cloned {
        Ok(Some(method)) => {
            touch(&cache);
            Ok(Some(method))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            control.check()?;
            clone::remove_tree(data)?;
            // Removed while it was cloned, or damaged: the store has it.
            drop(error);
            Ok(None)
        }
    }
}

/// Keeps a clone of a cluster that was started once and stopped cleanly. A failure costs the cache only.
pub(super) fn keep(shared: &Shared, checkpoint: &str, data: &Path) {
    let kept = try_to_keep(shared, checkpoint, data);
    drop(kept);
}

fn try_to_keep(shared: &Shared, checkpoint: &str, data: &Path) -> Result<()> {
    let root = shared.store.caches();
    let place = root.join(checkpoint);
    if place.exists() {
        return Ok(());
    }
    shared.run_as()?.make_folder(&root)?;
    // Somebody clones one: the cache is not worth the wait.
    let Some(_lock) = lock(shared, Mode::Exclusive)? else { return Ok(()) };
    if !clone::choose(data, &root)?.shares_blocks() {
        return Ok(());
    }
    // Alone: what is half made has no maker.
    for name in sys::fs::names(&root)? {
        if name.to_str().is_some_and(|name| name.starts_with(MAKING)) {
            layout::remove_tree(&root.join(name))?;
        }
    }
    let making = root.join(format!("{MAKING}{}", sys::id::sortable()?));
    sys::fs::make_folder(&making, 0o700)?;
    let made = clone_tree(data, &making.join("data"), &Control::silent()).and_then(|cloned| {
        if cloned.is_none() {
            return Ok(false);
        }
        touch(&making);
        Syncs::new().file_system(&making)?;
        sys::fs::rename_new(&making, &place)?;
        Ok(true)
    });
    if !matches!(made, Ok(true)) {
        layout::remove_tree(&making)?;
    }
    made?;
    evict(&root)
}

/// Clones by snapshot or reflink; `None` where the file system has neither.
fn clone_tree(from: &Path, to: &Path, control: &Control) -> Result<Option<Method>> {
    let backend = clone::choose_for_tree(from, to.parent().unwrap_or(to))?;
    if !backend.shares_blocks() {
        return Ok(None);
    }
    let options = TreeOptions { cloned_again: true, ..TreeOptions::default() };
    clone::copy_tree(backend.as_ref(), from, to, &options, control).map(|report| Some(report.method))
}

fn evict(root: &Path) -> Result<()> {
    let mut caches: Vec<(SystemTime, PathBuf)> = Vec::new();
    for name in sys::fs::names(root)? {
        let path = root.join(&name);
        if path.is_dir() && !name.to_str().is_some_and(|name| name.starts_with('.')) {
            let used = std::fs::metadata(path.join(USED)).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            caches.push((used, path));
        }
    }
    caches.sort();
    let surplus = caches.len().saturating_sub(LIMIT);
    for (_, path) in caches.into_iter().take(surplus) {
        // Renamed first: a half removed cache is never taken for a whole one.
        let doomed = root.join(format!("{MAKING}{}", sys::id::sortable()?));
        sys::fs::rename_new(&path, &doomed)?;
        layout::remove_tree(&doomed)?;
    }
    Ok(())
}

fn touch(cache: &Path) {
    let written = std::fs::File::create(cache.join(USED)).and_then(|file| file.set_modified(SystemTime::now()));
    drop(written);
}

fn lock(shared: &Shared, mode: Mode) -> Result<Option<Lock>> {
    Lock::attempt(&shared.store.caches().join(".lock"), mode)
}
