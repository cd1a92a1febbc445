//! Random sequences of operations, kills, losses of power and faults against a model that is a set of ids.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;

/// One step; the numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Capture(u8),
    Remove(u8),
    Prune,
    Reopen,
    /// Power is lost at one of the steps of this operation.
    Crash(Box<Step>, u16, u8, u64),
    /// All processes die at one of the steps of this operation.
    Kill(Box<Step>, u16),
    /// One call of this operation fails.
    Fail(Box<Step>, u16, bool),
}

fn operations() -> impl Strategy<Value = Step> {
    prop_oneof![5 => any::<u8>().prop_map(Step::Capture), 3 => any::<u8>().prop_map(Step::Remove), 2 => Just(Step::Prune)]
}

fn sequences() -> impl Strategy<Value = Vec<Step>> {
    let boxed = || operations().prop_map(Box::new);
    let step = prop_oneof![
        6 => operations(),
        1 => Just(Step::Reopen),
        3 => (boxed(), any::<u16>(), 0..3_u8, any::<u64>()).prop_map(|(step, at, model, seed)| Step::Crash(step, at, model, seed)),
        2 => (boxed(), any::<u16>()).prop_map(|(step, at)| Step::Kill(step, at)),
        2 => (boxed(), any::<u16>(), any::<bool>()).prop_map(|(step, at, full)| Step::Fail(step, at, full)),
    ];
    proptest::collection::vec(step, 1..14)
}

/// An operation, as often as it is wanted.
type Call = Box<dyn Fn(&Store) -> Result<()>>;

struct World {
    disk: Arc<SimulatedDisk>,
    store: Store,
    expected: Expected,
}

impl World {
    fn new() -> Self {
        let disk = SimulatedDisk::new();
        let store = open_or_create(&disk).unwrap();
        Self { disk, store, expected: Expected::with(&[]) }
    }

    /// The operation as a call, the id that it concerns, and what is expected once it was acknowledged.
    fn plan(&self, step: &Step) -> (Call, Option<String>, Expected) {
        let expected = self.expected.clone();
        match step {
            Step::Capture(number) => {
                let id = format!("r{:02}", number % 24);
                if expected.present.contains(&id) {
                    return (Box::new(|_| Ok(())), None, expected);
                }
                let (name, expected) = (id.clone(), expected.has(&id));
                (Box::new(move |store| put(store, &name)), Some(id), expected)
            }
            Step::Remove(number) => match expected.present.iter().nth(usize::from(*number) % expected.present.len().max(1)).cloned() {
                None => (Box::new(|_| Ok(())), None, expected),
                Some(id) => {
                    let (name, expected) = (id.clone(), expected.lacks(&id));
                    (Box::new(move |store| store.remove_ref(&name)), Some(id), expected)
                }
            },
            _ => (Box::new(|store| prune(store).map(drop)), None, expected),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Capture(_) | Step::Remove(_) | Step::Prune => {
                let (run, _, after) = self.plan(step);
                run(&self.store).unwrap();
                self.expected = after;
            }
            Step::Reopen => self.store = open(&self.disk).unwrap(),
            Step::Crash(inner, at, model, seed) => {
                let shot = self.interrupted(inner, *at);
                let mut outcomes = shot.crashed(Model::ALL[usize::from(*model)], 2, *seed);
                let outcome = Random(*seed).below(outcomes.len());
                self.settle(outcomes.swap_remove(outcome).1);
            }
            Step::Kill(inner, at) => {
                let shot = self.interrupted(inner, *at);
                self.settle(shot.killed());
            }
            Step::Fail(inner, at, full) => {
                let (run, id, after) = self.plan(inner);
                self.disk.suffer(Faults::default());
                // How many calls it makes is known from a copy of the disk.
                let copy = self.disk.shot().killed();
                run(&open(&copy).unwrap()).unwrap();
                let at = u64::from(*at) % copy.calls().max(1);
                let errno = if *full { libc::ENOSPC } else { libc::EIO };
                self.disk.suffer(Faults { fail_at: Some((at, errno)), ..Faults::default() });
                let result = run(&self.store);
                self.disk.suffer(Faults::default());
                match (result, id) {
                    (Ok(()), _) => self.expected = after,
                    (Err(_), Some(id)) => {
                        self.expected = self.expected.clone().unsure(&id);
                        let there = open(&self.disk).unwrap().find_ref(&id).is_ok();
                        assert!(!there || !matches!(**inner, Step::Capture(_)), "a capture failed and there is a ref");
                        self.settle(self.disk.shot().killed());
                    }
                    (Err(_), None) => {}
                }
            }
        }
        self.expected.holds(&self.disk, &|| format!("{step:?}"));
    }

    /// The disk somewhere in the operation, which nobody acknowledged.
    fn interrupted(&mut self, step: &Step, at: u16) -> Shot {
        let (run, id, after) = self.plan(step);
        self.disk.record();
        run(&self.store).unwrap();
        let mut shots = self.disk.recorded();
        let at = usize::from(at) % shots.len();
        match id {
            // At the end it was acknowledged.
            _ if at + 1 == shots.len() => self.expected = after,
            Some(id) => self.expected = self.expected.clone().unsure(&id),
            None => {}
        }
        shots.swap_remove(at)
    }

    /// What is there after an interruption is what is expected from now on, once it is durable.
    fn settle(&mut self, disk: Arc<SimulatedDisk>) {
        self.disk = disk;
        self.store = open(&self.disk).unwrap();
        self.expected.holds(&self.disk, &|| "after an interruption".to_owned());
        self.disk.sync_names(&Path::new(ROOT).join("refs")).unwrap();
        for found in self.store.refs().unwrap().0 {
            if !self.expected.present.contains(&found.id) {
                // Nobody acknowledged it, so nobody relies on it.
                self.store.remove_ref(&found.id).unwrap();
            }
        }
        for number in 0..24 {
            let id = format!("r{number:02}");
            if !self.expected.present.contains(&id) {
                self.expected.absent.insert(id);
            }
        }
    }
}

/// Sequences of one seed.
const CASES: u32 = 40;

#[test]
fn random_sequences() {
    // The seeds are always the same, so that a failure is found again; a long run takes more of them.
    let (begun, mut seed) = (Instant::now(), 0);
    let steps = AtomicU64::new(0);
    while seed == 0 || begun.elapsed() < torture() {
        seed += 1;
        let generator = TestRng::from_seed(RngAlgorithm::ChaCha, blake3::hash(&u64::to_le_bytes(seed)).as_bytes());
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let run = TestRunner::new_with_rng(config, generator).run(&sequences(), |sequence| {
            let mut world = World::new();
            for step in &sequence {
                world.step(step);
                steps.fetch_add(1, Ordering::Relaxed);
            }
            world.expected.goes_on(&world.disk, &|| "the end".to_owned());
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    println!("random sequences: {}, steps: {}", seed * u64::from(CASES), steps.into_inner());
}
