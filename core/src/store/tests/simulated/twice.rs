//! Two things go wrong: power is lost again in what follows a loss, or processes are killed and then power is lost.

use super::*;

/// A second loss of power at every step of what follows the first: opening or making the store, a capture, a prune.
#[test]
fn power_is_lost_again_in_what_follows() {
    let mut explored = Explored::new(2);
    let mut inner = Explored::new(1);
    let stride = 6 * thinning() + 1;
    for operation in OPERATIONS {
        let (disk, store, before) = start();
        let shots = steps(&disk, || (operation.run)(&store));
        let mut number = 0;
        explored.each(&shots, |_, disk, _, context| {
            number += 1;
            if number % stride != 0 {
                return;
            }
            // What is on the disk now was there after a loss of power: it stays.
            let expected = before.clone().unsure("c").unsure("e");
            let follow = OPERATIONS[(number / stride) % 3].run;
            let shots = steps(disk, || {
                let store = open_or_create(disk)?;
                match follow(&store) {
                    Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::AlreadyExists => Ok(()),
                    other => other,
                }?;
                prune(&store).map(drop)
            });
            inner.each(&shots, |_, disk, _, second| {
                let both = || format!("{}: {}; then {}", operation.name, context(), second());
                expected.holds(disk, &both);
            });
            let last = inner_last(&shots);
            inner.each(&last, |_, disk, _, second| {
                expected.goes_on(disk, &|| format!("{}: {}; then {}", operation.name, context(), second()));
            });
        });
    }
    explored.tell("power lost once");
    inner.tell("power lost again");
}

fn inner_last(shots: &[Shot]) -> [Shot; 1] {
    let mut last = shots.last().unwrap().clone();
    last.mark += 1;
    [last]
}

/// All processes are killed at every step of one operation, which loses nothing; another one follows and is acknowledged;
/// then power is lost.
#[test]
fn killed_and_then_power_is_lost() {
    let mut explored = Explored::new(2);
    for first in OPERATIONS {
        let (disk, store, before) = start();
        let shots = steps(&disk, || (first.run)(&store));
        for (at, shot) in shots.iter().enumerate() {
            for second in OPERATIONS {
                let disk = shot.killed();
                let store = open(&disk).unwrap();
                let result = (second.run)(&store);
                // The first one may have done it already.
                if let Err(error) = &result {
                    let again = matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound);
                    assert!(again && first.name == second.name, "{}, step {at}, then {}: {error}", first.name, second.name);
                    continue;
                }
                let expected = (second.after)(before.clone().unsure("c").unsure("e"));
                let context = || format!("{} killed after {}, then {}", first.name, shot.after, second.name);
                explored.each(&[disk.shot()], |number, disk, _, crash| {
                    expected.is_right(number, disk, &|| format!("{}; {}", context(), crash()));
                });
            }
        }
    }
    explored.tell("killed, then power lost");
}

/// The same for the making of a store.
#[test]
fn a_killed_creation_is_finished_by_whoever_relies_on_it() {
    let disk = SimulatedDisk::new();
    let shots = steps(&disk, || open_or_create(&disk).map(drop));
    let mut explored = Explored::new(2);
    let tail = shots.len() - 12;
    for shot in shots.iter().take(tail).step_by(37).chain(&shots[tail..]) {
        let disk = shot.killed();
        put(&open_or_create(&disk).unwrap(), "a").unwrap();
        let expected = Expected::with(&["a"]);
        explored.each(&[disk.shot()], |_, disk, _, crash| {
            expected.goes_on(disk, &|| format!("creation killed after {}; {}", shot.after, crash()));
        });
    }
    explored.tell("creation killed, then power lost");
}
