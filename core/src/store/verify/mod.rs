//! Checking a store, in levels up to restoring every checkpoint; and what is wrong, by path and by checkpoint.
//!
//! Read in this order: `report` (what is asked and answered), `index` (segments against footers), `packs` (one pack as a
//! whole), `remembered` (budgets), `holdings` (what checkpoints lack), `drill`. Nothing is changed; see `repair`.

mod drill;
mod holdings;
mod index;
mod packs;
mod remembered;
mod report;

use std::collections::{BTreeMap, HashSet};

pub use drill::Drilled;
pub(super) use holdings::{Holdings, Losses};
pub(super) use index::doubts;
pub(super) use packs::{Examined, examine, of_bytes};
pub use report::{Finding, FindingKind, Loss, VerifyLevel, VerifyOptions, VerifyReport};

use super::index::View;
use super::layout::{FOLDERS, PackId};
use super::parallel::Helpers;
use super::prune::Trash;
use super::{Reader, Ref, Store, format::Use, reader, refs};
use crate::error::{ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::manifest::is_damage;
use remembered::Remembered;

/// What is done with each restored checkpoint of a drill, before its trees are removed.
pub(super) type Drill<'a> = &'a mut dyn FnMut(&Drilled<'_>) -> Result<()>;

pub(super) fn verify(store: &Store, options: &VerifyOptions, drill: Drill<'_>, control: &Control) -> Result<VerifyReport> {
    let lock = reader::shared(store, control)?;
    let locked = lock.is_some();
    let reader = Reader::locked_elsewhere(store, lock)?;
    let mut report = VerifyReport { level: options.level, ..VerifyReport::default() };
    let mut findings = Findings::default();
    top(store, &mut findings)?;
    // Refs before the index: what they need was published before they were.
    let (refs, bad) = read_refs(store, control)?;
    report.checkpoints = (refs.len() + bad.len()) as u64;
    for (path, error) in bad {
        findings.add(FindingKind::Ref, path, error);
    }
    let view = store.view(true)?;
    let packs = list(store, &view, &mut findings)?;
    report.packs = packs.len() as u64;
    let mut holdings = Holdings::new(store, view.clone(), locked);
    let mut remembered = Remembered::load(store.layout());
    if options.level >= VerifyLevel::Metadata {
        for doubt in doubts(store, &view, &packs, control)? {
            holdings.bad.extend(doubt.bad.iter().copied());
            findings.add(if doubt.of_pack { FindingKind::PackDamaged } else { FindingKind::Index }, doubt.path, doubt.detail);
        }
    }
    if options.level >= VerifyLevel::Packs {
        let there = packs.clone();
        let result = read_packs(store, options, packs, &mut remembered, &mut report, &mut holdings, &mut findings, control);
        if options.budget.is_some() {
            remembered.save(store.layout(), &there, &refs)?;
        }
        result?;
    }
    holdings.bad.iter().for_each(|(id, _)| store.doubt(*id));
    let mut losses = if options.level >= VerifyLevel::Metadata || findings.any_of_packs() {
        Losses::find(&reader, &holdings, &refs, control)?
    } else {
        roots(&refs, &holdings)
    };
    if !locked {
        // A prune may have taken what a ref needed that was removed since it was listed.
        let there: HashSet<String> = read_refs(store, control)?.0.into_iter().map(|found| found.id).collect();
        losses.losses.retain(|loss| there.contains(&loss.checkpoint));
        losses.causes.values_mut().for_each(|(_, checkpoints)| checkpoints.retain(|id| there.contains(id)));
        losses.causes.retain(|_, (_, checkpoints)| !checkpoints.is_empty());
    }
    findings.blame(&losses);
    if options.level >= VerifyLevel::Drill {
        let result = drill::drill(&reader, options, &refs, &mut remembered, drill, &mut report, &mut findings, control);
        if options.budget.is_some() {
            remembered.save(store.layout(), &store.layout().list_packs(|_| ())?, &refs)?;
        }
        result?;
    }
    report.losses = losses.losses;
    report.findings = findings.list();
    Ok(report)
}

/// Findings by path.
#[derive(Debug, Default)]
pub(super) struct Findings(BTreeMap<String, Finding>);

impl Findings {
    pub(super) fn add(&mut self, kind: FindingKind, path: impl Into<String>, detail: impl Into<String>) {
        let path = path.into();
        let finding = Finding { kind, path: path.clone(), detail: detail.into(), checkpoints: Vec::new() };
        self.0.entry(path).or_insert(finding);
    }

    /// A checkpoint that could not be restored.
    fn drill(&mut self, checkpoint: &str, path: String, detail: &str) {
        let finding =
            Finding { kind: FindingKind::Drill, path: path.clone(), detail: detail.to_owned(), checkpoints: vec![checkpoint.to_owned()] };
        self.0.entry(path).or_insert(finding);
    }

    fn any_of_packs(&self) -> bool {
        self.0.values().any(|found| !matches!(found.kind, FindingKind::Ref | FindingKind::Format | FindingKind::Stray))
    }

    /// Names the checkpoints that are not whole at what they lack, which is a finding where it was none yet.
    fn blame(&mut self, losses: &Losses) {
        for (path, (why, checkpoints)) in &losses.causes {
            self.add(FindingKind::PackDamaged, path, why);
            if let Some(found) = self.0.get_mut(path) {
                found.checkpoints = checkpoints.iter().cloned().collect();
            }
        }
    }

    fn list(self) -> Vec<Finding> {
        let mut list: Vec<Finding> = self.0.into_values().collect();
        list.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| a.path.cmp(&b.path)));
        list
    }
}

