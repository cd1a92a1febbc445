//! One process does all of its work between two calls of another; then power is lost at any step of either.

use std::sync::Mutex;

use super::*;

/// The second of two at once: it uses another id for its capture.
const OTHERS: [Operation; 3] = [
    Operation { name: "capture", run: |store| put(store, "f"), after: |expected| expected.has("f") },
    Operation { name: "removal", run: |store| store.remove_ref("a"), after: |expected| expected.lacks("a") },
    Operation { name: "prune", run: |store| prune(store).map(drop), after: |expected| expected },
];

/// Whether the error says that the other process has to be waited for, or has done it first.
fn gave_way(error: &crate::Error) -> bool {
    error.kind() == ErrorKind::Busy
}

#[test]
fn all_of_another_operation_between_two_calls() {
    let mut explored = Explored::new(if is_short() { 0 } else { 2 });
    let (mut pairs, mut both) = (0, 0);
    for first in OPERATIONS {
        for second in OTHERS {
            let calls = calls_of(first.run);
            let most = if is_short() { 12 } else { usize::MAX };
            for at in calls.iter().copied().step_by(calls.len().div_ceil(most)) {
                pairs += 1;
                both += u64::from(interleaved(&first, &second, at, &mut explored));
            }
        }
    }
    println!("between two calls: {pairs} pairs of operations, {both} of them both done");
    explored.tell("between two calls");
    assert!(both * 3 > pairs);
}

/// Whether both were done.
fn interleaved(first: &Operation, second: &Operation, at: u64, explored: &mut Explored) -> bool {
    let (disk, store, before) = start();
    let other = open(&disk).unwrap();
    // The expectations by mark: none done, only the second, and how it ended.
    let unsure = before.clone().unsure("a").unsure("c").unsure("e").unsure("f");
    let ended: Arc<Mutex<Option<Result<()>>>> = Arc::default();
    disk.suffer(Faults::default());
    let (told, run, marked) = (Arc::clone(&ended), second.run, Arc::clone(&disk));
    disk.before_call(at, move || {
        let result = run(&other);
        marked.mark(1);
        *told.lock().unwrap() = Some(result);
    });
    disk.record();
    let result = (first.run)(&store);
    let shots = disk.recorded();
    let ended = ended.lock().unwrap().take();
    let done = matches!(ended, Some(Ok(())));
    let context = || format!("{} in call {at} of {}", second.name, first.name);
    for error in result.as_ref().err().into_iter().chain(ended.as_ref().and_then(|ended| ended.as_ref().err())) {
        assert!(gave_way(error), "{}: {error}", context());
    }
    let second_done = if done { (second.after)(unsure.clone()) } else { unsure.clone() };
    let some: Vec<Shot> = shots.iter().step_by(thinning()).cloned().collect();
    explored.each(&some, |_, disk, shot, crash| {
        let expected = if shot.mark == 1 { &second_done } else { &unsure };
        expected.holds(disk, &|| format!("{}: {}", context(), crash()));
    });
    let mut expected = if done { (second.after)(before) } else { before.unsure("f").unsure("a") };
    expected = if result.is_ok() { (first.after)(expected) } else { expected };
    let mut last = shots.last().unwrap().clone();
    last.mark = 2;
    explored.each(&[last], |number, disk, _, crash| expected.is_right(number, disk, &|| format!("{}: {}", context(), crash())));
    result.is_ok() && done
}
