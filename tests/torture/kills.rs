//! Several processes on one store, killed at any time: captures beside prunes, repairs, verifies and restores.

use std::time::Duration;

use forklift::store::Store;

use crate::children::{Worker, worker};
use crate::model::{Model, Right};
use crate::operations;
use crate::run::{Context, Stop, showing};
use crate::tally::{Failure, Tally};

/// What the processes of a round do.
const ROLES: [&str; 5] =
    ["capture,capture,capture,large,remove", "capture,remove", "prune,remove", "restore,verify,restore", "repair,prune,verify"];

/// Rounds in which captures store the same chunks at once and prunes die while they rewrite.
const BESIDE_CAPTURES: [&str; 3] = ["prune,prune,remove", "capture,capture,remove", "prune,remove,remove"];

pub fn run(context: &Context, tally: &mut Tally) -> Result<(), Stop> {
    let mut random = context.random("kills");
    let path = context.work.join("store");
    let mut model = Model::default();
    let mut round = 0;
    while round < 3 || context.goes_on() {
        round += 1;
        let others = [&ROLES[..], &BESIDE_CAPTURES[..]][random.below(2)];
        let count = 2 + random.below(3);
        let first = random.below(others.len());
        let mut workers: Vec<Worker> = (0..count)
            .map(|at| {
                let role = if at == 0 { ROLES[random.below(2)] } else { others[(first + at) % others.len()] };
                Worker::start(worker(&path, random.next(), role), &context.work)
            })
            .collect();
        // The first captures; the last has begun something or waits for a lock.
        workers[0].wait_for(if random.chance(2) { "ACK" } else { "BEGIN" }, Duration::from_secs(20));
        workers[count - 1].wait_for("BEGIN", Duration::from_secs(1));
        let most = [3_000, 50_000, 300_000][random.below(3)];
        let mut ended = Vec::new();
        while !workers.is_empty() {
            std::thread::sleep(Duration::from_micros(random.below(most) as u64));
            ended.push(workers.swap_remove(random.below(workers.len())).end());
            tally.add("kills", 1);
        }
        let learned = model.learn(&ended, Right::None).map_err(|failure| failure.at(format!("round {round}")));
        let done = showing(learned, &path)?;
        tally.add("operations acknowledged before kills", done.values().sum());
        showing(model.check(&path).map_err(|failure| failure.at(format!("round {round}"))), &path)?;
    }
    // No lock is left over, and nothing half done.
    let store = Store::open(&path).map_err(Stop::broken)?;
    let last = operations::prune(&store, &mut random).map_err(|error| Failure::new(format!("the last prune: {error}")));
    showing(last, &path)?;
    showing(model.check(&path), &path)
}