/// The files and folders that every store has.
fn top(store: &Store, findings: &mut Findings) -> Result<()> {
    let (layout, disk) = (store.layout(), store.layout().disk());
    if let Err(error) = store.allow(Use::Write).and_then(|()| store.allow(Use::Prune)) {
        findings.add(FindingKind::Format, layout.format().display().to_string(), error.message());
    }
    for path in [layout.lock(), layout.gate()] {
        if disk.stat(&path)?.is_none() {
            findings.add(FindingKind::Layout, path.display().to_string(), "it is missing; the next capture makes it");
        }
    }
    let folders = FOLDERS.iter().map(|name| layout.folder(name)).chain((0..=u8::MAX).map(|first| layout.pack_folder(first)));
    for path in folders {
        if !disk.is_folder(&path)? {
            findings.add(FindingKind::Layout, path.display().to_string(), "this folder is missing");
        }
    }
    let path = layout.generation_file().display().to_string();
    let highest = if disk.is_folder(&layout.trash())? { Trash::list(layout)?.highest } else { 0 };
    match layout.generation()? {
        None => findings.add(FindingKind::Layout, path, "it does not hold a number"),
        Some(found) if found < highest => findings.add(FindingKind::Layout, path, format!("{found} is below {highest} in the trash")),
        Some(_) => {}
    }
    Ok(())
}

/// The path of something that cannot be read, and why.
pub(super) type Unreadable = (String, String);

/// All refs that can be read, and those that cannot.
pub(super) fn read_refs(store: &Store, control: &Control) -> Result<(Vec<Ref>, Vec<Unreadable>)> {
    let layout = store.layout();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let names = match refs::names(layout) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    for (done, name) in names.iter().enumerate() {
        control.check()?;
        control.report("read refs", done as u64, names.len() as u64, Unit::Items);
        match refs::read_name(layout, name) {
            Ok(found) => good.push(found),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_damage(&error) => bad.push((layout.refs().join(name).display().to_string(), error.message().to_owned())),
            Err(error) => return Err(error),
        }
    }
    Ok((good, bad))
}

/// The packs in their places; what the index says of them otherwise, and what is not forklift's, are findings.
fn list(store: &Store, view: &View, findings: &mut Findings) -> Result<Vec<PackId>> {
    let layout = store.layout();
    for name in view.damaged() {
        let path = layout.index().join(name).display().to_string();
        findings.add(FindingKind::Index, path, "it is not a whole segment of this store under its name");
    }
    let packs = layout.list_packs(|path| findings.add(FindingKind::Stray, path.display().to_string(), "it is not a pack in its folder"))?;
    for id in view.unreadable() {
        findings.add(FindingKind::PackDamaged, layout.pack(id).display().to_string(), "it does not parse, and no segment knows it");
    }
    for (id, size) in view.all().flat_map(|segment| segment.packs()) {
        let path = layout.pack(id);
        match layout.disk().stat(&path)? {
            None => findings.add(FindingKind::PackMissing, path.display().to_string(), "the index knows this pack, and it is not there"),
            Some(found) if found.len != *size => {
                let detail = format!("it has {} bytes where the index says {size}", found.len);
                findings.add(FindingKind::PackDamaged, path.display().to_string(), detail);
            }
            Some(_) => {}
        }
    }
    Ok(packs)
}

/// Reads packs as a whole, several at once, as far as the budget goes.
#[allow(clippy::too_many_arguments, reason = "one step of a verify, which has all of them at hand")]
fn read_packs(
    store: &Store,
    options: &VerifyOptions,
    mut packs: Vec<PackId>,
    remembered: &mut Remembered,
    report: &mut VerifyReport,
    holdings: &mut Holdings<'_>,
    findings: &mut Findings,
    control: &Control,
) -> Result<()> {
    let layout = store.layout();
    let every_chunk = options.level >= VerifyLevel::Full;
    if options.budget.is_some() {
        remembered.sort(&mut packs, options.level);
    }
    let helpers = Helpers::new(layout.disk().limits().helpers);
    let mut left = packs.as_slice();
    let result = loop {
        if left.is_empty() || options.budget.is_some_and(|budget| report.packs_read > 0 && report.bytes_read >= budget) {
            break Ok(());
        }
        control.report("read packs", report.packs_read, packs.len() as u64, Unit::Items);
        // With a budget one at a time, so that it is kept.
        let (batch, rest) = left.split_at(if options.budget.is_some() { 1 } else { left.len().min(8) });
        let examined = control.check().and_then(|()| helpers.map(batch, |id| examine(layout, store.uuid_bytes(), id, every_chunk)));
        let examined = match examined {
            Ok(examined) => examined,
            Err(error) => break Err(error),
        };
        left = rest;
        for found in examined.into_iter().flatten() {
            report.packs_read += 1;
            report.bytes_read += found.size;
            match &found.problem {
                None => remembered.add(found.id, every_chunk),
                Some(why) => {
                    remembered.forget(&found.id);
                    store.doubt(found.id);
                    findings.add(FindingKind::PackDamaged, layout.pack(&found.id).display().to_string(), why);
                }
            }
            holdings.bad.extend(found.broken.iter().map(|prefix| (found.id, *prefix)));
        }
    };
    report.packs_left = left.len() as u64;
    result
}

/// Only whether the root of each checkpoint is there.
fn roots(refs: &[Ref], holdings: &Holdings<'_>) -> Losses {
    let mut losses = Losses::default();
    for reference in refs {
        for (name, half) in [("files", &reference.files), ("cluster", &reference.cluster)] {
            if let Some(half) = half.as_ref().filter(|half| !holdings.has(&half.root, None)) {
                losses.lose_all(holdings, &reference.id, name, half);
            }
        }
    }
    losses
}
