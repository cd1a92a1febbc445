//! What a loss of power may leave.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;

use super::state::{History, Id, Node, ROOT, State};

/// How a file system keeps its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Model {
    /// ext4, `data=ordered`: changes of names reach the disk in their order, any sync brings all of them; bytes that were
    /// not synced are missing from some point on.
    Ordered,
    /// XFS: names in their order, a sync brings those up to the last that concerns what is synced; bytes that were not
    /// synced are missing or zero.
    Log,
    /// No more than POSIX promises: each name by itself is as it was after any change since its folder was synced, and bytes
    /// that were not synced are anything.
    Adversarial,
}

impl Model {
    pub(in crate::store) const ALL: [Model; 3] = [Model::Ordered, Model::Log, Model::Adversarial];
}

/// A seeded generator: splitmix64.
#[derive(Debug, Clone)]
pub(in crate::store) struct Random(pub(in crate::store) u64);

impl Random {
    pub(in crate::store) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    pub(in crate::store) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// What becomes of the bytes of a file that were not synced.
#[derive(Debug, Clone, Copy)]
enum Rest {
    Kept,
    Missing,
    Half,
    Zero,
    Garbage,
}

/// Which change of each uncertain name reached the disk.
enum Names {
    UpTo(u64),
    /// By folder and name, which of its history.
    Each(BTreeMap<(Id, OsString), usize>),
    /// Only what is certain.
    Certain,
}

impl Names {
    fn of(&self, folder: Id, name: &OsString, history: &History) -> Option<Id> {
        match self {
            Self::UpTo(last) => history.at(*last),
            Self::Each(choice) => match choice.get(&(folder, name.clone())) {
                Some(at) => history.0[*at].1,
                None => history.now(),
            },
            Self::Certain => history.certain(),
        }
    }
}

/// States that a loss of power may leave in this model: all where there are few, else the extremes, each single loss and
/// survival, and `random` others.
pub(super) fn outcomes(state: &State, model: Model, random: usize, seed: u64) -> Vec<State> {
    let mut generator = Random(seed);
    let rests: &[Rest] = match model {
        Model::Ordered => &[Rest::Kept, Rest::Missing, Rest::Half],
        Model::Log => &[Rest::Kept, Rest::Missing, Rest::Half, Rest::Zero],
        Model::Adversarial => &[Rest::Kept, Rest::Missing, Rest::Half, Rest::Zero, Rest::Garbage],
    };
    let names = match model {
        Model::Ordered => prefixes(state.journal, state.changes, random, &mut generator),
        Model::Log => prefixes(state.log, state.changes, random, &mut generator),
        Model::Adversarial => each(state, random, &mut generator),
    };
    let uncertain_bytes =
        state.nodes.values().any(|node| matches!(node.as_ref(), Node::File { bytes, synced, .. } if *synced < bytes.len()));
    let rests = if uncertain_bytes { rests } else { &[Rest::Kept] };
    let mut outcomes = Vec::new();
    for names in names {
        for rest in rests {
            outcomes.push(left(state, &names, &mut |_| *rest));
        }
        if uncertain_bytes {
            outcomes.push(left(state, &names, &mut |_| rests[generator.below(rests.len())]));
        }
    }
    outcomes
}

/// Only what is durable for certain.
pub(super) fn certain(state: &State) -> State {
    left(state, &Names::Certain, &mut |_| Rest::Garbage)
}

fn prefixes(first: u64, last: u64, random: usize, generator: &mut Random) -> Vec<Names> {
    let count = (last - first + 1) as usize;
    let all: Vec<u64> = if count <= random + 4 {
        (first..=last).collect()
    } else {
        let picks: HashSet<u64> =
            (0..random).map(|_| first + generator.below(count) as u64).chain([first, first + 1, last - 1, last]).collect();
        picks.into_iter().collect()
    };
    all.into_iter().map(Names::UpTo).collect()
}

fn each(state: &State, random: usize, generator: &mut Random) -> Vec<Names> {
    let mut uncertain: Vec<((Id, OsString), usize)> = Vec::new();
    for (id, node) in &state.nodes {
        if let Node::Folder { names, .. } = node.as_ref() {
            let open = names.iter().filter(|(_, history)| history.0.len() > 1);
            uncertain.extend(open.map(|(name, history)| ((*id, name.clone()), history.0.len())));
        }
    }
    let combinations = uncertain.iter().map(|(_, count)| *count).try_fold(1_usize, usize::checked_mul).unwrap_or(usize::MAX);
    let choice = |pick: &mut dyn FnMut(usize, usize) -> usize| {
        Names::Each(uncertain.iter().enumerate().map(|(at, (key, count))| (key.clone(), pick(at, *count))).collect())
    };
    if combinations <= 8 + 2 * random {
        return (0..combinations)
            .map(|mut number| {
                choice(&mut |_, count| {
                    let picked = number % count;
                    number /= count;
                    picked
                })
            })
            .collect();
    }
    let mut all = vec![choice(&mut |_, _| 0), choice(&mut |_, count| count - 1)];
    // With very many names, single ones stand for the rest.
    let singles: Vec<usize> = if uncertain.len() <= 3 * random {
        (0..uncertain.len()).collect()
    } else {
        (0..random).map(|_| generator.below(uncertain.len())).collect()
    };
    for single in singles {
        all.push(choice(&mut |at, count| if at == single { count - 1 } else { 0 }));
        all.push(choice(&mut |at, count| if at == single { 0 } else { count - 1 }));
    }
    for _ in 0..random {
        all.push(choice(&mut |_, count| generator.below(count)));
    }
    all
}

fn left(state: &State, names: &Names, rest: &mut dyn FnMut(Id) -> Rest) -> State {
    let mut nodes = BTreeMap::new();
    let mut waiting = vec![ROOT];
    while let Some(id) = waiting.pop() {
        if nodes.contains_key(&id) {
            continue;
        }
        let node = match state.node(id) {
            Node::Folder { names: entries, .. } => {
                let kept: BTreeMap<OsString, History> = entries
                    .iter()
                    .filter_map(|(name, history)| Some((name.clone(), names.of(id, name, history)?)))
                    .map(|(name, child)| {
                        waiting.push(child);
                        (name, History(vec![(0, Some(child))]))
                    })
                    .collect();
                Node::Folder { names: kept, changed: 0 }
            }
            Node::File { bytes, synced, .. } => {
                let bytes = if *synced == bytes.len() { Arc::clone(bytes) } else { Arc::new(torn(bytes, *synced, rest(id))) };
                Node::File { synced: bytes.len(), bytes, dropped: false, changed: 0 }
            }
        };
        nodes.insert(id, Arc::new(node));
    }
    State::of(nodes)
}

fn torn(bytes: &[u8], synced: usize, rest: Rest) -> Vec<u8> {
    let mut left = bytes.to_vec();
    match rest {
        Rest::Kept => {}
        Rest::Missing => left.truncate(synced),
        Rest::Half => left.truncate(synced + (bytes.len() - synced) / 2),
        Rest::Zero => left[synced..].fill(0),
        Rest::Garbage => left[synced..].iter_mut().for_each(|byte| *byte ^= 0x5a),
    }
    left
}

/// A number for what processes would find: equal for equal trees, whatever the temporary names are.
pub(super) fn digest(state: &State) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    walk(state, ROOT, false, &mut hasher);
    *hasher.finalize().as_bytes()
}

fn walk(state: &State, id: Id, temporary: bool, hasher: &mut blake3::Hasher) {
    match state.node(id) {
        Node::File { bytes, .. } => {
            hasher.update(b"F").update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
        Node::Folder { names, .. } => {
            hasher.update(b"D");
            for (name, history) in names {
                if let Some(child) = history.now() {
                    hasher.update(if temporary { b"" } else { name.as_encoded_bytes() }).update(b"/");
                    walk(state, child, name == "tmp", hasher);
                }
            }
            hasher.update(b"E");
        }
    }
}
