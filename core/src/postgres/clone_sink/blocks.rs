//! Which chunks of two files that nobody writes to lie in the same blocks.

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;

use crate::sys::extents::{Extent, LAST, MERGED, SHARED, UNWRITTEN, extents};

/// What says nothing against a block.
const HARMLESS: u32 = LAST | SHARED | MERGED;

/// What the blocks of two files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    /// Bytes that lie in the same blocks of both, or in a hole of both: equal.
    pub(super) same: Vec<Range<u64>>,
    /// Holes of the second file: zeros.
    pub(super) holes: Vec<Range<u64>>,
}

/// Compares the blocks of `old` and `new`, two files of one file system that nobody writes to, within `size` bytes. `None` in
/// every doubt: a flag that is not known to be harmless, or blocks that moved meanwhile.
pub(super) fn compare(old: &File, new: &File, size: u64) -> Option<Compared> {
    let before = extents(old).ok()?;
    let now = extents(new).ok()?;
    // Blocks that the file system itself moves (a balance, a defragmentation) could be another file's by now.
    if !same_places(&before, &extents(old).ok()?) {
        return None;
    }
    compared(&before, &now, size)
}

/// The holes of a file that nobody writes to, within `size` bytes; none in every doubt.
pub(super) fn holes(file: &File, size: u64) -> Result<Vec<Range<u64>>, Errno> {
    Ok(crate::sys::holes::holes(file, size)?.into_iter().map(|(offset, length)| offset..offset + length).collect())
}

/// Whether all of `range` lies in one of `ranges`, which are ascending and do not touch.
pub(super) fn covers(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let next = ranges.partition_point(|one| one.end <= range.start);
    ranges.get(next).is_some_and(|one| one.start <= range.start && range.end <= one.end)
}

fn same_places(one: &[Extent], other: &[Extent]) -> bool {
    let places = |list: &[Extent]| list.iter().map(|extent| (extent.logical, extent.physical, extent.length)).collect::<Vec<_>>();
    places(one) == places(other)
}

/// A stretch of a file: `None` is a hole, a number the distance of its blocks' addresses from its offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    range: Range<u64>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Hole,
    /// Address in the file system less offset in the file.
    Blocks(i128),
    /// Reserved and never written.
    Unwritten,
}

fn compared(old: &[Extent], new: &[Extent], size: u64) -> Option<Compared> {
    let (old, new) = (stretches(old, size)?, stretches(new, size)?);
    let mut found = Compared { same: Vec::new(), holes: Vec::new() };
    for stretch in new.iter().filter(|stretch| stretch.place == Place::Hole) {
        push(&mut found.holes, stretch.range.clone());
    }
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    while let (Some(one), Some(other)) = (old.peek(), new.peek()) {
        let range = one.range.start.max(other.range.start)..one.range.end.min(other.range.end);
        if range.start < range.end && one.place == other.place && one.place != Place::Unwritten {
            push(&mut found.same, range.clone());
        }
        let (one_ends, other_ends) = (one.range.end == range.end, other.range.end == range.end);
        if one_ends {
            old.next();
        }
        if other_ends {
            new.next();
        }
    }
    Some(found)
}

/// All of `0..size`, in order and without gaps.
fn stretches(extents: &[Extent], size: u64) -> Option<Vec<Stretch>> {
    let mut found = Vec::new();
    let mut at = 0;
    for extent in extents {
        if extent.flags & !(HARMLESS | UNWRITTEN) != 0 {
            return None;
        }
        let unwritten = extent.flags & UNWRITTEN != 0;
        if extent.physical == 0 && !unwritten {
            return None;
        }
        let (start, end) = (extent.logical.min(size), extent.logical.checked_add(extent.length)?.min(size));
        if start < at {
            return None;
        }
        if start > at {
            found.push(Stretch { range: at..start, place: Place::Hole });
        }
        if end > start {
            let place = if unwritten { Place::Unwritten } else { Place::Blocks(i128::from(extent.physical) - i128::from(extent.logical)) };
            found.push(Stretch { range: start..end, place });
        }
        at = end.max(start);
    }
    if at < size {
        found.push(Stretch { range: at..size, place: Place::Hole });
    }
    Some(found)
}

