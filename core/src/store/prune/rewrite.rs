//! Writing what is needed of wasteful packs to new ones, beside captures: the old ones stay until the sweep.

use std::collections::HashSet;

use super::plan::{NewPack, Plan};
use super::sweep::{Change, index_without, unless_full};
use crate::error::{ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::Store;
use crate::store::layout::PackId;
use crate::store::pack::OpenPack;
use crate::store::packfile::PackFile;
use crate::store::parallel::Helpers;
use crate::store::publish::{self, Sealed};
use crate::sys::fs::Syncs;

/// New packs that become durable together.
const BATCH: usize = 4;

/// Writes the new packs of a plan and takes out of it what cannot be rewritten: packs in which a chunk turns out to be
/// damaged, and all that come after the disk is full.
pub(super) fn rewrite(store: &Store, plan: &mut Plan, control: &Control) -> Result<()> {
    let written = std::mem::take(&mut plan.written);
    let total = plan.report.bytes_written;
    let mut damaged: HashSet<usize> = HashSet::new();
    let mut stopped: HashSet<usize> = HashSet::new();
    let (mut packs, mut bytes, mut made) = (0, 0, Vec::new());
    let mut batches = written.chunks(BATCH);
    for batch in &mut batches {
        control.check()?;
        control.report("rewrite", bytes, total, Unit::Bytes);
        match write(store, batch, &plan.rewritten, &mut damaged, control) {
            Ok(new) => {
                packs += new.len() as u64;
                bytes += new.iter().map(|(_, size)| size).sum::<u64>();
                made.extend(new);
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                stopped.extend(sources(batch));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    stopped.extend(batches.flat_map(sources));
    plan.report.packs_written = packs;
    plan.report.bytes_written = bytes;
    for (id, size) in made {
        // A prune that did not come to its end had made the same pack: the copies in it are those that count now.
        if plan.going.remove(&id).is_some() {
            plan.report.packs_removed = plan.report.packs_removed.saturating_sub(1);
            plan.report.bytes_removed = plan.report.bytes_removed.saturating_sub(size);
        }
    }
    for (at, id) in plan.rewritten.iter().enumerate().filter(|(at, _)| damaged.contains(at) || stopped.contains(at)) {
        plan.going.remove(id);
        let size = PackFile::open_in_place(store.layout(), id)?.size();
        plan.report.packs_rewritten -= 1;
        plan.report.bytes_rewritten -= size;
        if damaged.contains(&at) {
            plan.report.packs_unreadable.push(id.file_name());
        } else {
            plan.report.bytes_left += size;
        }
    }
    Ok(())
}

fn sources(batch: &[NewPack]) -> HashSet<usize> {
    batch.iter().flat_map(|new| new.blobs.iter().map(|(source, _)| *source)).collect()
}

/// Writes and publishes some packs; gives their names and sizes.
fn write(store: &Store, batch: &[NewPack], from: &[PackId], damaged: &mut HashSet<usize>, control: &Control) -> Result<Vec<(PackId, u64)>> {
    let syncs = Syncs::new();
    let mut sealed = Vec::new();
    let published = batch
        .iter()
        .try_for_each(|new| {
            let pack = gather(store, new, from, damaged, control)?;
            if !pack.is_empty() {
                sealed.push(Sealed::write(store.layout(), store.uuid_bytes(), pack)?);
            }
            Ok(())
        })
        .and_then(|()| {
            let done = sealed.iter().map(|new| (new.id(), new.size())).collect();
            publish::packs_and_index(
                store,
                &*store.view(true)?,
                &mut sealed,
                &Helpers::new(store.layout().disk().limits().helpers),
                &syncs,
            )?;
            Ok(done)
        });
    sealed.into_iter().for_each(|pack| pack.discard(store.layout()));
    published
}

/// Reads the chunks of a new pack, each checked against its hash, and takes their stored bytes as they are.
fn gather(store: &Store, new: &NewPack, from: &[PackId], damaged: &mut HashSet<usize>, control: &Control) -> Result<OpenPack> {
    let mut pack = OpenPack::default();
    let mut open: Option<(usize, PackFile)> = None;
    for (source, blob) in &new.blobs {
        if damaged.contains(source) {
            continue;
        }
        let Some(id) = from.get(*source) else { continue };
        let file = match open.take().filter(|(at, _)| at == source) {
            Some((_, file)) => file,
            None => {
                control.check()?;
                PackFile::open_in_place(store.layout(), id)?
            }
        };
        match file.payload(blob) {
            Ok(payload) => pack.push(blob.id, blob.kind, blob.plain, blob.codec, &payload),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                damaged.insert(*source);
            }
            Err(error) => return Err(error),
        }
        open = Some((*source, file));
    }
    Ok(pack)
}

/// Publishes what the index will be after the sweep, beside what it is, so that the sweep has only to remove segments. Not
/// needed for anything: where the disk is full the sweep does without.
pub(super) fn index_ahead(store: &Store, plan: &Plan) -> Result<()> {
    if plan.going.is_empty() {
        return Ok(());
    }
    let change = Change { goes: &|id| plan.going.contains_key(id), distrusted: &HashSet::new() };
    unless_full(index_without(store, &change, &Syncs::new())).map(drop)
}
