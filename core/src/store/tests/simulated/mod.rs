//! The store on a disk that loses what was not synced, fails, and fills up.
//!
//! Every disk also asserts the order of writes; see `store::disk::simulated`. A longer run: FORKLIFT_TORTURE_MINUTES.

mod between;
mod crashes;
mod failing;
mod random;
mod repairing;
mod space;
mod twice;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::*;
use crate::store::disk::Disk;
use crate::store::disk::simulated::{Faults, Model, Random, Shot, SimulatedDisk};
use crate::store::{PruneOptions, PruneReport};
use crate::{ErrorKind, Result};

const ROOT: &str = "/disk/new/store";

/// How long a long run takes at least; zero for the quick one. Whole minutes or parts of one.
#[allow(clippy::disallowed_methods, reason = "asked for by whoever runs the tests")]
fn torture() -> Duration {
    let minutes = std::env::var("FORKLIFT_TORTURE_MINUTES").ok().and_then(|minutes| minutes.parse().ok()).unwrap_or(0.0);
    Duration::from_secs_f64(60.0 * minutes)
}

/// Whether there is no time for more than the quick run takes.
fn is_short() -> bool {
    thinning() == 4
}

/// Every how many-th of the cases a run takes, where there are very many: all of them take half an hour.
fn thinning() -> usize {
    match torture().as_secs() {
        0..300 => 4,
        300..1200 => 2,
        _ => 1,
    }
}

fn open(disk: &Arc<SimulatedDisk>) -> Result<Store> {
    Store::open_on(&(Arc::clone(disk) as Arc<dyn Disk>), Path::new(ROOT))
}

fn open_or_create(disk: &Arc<SimulatedDisk>) -> Result<Store> {
    Store::open_or_create_on(&(Arc::clone(disk) as Arc<dyn Disk>), Path::new(ROOT))
}

/// What is stored under an id: some of it shared with others, all of it a few packs.
fn content(id: &str) -> Tree {
    let seed = u64::from_le_bytes(blake3::hash(id.as_bytes()).as_bytes()[..8].try_into().unwrap());
    let sizes = [(7, 700), (100 + seed % 2, 500), (200 + seed % 3, 1400)];
    let shared = sizes.iter().enumerate().map(|(at, (seed, len))| (format!("shared{at}"), noise(*seed, *len)));
    shared.chain([("own".to_owned(), noise(seed, 300)), ("text".to_owned(), id.repeat(40).into_bytes())]).collect()
}

fn put(store: &Store, id: &str) -> Result<()> {
    try_commit(store, id, &content(id)).map(drop)
}

fn prune(store: &Store) -> Result<PruneReport> {
    store.prune(&PruneOptions { apply: true, attempts: 1, ..PruneOptions::default() }, &Control::silent())
}

/// What must be true whatever a fault left: refs that were acknowledged and those whose removal was. What is in neither may
/// be there or not, but whole.
#[derive(Debug, Clone, Default)]
struct Expected {
    store: bool,
    present: BTreeSet<String>,
    absent: BTreeSet<String>,
}

impl Expected {
    fn with(present: &[&str]) -> Self {
        Self { store: true, present: present.iter().map(|id| (*id).to_owned()).collect(), absent: BTreeSet::new() }
    }

    fn unsure(mut self, id: &str) -> Self {
        self.present.remove(id);
        self.absent.remove(id);
        self
    }

    fn has(self, id: &str) -> Self {
        let mut sure = self.unsure(id);
        sure.present.insert(id.to_owned());
        sure
    }

    fn lacks(self, id: &str) -> Self {
        let mut sure = self.unsure(id);
        sure.absent.insert(id.to_owned());
        sure
    }

    /// Every ref that is there is whole, and they are the right ones.
    fn holds(&self, disk: &Arc<SimulatedDisk>, context: &dyn Fn() -> String) -> Option<Store> {
        let store = match open(disk) {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.store => return None,
            other => other.unwrap_or_else(|error| panic!("{}: the store does not open: {error}", context())),
        };
        let (refs, bad) = store.refs().unwrap();
        assert!(bad.is_empty(), "{}: {bad:?}", context());
        let found: BTreeSet<String> = refs.into_iter().map(|found| found.id).collect();
        assert!(self.present.is_subset(&found), "{}: lost {:?}", context(), self.present.difference(&found));
        assert!(self.absent.is_disjoint(&found), "{}: came back {:?}", context(), self.absent.intersection(&found));
        for id in &found {
            match restore(&store, id) {
                Ok(files) => assert_eq!(files, content(id), "{}: {id} has other bytes", context()),
                Err(error) => panic!("{}: {id}: {error}", context()),
            }
        }
        Some(store)
    }

