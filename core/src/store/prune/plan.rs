//! Which packs go and which are rewritten, by what their own footers say.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::marks::Marks;
use super::{PruneOptions, PruneReport, Trash};
use crate::error::{ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::Store;
use crate::store::index::View;
use crate::store::layout::PackId;
use crate::store::pack::{self, BLOB_HEADER, Blob, Kind};
use crate::store::packfile::PackFile;

/// Where less is free, what goes is unlinked at once, and nothing is rewritten into this much.
const SCARCE: u64 = 64 << 20;

/// What a prune does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) report: PruneReport,
    /// Packs of which nothing is needed, or of which what is needed is elsewhere, and the chunks in them.
    pub(super) going: BTreeMap<PackId, Vec<[u8; 16]>>,
    /// Packs to rewrite; the new packs name them by their position here.
    pub(super) rewritten: Vec<PackId>,
    /// The packs that rewriting makes.
    pub(super) written: Vec<NewPack>,
    /// Of chunks that several packs have: the pack whose copy, which was read, is the one that counts.
    chosen: HashMap<[u8; 16], PackId>,
    pub(super) trash: Trash,
    /// The generation in which all this holds.
    pub(super) generation: Option<u64>,
}

/// A pack to be made: for each chunk which of the rewritten packs it comes from.
#[derive(Debug, Default)]
pub(super) struct NewPack {
    pub(super) blobs: Vec<(usize, Blob)>,
    body: u64,
}

/// What was found out about one pack.
#[derive(Debug)]
struct Look {
    id: PackId,
    size: u64,
    used: u64,
    unused: u64,
    /// The index says that something needed is in it that its footer does not have.
    disputed: bool,
}

impl Plan {
    pub(super) fn make(store: &Store, marks: &Marks, options: &PruneOptions, control: &Control) -> Result<Self> {
        let layout = store.layout();
        let trash = Trash::list(layout)?;
        let mut plan = Self { generation: layout.generation()?, trash, ..Self::default() };
        let view = store.view(true)?;
        let mut looks = plan.look(store, &view, marks, control)?;
        let free = layout.disk().free(layout.root())?;
        plan.report.trash_emptied = plan.trash.bytes;
        plan.report.unlinked = options.empty_trash || free.saturating_add(plan.trash.bytes) < SCARCE;
        let mut worth = Vec::new();
        let (mut unused, mut all) = (0_u64, 0_u64);
        looks.sort_by_key(|look| look.id);
        for look in &looks {
            if look.used == 0 && !look.disputed {
                let blobs = blobs(store, &look.id)?;
                plan.going.insert(look.id, blobs.iter().map(|blob| blob.id.prefix()).collect());
                plan.report.packs_removed += 1;
                plan.report.bytes_removed += look.size;
                continue;
            }
            all += look.size;
            unused += look.unused;
            if !look.disputed && look.part() > options.tolerated_in_pack {
                worth.push(look);
            }
        }
        worth.sort_by(|a, b| b.part().total_cmp(&a.part()).then_with(|| a.id.cmp(&b.id)));
        let mut room = free.saturating_add(plan.trash.bytes).saturating_sub(SCARCE);
        let mut chosen = Vec::new();
        for look in worth {
            if unused as f64 <= options.tolerated_in_all * all as f64 {
                break;
            }
            let enough = plan.report.bytes_rewritten.saturating_add(look.size) <= options.most_rewritten && look.used <= room;
            if !enough {
                plan.report.bytes_left += look.size;
                continue;
            }
            room -= look.used;
            unused -= look.unused;
            all -= look.unused;
            plan.report.packs_rewritten += 1;
            plan.report.bytes_rewritten += look.size;
            chosen.push(look.id);
        }
        plan.report.bytes_unused = unused;
        chosen.sort_unstable();
        plan.compose(store, marks, chosen)?;
        Ok(plan)
    }

