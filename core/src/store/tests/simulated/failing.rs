//! Every call of every operation fails once, or fails from then on: the operation fails cleanly and the next attempt works.

use super::*;

/// Runs each operation with its Nth call failing, for every N of `step`.
fn fail_each_call(errno: i32, from_then_on: bool, step: usize) -> (u64, u64) {
    let (mut injected, mut failed) = (0, 0);
    let mut explored = Explored::new(1);
    for operation in OPERATIONS {
        for at in calls_of(operation.run).into_iter().step_by(step) {
            injected += 1;
            failed +=
                u64::from(fail_at(&operation, Faults { fail_at: Some((at, errno)), from_then_on, ..Faults::default() }, &mut explored));
        }
    }
    (injected, failed)
}

/// Whether it failed.
fn fail_at(operation: &Operation, faults: Faults, explored: &mut Explored) -> bool {
    let (disk, store, before) = start();
    let context = || format!("{} with {faults:?}", operation.name);
    disk.suffer(faults.clone());
    let result = (operation.run)(&store);
    disk.suffer(Faults::default());
    let unsure = before.clone().unsure("c").unsure("e");
    let found = unsure.holds(&disk, &context).unwrap();
    let refs: Vec<String> = found.refs().unwrap().0.into_iter().map(|found| found.id).collect();
    match &result {
        // A fault that did not matter, as one while giving up a pack that is there already.
        Ok(()) => {
            (operation.after)(before.clone()).holds(&disk, &context);
        }
        Err(error) => {
            assert!(error.os().is_some() || error.kind() == ErrorKind::Corrupt, "{}: {error}", context());
            assert!(error.message().contains("/disk"), "{}: {error} names no path", context());
            if operation.name == "capture" && !faults.from_then_on {
                assert!(!refs.contains(&"e".to_owned()), "{}: there is a ref", context());
                let left = disk.names(&Path::new(ROOT).join("tmp")).unwrap();
                assert!(left.is_empty(), "{}: {left:?} was left", context());
            }
        }
    }
    // What a failed sync dropped must not be relied on by what follows.
    let again = (operation.run)(&store);
    if let Err(error) = &again {
        let done = matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound);
        assert!(done && (operation.name == "removal" || refs.contains(&"e".to_owned())), "{}, again: {error}", context());
    }
    let expected = if again.is_ok() { (operation.after)(before) } else { unsure };
    explored.each(&[disk.shot()], |number, disk, _, crash| expected.is_right(number, disk, &|| format!("{}: {}", context(), crash())));
    result.is_err()
}

#[test]
fn every_call_fails_once() {
    let mut told = Vec::new();
    for (name, errno, step) in
        [("EIO", libc::EIO, 1), ("ENOSPC", libc::ENOSPC, 3), ("EINTR", libc::EINTR, 11), ("EMFILE", libc::EMFILE, 13)]
    {
        let (injected, failed) = fail_each_call(errno, false, step);
        told.push(format!("{name} {injected} ({failed} failed)"));
        assert!(failed > 0);
    }
    println!("calls that fail once: {}", told.join(", "));
}

#[test]
fn every_call_fails_from_one_on() {
    let (injected, failed) = fail_each_call(libc::EIO, true, thinning() / 2 + 1);
    println!("calls that fail from one on: {injected} ({failed} failed)");
    // Whatever comes first fails, but for what is done when the outcome is certain.
    assert!(failed * 10 > injected * 9, "{failed} of {injected}");
}

/// Bytes are exact though every read and write is cut short or interrupted.
#[test]
fn short_and_interrupted_reads_and_writes() {
    for (short, interrupted) in [(Some(1), false), (Some(7), true), (None, true), (Some(4096), true)] {
        let (disk, store, before) = start();
        disk.suffer(Faults { short, interrupted, ..Faults::default() });
        let mut expected = before;
        for operation in OPERATIONS {
            (operation.run)(&store).unwrap();
            expected = (operation.after)(expected);
        }
        expected.holds(&disk, &|| format!("{short:?} {interrupted}"));
        disk.suffer(Faults::default());
        expected.goes_on(&disk, &|| format!("{short:?} {interrupted}"));
    }
}

/// A creation that fails in any call can be made again.
#[test]
fn creation_fails_in_any_call() {
    let disk = SimulatedDisk::new();
    disk.suffer(Faults::default());
    open_or_create(&disk).unwrap();
    let calls = disk.calls();
    let mut failed = 0;
    for at in (0..calls).filter(|at| *at < 20 || *at + 40 > calls || at % (17 * thinning() as u64) == 0) {
        let disk = SimulatedDisk::new();
        disk.suffer(Faults { fail_at: Some((at, libc::EIO)), ..Faults::default() });
        failed += u64::from(open_or_create(&disk).is_err());
        disk.suffer(Faults::default());
        let store = open_or_create(&disk).unwrap_or_else(|error| panic!("call {at}: {error}"));
        put(&store, "a").unwrap();
        Expected::with(&["a"]).holds(&disk, &|| format!("call {at}"));
    }
    assert!(failed > 50, "{failed}");
}
