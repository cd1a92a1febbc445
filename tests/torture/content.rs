//! What is stored under an id: told by the id alone, so that whoever looks later knows every byte.

use std::collections::BTreeMap;

/// Files by path.
pub type Tree = BTreeMap<String, Vec<u8>>;

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A number that tells one id from another.
pub fn seed_of(id: &str) -> u64 {
    u64::from_le_bytes(*blake3::hash(id.as_bytes()).as_bytes().first_chunk().unwrap())
}

/// Some of it shared with other ids, some of it only in this one. Ids that end in `-large` need several packs.
pub fn content(id: &str) -> Tree {
    let seed = seed_of(id);
    let own = 500 + (seed % 60_000) as usize;
    let mut files = Tree::from([
        ("empty".to_owned(), Vec::new()),
        ("large".to_owned(), noise(seed % 3, 200_000)),
        ("own".to_owned(), noise(seed, own)),
        ("same".to_owned(), noise(7, 30_000)),
        ("some".to_owned(), noise(100 + seed % 5, 10_000)),
        ("text".to_owned(), id.repeat(700).into_bytes()),
        ("zeros".to_owned(), vec![0; 300_000]),
    ]);
    if id.ends_with("-large") {
        files.insert("huge".to_owned(), noise(seed ^ 1, 36 << 20));
    }
    files
}

/// A small generator: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}
