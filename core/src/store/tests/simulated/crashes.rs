//! A loss of power at every step of every operation, and once more in what follows.

use super::*;

/// All of it: during the operation, then after it, when it was acknowledged.
fn explore(what: &str, shots: &[Shot], during: &Expected, after: &Expected) {
    let mut explored = Explored::new(12 / thinning());
    explored.each(shots, |number, disk, _, context| during.is_right(number, disk, context));
    let mut last = shots.last().unwrap().clone();
    last.mark = 1;
    explored.each(&[last], |_, disk, _, context| after.goes_on(disk, context));
    explored.tell(what);
}

#[test]
fn creation() {
    let disk = SimulatedDisk::new();
    let shots = steps(&disk, || open_or_create(&disk).map(drop));
    // Of the many steps that make pack folders, some.
    let few = shots.len() - 25;
    let step = 16 * thinning() - 15;
    let shots: Vec<Shot> =
        shots.iter().enumerate().filter(|(at, _)| at % step == 0 || *at < 16 || *at > few).map(|(_, shot)| shot.clone()).collect();
    explore("creation", &shots, &Expected::default(), &Expected { store: true, ..Expected::default() });
}

#[test]
fn capture() {
    for (what, before) in [("first capture", &[][..]), ("capture", &["a", "b"][..])] {
        let (disk, store) = with_refs(before);
        let shots = steps(&disk, || put(&store, "c"));
        let during = Expected::with(before);
        explore(what, &shots, &during, &during.clone().has("c"));
    }
}

#[test]
fn capture_that_merges_segments() {
    let ids: Vec<String> = (0..16).map(|at| format!("r{at}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (disk, store) = with_refs(&ids);
    let shots = steps(&disk, || put(&store, "c"));
    let during = Expected::with(&ids);
    explore("capture that merges segments", &shots, &during, &during.clone().has("c"));
}

#[test]
fn removal_of_a_ref() {
    let (disk, store) = with_refs(&["a", "b"]);
    let shots = steps(&disk, || store.remove_ref("b"));
    let during = Expected::with(&["a"]);
    explore("removal", &shots, &during, &during.clone().lacks("b"));
}

#[test]
fn pruning() {
    let (disk, store) = with_refs(&["a", "b", "c", "d"]);
    store.remove_ref("b").unwrap();
    store.remove_ref("d").unwrap();
    let expected = Expected::with(&["a", "c"]).lacks("b").lacks("d");
    let shots = steps(&disk, || prune(&store).map(drop));
    explore("prune", &shots, &expected, &expected);
    // The next one empties the trash.
    store.remove_ref("c").unwrap();
    let expected = Expected::with(&["a"]).lacks("b").lacks("c").lacks("d");
    let shots = steps(&disk, || prune(&store).map(drop));
    explore("prune with trash", &shots, &expected, &expected);
}