    /// Looks at every pack. Where a needed chunk is in several, one whole copy is chosen and the others count as not needed.
    fn look(&mut self, store: &Store, view: &View, marks: &Marks, control: &Control) -> Result<Vec<Look>> {
        let mut looks = Vec::new();
        let mut copies: HashMap<[u8; 16], u32> = HashMap::new();
        let indexed = indexed(view, marks);
        let ids = store.layout().list_packs(|_| ())?;
        self.report.packs = ids.len() as u64;
        for (done, id) in ids.iter().enumerate() {
            control.check()?;
            control.report("look at packs", done as u64, ids.len() as u64, Unit::Items);
            let found = match sized(store, id) {
                Ok(found) => found,
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                    self.report.packs_unreadable.push(id.file_name());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (size, blobs) = found;
            let mut look = Look { id: *id, size, used: 0, unused: 0, disputed: false };
            for blob in &blobs {
                let prefix = blob.id.prefix();
                if marks.is_needed(&prefix) {
                    look.used += cost(blob);
                    *copies.entry(prefix).or_default() += 1;
                } else {
                    look.unused += cost(blob);
                }
            }
            if let Some(rows) = indexed.get(id) {
                let own: HashSet<[u8; 16]> = blobs.iter().map(|blob| blob.id.prefix()).collect();
                look.disputed = rows.iter().any(|prefix| !own.contains(prefix));
            }
            looks.push(look);
        }
        copies.retain(|_, count| *count > 1);
        if !copies.is_empty() {
            self.choose(store, &copies, &mut looks)?;
        }
        Ok(looks)
    }

    /// For each chunk that several packs have, finds one whole copy, in the pack that is needed most; in the others it then
    /// counts as not needed. A copy is read before another may go for it.
    fn choose(&mut self, store: &Store, copies: &HashMap<[u8; 16], u32>, looks: &mut [Look]) -> Result<()> {
        looks.sort_by(|a, b| a.part().total_cmp(&b.part()).then_with(|| (Reverse(a.used), a.id).cmp(&(Reverse(b.used), b.id))));
        for look in looks {
            let pack = PackFile::open_in_place(store.layout(), &look.id)?;
            for blob in pack.footer(store.uuid_bytes())? {
                let prefix = blob.id.prefix();
                if !copies.contains_key(&prefix) {
                    continue;
                }
                match self.chosen.entry(prefix) {
                    Entry::Occupied(_) => {
                        look.used -= cost(&blob);
                        look.unused += cost(&blob);
                    }
                    Entry::Vacant(entry) if pack.payload(&blob).is_ok() => {
                        entry.insert(look.id);
                    }
                    Entry::Vacant(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Lays out the new packs, content and metadata apart, in the order of the old ones.
    fn compose(&mut self, store: &Store, marks: &Marks, rewritten: Vec<PackId>) -> Result<()> {
        let (mut data, mut metadata) = (vec![NewPack::default()], vec![NewPack::default()]);
        let mut taken = HashSet::new();
        let limit = store.layout().disk().limits().pack as u64;
        for (source, id) in rewritten.iter().enumerate() {
            let mut prefixes = Vec::new();
            for blob in blobs(store, id)? {
                let prefix = blob.id.prefix();
                prefixes.push(prefix);
                let counts = self.chosen.get(&prefix).is_none_or(|pack| pack == id);
                if marks.is_needed(&prefix) && counts && taken.insert(prefix) {
                    let packs = if blob.kind == Kind::Data { &mut data } else { &mut metadata };
                    push(packs, source, blob, limit);
                }
            }
            self.going.insert(*id, prefixes);
        }
        self.rewritten = rewritten;
        self.written = data.into_iter().chain(metadata).filter(|pack| !pack.blobs.is_empty()).collect();
        self.report.packs_written = self.written.len() as u64;
        self.report.bytes_written = self.written.iter().map(|new| pack::file_size(new.blobs.len(), new.body)).sum();
        Ok(())
    }
}

impl Look {
    /// The part of it that is not needed.
    fn part(&self) -> f64 {
        self.unused as f64 / (self.used + self.unused).max(1) as f64
    }
}

/// What a chunk takes in a pack.
fn cost(blob: &Blob) -> u64 {
    u64::from(blob.stored) + BLOB_HEADER as u64
}

fn push(packs: &mut Vec<NewPack>, source: usize, blob: Blob, limit: u64) {
    if packs.last().is_some_and(|pack| pack.body >= limit || pack.blobs.len() >= pack::MAX_BLOBS) {
        packs.push(NewPack::default());
    }
    if let Some(pack) = packs.last_mut() {
        pack.body += cost(&blob);
        pack.blobs.push((source, blob));
    }
}

fn sized(store: &Store, id: &PackId) -> Result<(u64, Vec<Blob>)> {
    let pack = PackFile::open_in_place(store.layout(), id)?;
    Ok((pack.size(), pack.footer(store.uuid_bytes())?))
}

fn blobs(store: &Store, id: &PackId) -> Result<Vec<Blob>> {
    sized(store, id).map(|(_, blobs)| blobs)
}

/// What the segments say of needed chunks, by pack.
fn indexed(view: &View, marks: &Marks) -> HashMap<PackId, HashSet<[u8; 16]>> {
    let mut indexed: HashMap<PackId, HashSet<[u8; 16]>> = HashMap::new();
    for segment in view.all() {
        for row in segment.rows().filter(|row| marks.is_needed(&row.prefix)) {
            if let Some((id, _)) = segment.packs().get(row.pack as usize) {
                indexed.entry(*id).or_default().insert(row.prefix);
            }
        }
    }
    indexed
}
