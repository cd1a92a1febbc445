//! Index segments against the footers of their packs.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::progress::{Control, Unit};
use crate::store::Store;
use crate::store::index::{Row, Segment, View};
use crate::store::layout::PackId;
use crate::store::manifest::is_damage;
use crate::store::packfile::PackFile;

/// A segment, or the footer of a pack, that cannot be right.
#[derive(Debug)]
pub(in crate::store) struct Doubt {
    pub(in crate::store) path: String,
    pub(in crate::store) detail: String,
    /// Whether the pack is damaged, rather than the segment.
    pub(in crate::store) of_pack: bool,
    /// The segment's file name.
    pub(in crate::store) segment: Option<String>,
    /// Copies that the segment names and that the pack does not have.
    pub(in crate::store) bad: Vec<(PackId, [u8; 16])>,
}

/// An order-free sum of rows, whatever number their pack has.
type Sum = (u64, u128);

/// Compares every segment with the footers of the packs that it covers.
pub(in crate::store) fn doubts(store: &Store, view: &View, packs: &[PackId], control: &Control) -> Result<Vec<Doubt>> {
    let layout = store.layout();
    let mut doubts = Vec::new();
    let mut sums: HashMap<PackId, Sum> = HashMap::new();
    for (done, id) in packs.iter().enumerate() {
        control.check()?;
        control.report("read footers", done as u64, packs.len() as u64, Unit::Items);
        match PackFile::open_in_place(layout, id).and_then(|pack| pack.footer(store.uuid_bytes())) {
            Ok(blobs) => {
                sums.insert(*id, sum(blobs.iter().map(|blob| Row::of(blob, 0))));
            }
            Err(error) if is_damage(&error) => doubts.push(Doubt {
                path: layout.pack(id).display().to_string(),
                detail: error.message().to_owned(),
                of_pack: true,
                segment: None,
                bad: Vec::new(),
            }),
            Err(error) => return Err(error),
        }
    }
    for (name, segment) in view.segments() {
        let wrong = wrong_packs(segment, &sums);
        if wrong.is_empty() {
            continue;
        }
        let bad = wrong.iter().map(|(number, id)| strangers(store, segment, *number, id)).collect::<Result<Vec<_>>>()?;
        doubts.push(Doubt {
            path: layout.index().join(name).display().to_string(),
            detail: format!("it says something else than {} of the packs that it covers", wrong.len()),
            of_pack: false,
            segment: Some(name.clone()),
            bad: bad.into_iter().flatten().collect(),
        });
    }
    Ok(doubts)
}

fn sum(rows: impl Iterator<Item = Row>) -> Sum {
    rows.fold((0, 0), |(count, sum), row| (count + 1, sum.wrapping_add(fingerprint(&Row { pack: 0, ..row }))))
}

fn fingerprint(row: &Row) -> u128 {
    let mut bytes = Vec::with_capacity(32);
    row.encode(&mut bytes);
    blake3::hash(&bytes).as_bytes().first_chunk::<16>().map_or(0, |half| u128::from_le_bytes(*half))
}

/// The packs, with their numbers in the segment, of which it says something else than their footers.
fn wrong_packs(segment: &Segment, sums: &HashMap<PackId, Sum>) -> Vec<(u32, PackId)> {
    let mut found = vec![(0, 0_u128); segment.packs().len()];
    let mut unknown = false;
    for row in segment.rows() {
        match found.get_mut(row.pack as usize) {
            Some((count, sum)) => {
                *count += 1;
                *sum = sum.wrapping_add(fingerprint(&Row { pack: 0, ..row }));
            }
            None => unknown = true,
        }
    }
    let packs = segment.packs().iter().zip(found).zip(0..);
    packs
        .filter(|(((id, _), found), _)| unknown || sums.get(id).is_some_and(|sum| sum != found))
        .map(|(((id, _), _), at)| (at, *id))
        .collect()
}

/// The copies that a segment names in a pack and that its footer does not have there.
fn strangers(store: &Store, segment: &Segment, number: u32, id: &PackId) -> Result<Vec<(PackId, [u8; 16])>> {
    let blobs = match PackFile::open_in_place(store.layout(), id).and_then(|pack| pack.footer(store.uuid_bytes())) {
        Err(error) if is_damage(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let own: HashSet<Row> = blobs.iter().map(|blob| Row::of(blob, number)).collect();
    Ok(segment.rows().filter(|row| row.pack == number && !own.contains(row)).map(|row| (*id, row.prefix)).collect())
}
