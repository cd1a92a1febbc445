//! Removing what no ref needs.
//!
//! Read in this order: `marks` (what is needed), `plan` (which packs go, which are rewritten), `rewrite`, `sweep` (the short
//! part that runs alone), `trash`. All but the sweep runs under the shared lock beside captures. An interruption at any step
//! leaves every checkpoint whole, and the next prune goes on from there.

mod marks;
mod plan;
mod rewrite;
mod sweep;
mod trash;

pub(super) use sweep::{Change, alone, index_without, move_into, new_generation, retire, sync_moved};
pub(super) use trash::{Trash, only_one};

use std::collections::BTreeSet;

use marks::Marks;
use plan::Plan;

use super::{ChunkId, Reader, Store, reader};
use crate::error::Result;
use crate::progress::Control;
use crate::sys::fs::Syncs;

/// What to prune and whether to do it.
#[derive(Debug, Clone)]
pub struct PruneOptions {
    /// Do it; without, only tell.
    pub apply: bool,
    /// Roots of manifests to keep that no ref names.
    pub extra_roots: Vec<ChunkId>,
    /// Ids of refs that count as removed already. Only for telling: with `apply` such refs keep what they need.
    pub without: Vec<String>,
    /// A pack is rewritten when more than this part of it is not needed (0.0 to 1.0).
    pub tolerated_in_pack: f64,
    /// Nothing is rewritten while no more than this part of the whole store is not needed (0.0 to 1.0).
    pub tolerated_in_all: f64,
    /// Packs of at most so many bytes together are rewritten, the most wasteful first.
    pub most_rewritten: u64,
    /// Unlink at once what goes, where it would otherwise stay in the trash until the next prune. Done in any case where
    /// less than 64 MiB are free.
    pub empty_trash: bool,
    /// How often the part that runs alone waits its 100 ms for captures and restores before the prune ends as `Busy`.
    pub attempts: u32,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self {
            apply: false,
            extra_roots: Vec::new(),
            without: Vec::new(),
            tolerated_in_pack: 0.3,
            tolerated_in_all: 0.05,
            most_rewritten: u64::MAX,
            empty_trash: false,
            attempts: 5,
        }
    }
}

/// What was, or would be, removed and rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct PruneReport {
    /// Packs in the store, before.
    pub packs: u64,
    /// Packs of which nothing is needed.
    pub packs_removed: u64,
    /// Bytes of those packs.
    pub bytes_removed: u64,
    /// Packs that go because what is needed of them was written to new packs.
    pub packs_rewritten: u64,
    /// Bytes of those packs.
    pub bytes_rewritten: u64,
    /// New packs.
    pub packs_written: u64,
    /// Bytes of the new packs.
    pub bytes_written: u64,
    /// Bytes that nothing needs in packs that stay.
    pub bytes_unused: u64,
    /// Bytes of packs that are worth rewriting and stay: by `most_rewritten`, or because the disk has no room for new ones.
    pub bytes_left: u64,
    /// Bytes of what earlier prunes had put into the trash, now unlinked.
    pub trash_emptied: u64,
    /// Whether what goes was unlinked at once.
    pub unlinked: bool,
    /// Packs that do not parse or hold a damaged chunk, by file name; they are never rewritten or removed.
    pub packs_unreadable: Vec<String>,
}

pub(super) fn prune(store: &Store, options: &PruneOptions, control: &Control) -> Result<PruneReport> {
    let layout = store.layout();
    let only = if options.apply {
        layout.disk().check_writable(&layout.trash())?;
        Some(only_one(layout)?)
    } else {
        None
    };
    let shared = reader::shared(store, control)?;
    let reader = Reader::locked_elsewhere(store, None)?;
    let mut marks = Marks::default();
    marks.mark(store, &reader, options, control)?;
    marks.check(&*store.view(true)?, layout, &BTreeSet::new())?;
    let mut plan = Plan::make(store, &marks, options, control)?;
    if !options.apply {
        return Ok(plan.report);
    }
    // Everything that is needed was found outside of the trash.
    plan.trash.empty(layout)?;
    rewrite::rewrite(store, &mut plan, control)?;
    rewrite::index_ahead(store, &plan)?;
    // Nothing goes that would take the last copy of something with it.
    marks.check(&*store.view(true)?, layout, &plan.going.keys().copied().collect())?;
    drop(shared);
    let report = sweep::sweep(store, &mut marks, plan, options, control)?;
    if layout.generation()?.is_none() {
        // It went when there was no room for it; by now there is.
        sweep::unless_full(new_generation(layout, &Syncs::new()))?;
    }
    drop(only);
    Ok(report)
}