/// Adds a range, in one with the last where they touch.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 4096;

    fn extent(logical: u64, physical: u64, length: u64, flags: u32) -> Extent {
        Extent { logical: logical * BLOCK, physical: physical * BLOCK, length: length * BLOCK, flags }
    }

    fn blocks(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        ranges.iter().map(|range| (range.start / BLOCK, range.end / BLOCK)).collect()
    }

    #[test]
    fn blocks_are_told_apart_one_by_one_however_they_are_grouped() {
        let old = [extent(0, 100, 10, SHARED | LAST)];
        // The fifth block was written anew; the rest is the same in three pieces.
        let new = [extent(0, 100, 4, SHARED), extent(4, 300, 1, 0), extent(5, 105, 2, SHARED), extent(7, 107, 3, SHARED | MERGED | LAST)];
        let found = compared(&old, &new, 10 * BLOCK).unwrap();
        assert_eq!(blocks(&found.same), [(0, 4), (5, 10)]);
        assert!(found.holes.is_empty());
        // The same blocks at another offset are not the same bytes of the file.
        let moved = [extent(1, 100, 9, SHARED | LAST)];
        assert!(compared(&old, &moved, 10 * BLOCK).unwrap().same.is_empty());
    }

    #[test]
    fn holes_equal_holes_and_nothing_else() {
        let old = [extent(0, 100, 2, 0), extent(6, 106, 2, LAST)];
        let new = [extent(0, 100, 4, 0), extent(6, 106, 2, LAST)];
        let found = compared(&old, &new, 10 * BLOCK).unwrap();
        assert_eq!(blocks(&found.same), [(0, 2), (4, 10)]);
        assert_eq!(blocks(&found.holes), [(4, 6), (8, 10)]);
        let unwritten = [extent(0, 100, 2, 0), extent(2, 102, 4, UNWRITTEN), extent(6, 106, 2, LAST)];
        assert_eq!(blocks(&compared(&unwritten, &unwritten, 8 * BLOCK).unwrap().same), [(0, 2), (6, 8)]);
        assert_eq!(blocks(&compared(&[], &[], 3 * BLOCK).unwrap().same), [(0, 3)]);
    }

    #[test]
    fn every_flag_that_is_not_harmless_is_a_doubt() {
        let good = [extent(0, 100, 1, LAST)];
        for bit in 0..32 {
            let flags = 1 << bit;
            let known = flags & (HARMLESS | UNWRITTEN) != 0;
            let other = [extent(0, 100, 1, flags)];
            assert_eq!(compared(&good, &other, BLOCK).is_some(), known, "{flags:#x}");
            assert_eq!(compared(&other, &good, BLOCK).is_some(), known, "{flags:#x}");
        }
        assert!(compared(&good, &[extent(0, 0, 1, LAST)], BLOCK).is_none(), "no block has address 0");
        assert!(compared(&good, &[extent(0, 100, 2, 0), extent(1, 200, 1, LAST)], BLOCK * 2).is_none(), "overlapping");
        assert!(compared(&good, &[Extent { logical: 0, physical: 1, length: u64::MAX, flags: 0 }], BLOCK).is_some());
        assert!(compared(&good, &[Extent { logical: 1, physical: 1, length: u64::MAX, flags: 0 }], BLOCK).is_none());
    }

    #[test]
    fn a_range_is_covered_by_one_range_only() {
        let ranges = [0..10, 20..30];
        for (range, covered) in
            [(0..10, true), (3..4, true), (9..11, false), (10..20, false), (20..30, true), (25..31, false), (5..25, false)]
        {
            assert_eq!(covers(&ranges, &range), covered, "{range:?}");
        }
        assert!(!covers(&[], &(0..1)));
    }

    /// A file as its blocks' addresses, 0 for a hole, cut into extents at random places.
    fn file() -> impl Strategy<Value = (Vec<u64>, Vec<Extent>)> {
        proptest::collection::vec((prop_oneof![Just(0_u64), 100..104_u64], any::<bool>()), 0..24).prop_map(|blocks| {
            let mut extents: Vec<Extent> = Vec::new();
            let mut places = Vec::new();
            for (at, (kind, cut)) in blocks.into_iter().enumerate() {
                let at = at as u64;
                // Two files agree on a block where they have the same kind there.
                let physical = if kind == 0 { 0 } else { kind * 1000 + at };
                places.push(physical);
                if physical == 0 {
                    continue;
                }
                match extents.last_mut() {
                    Some(last) if !cut && last.logical + last.length == at * BLOCK && last.physical + last.length == physical * BLOCK => {
                        last.length += BLOCK;
                    }
                    _ => extents.push(extent(at, physical, 1, SHARED)),
                }
            }
            (places, extents)
        })
    }

    proptest! {
        #[test]
        fn exactly_the_blocks_that_agree_are_the_same((old, old_extents) in file(), (new, new_extents) in file(), odd in 0..BLOCK) {
            let size = (new.len() as u64 * BLOCK).saturating_sub(odd);
            let found = compared(&old_extents, &new_extents, size).unwrap();
            for (at, place) in new.iter().enumerate() {
                let range = at as u64 * BLOCK..((at as u64 + 1) * BLOCK).min(size);
                if range.start >= range.end {
                    continue;
                }
                let agree = old.get(at).copied().unwrap_or(0) == *place;
                prop_assert_eq!(covers(&found.same, &range), agree, "{} of {:?}, {:?}", at, old, new);
                prop_assert_eq!(covers(&found.holes, &range), *place == 0);
            }
        }
    }
}