    /// One of some states is worked with, all are looked at.
    fn is_right(&self, number: u64, disk: &Arc<SimulatedDisk>, context: &dyn Fn() -> String) {
        if number.is_multiple_of(thinning() as u64) { self.goes_on(disk, context) } else { drop(self.holds(disk, context)) }
    }

    /// As `holds`, and the store can be worked with: capture, prune, capture.
    fn goes_on(&self, disk: &Arc<SimulatedDisk>, context: &dyn Fn() -> String) {
        self.holds(disk, context);
        let work = || -> Result<()> {
            let store = open_or_create(disk)?;
            put(&store, "next")?;
            prune(&store)?;
            assert!(disk.names(&Path::new(ROOT).join("tmp"))?.is_empty(), "{}", context());
            Ok(())
        };
        work().unwrap_or_else(|error| panic!("{}: {error}", context()));
        Self { store: true, ..self.clone() }.has("next").holds(disk, context);
    }
}

/// A disk with a store that has these refs.
fn with_refs(ids: &[&str]) -> (Arc<SimulatedDisk>, Store) {
    let disk = SimulatedDisk::new();
    let store = open_or_create(&disk).unwrap();
    for id in ids {
        put(&store, id).unwrap();
    }
    (disk, store)
}

/// The disk at every step of an operation that succeeds.
fn steps(disk: &Arc<SimulatedDisk>, work: impl FnOnce() -> Result<()>) -> Vec<Shot> {
    disk.record();
    work().unwrap();
    disk.recorded()
}

/// An operation on a store with the refs `a` to `d`, of which `b` and `d` are removed.
struct Operation {
    name: &'static str,
    run: fn(&Store) -> Result<()>,
    after: fn(Expected) -> Expected,
}

const OPERATIONS: [Operation; 3] = [
    Operation { name: "capture", run: |store| put(store, "e"), after: |expected| expected.has("e") },
    Operation { name: "removal", run: |store| store.remove_ref("c"), after: |expected| expected.lacks("c") },
    Operation { name: "prune", run: |store| prune(store).map(drop), after: |expected| expected },
];

/// What the operations start from: always the same disk, so that equal states are known as such.
fn start() -> (Arc<SimulatedDisk>, Store, Expected) {
    static START: OnceLock<Shot> = OnceLock::new();
    let shot = START.get_or_init(|| {
        let (disk, store) = with_refs(&["a", "b", "c", "d"]);
        store.remove_ref("b").unwrap();
        prune(&store).unwrap();
        store.remove_ref("d").unwrap();
        disk.shot()
    });
    let disk = shot.killed();
    let store = open(&disk).unwrap();
    (disk, store, Expected::with(&["a", "c"]).lacks("b").lacks("d"))
}

/// The numbers of the calls of an operation that are worth a fault each: of the very many listings of pack folders a few.
fn calls_of(run: impl FnOnce(&Store) -> Result<()>) -> Vec<u64> {
    let (disk, store, _) = start();
    disk.record();
    run(&store).unwrap();
    let mut listings = 0;
    let mut is_worth_it = |name: &String| {
        let listing = name.starts_with("list ") && name.contains("/packs/");
        listings += u64::from(listing);
        !listing || u64::is_multiple_of(listings, 16 * thinning() as u64)
    };
    disk.call_names().iter().enumerate().filter(|(_, name)| is_worth_it(name)).map(|(number, _)| number as u64).collect()
}

/// States that were looked at, and how many of them differed.
#[derive(Debug, Default)]
struct Explored {
    crashes: u64,
    different: u64,
    seen: HashSet<[u8; 32]>,
    random: usize,
    seed: u64,
}

impl Explored {
    fn new(random: usize) -> Self {
        Self { random, ..Self::default() }
    }

    /// Every disk that a loss of power may leave at these moments, each different one once.
    fn each(&mut self, shots: &[Shot], mut look: impl FnMut(u64, &Arc<SimulatedDisk>, &Shot, &dyn Fn() -> String)) {
        for (at, shot) in shots.iter().enumerate() {
            for model in Model::ALL {
                self.seed += 1;
                for (outcome, (digest, disk)) in shot.crashed(model, self.random, self.seed).into_iter().enumerate() {
                    self.crashes += 1;
                    let key = blake3::Hasher::new().update(&digest).update(&(shot.mark as u64).to_le_bytes()).finalize();
                    if self.seen.insert(*key.as_bytes()) {
                        self.different += 1;
                        look(self.different, &disk, shot, &|| {
                            format!("{model:?}, step {at} of {}, after {}, outcome {outcome}", shots.len(), shot.after)
                        });
                    }
                }
            }
        }
    }

    fn tell(&self, what: &str) {
        println!("{what}: {} crash states, {} different", self.crashes, self.different);
    }
}
