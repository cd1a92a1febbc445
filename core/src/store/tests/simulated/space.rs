//! A disk that is full after any number of bytes.

use super::*;

/// How much more fits: nothing, a name, one byte less and more than each piece that is written, and in between.
fn limits(shots: &[Shot], used: u64) -> Vec<u64> {
    let mut limits: BTreeSet<u64> = BTreeSet::from([0, 1, 63, 64, 65]);
    for shot in shots {
        let taken = shot.used().saturating_sub(used);
        limits.extend([taken.saturating_sub(1), taken, taken + 1]);
    }
    limits.into_iter().collect()
}

fn full_after_any_byte(full_at_sync: bool) {
    let (mut failed, mut succeeded) = (0, 0);
    let mut explored = Explored::new(1);
    for operation in OPERATIONS {
        let (disk, store, _) = start();
        let used = disk.used();
        let shots = steps(&disk, || (operation.run)(&store));
        for more in limits(&shots, used).into_iter().step_by(thinning() / 2 + 1) {
            let (disk, store, before) = start();
            disk.suffer(Faults { capacity: Some(disk.used() + more), full_at_sync, ..Faults::default() });
            let context = || format!("{} with {more} bytes free", operation.name);
            match (operation.run)(&store) {
                Ok(()) => {
                    succeeded += 1;
                    (operation.after)(before.clone()).holds(&disk, &context);
                }
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}: {error}", context());
                    assert!(error.hint_text().is_some() && error.message().contains("/disk"), "{error}");
                    before.clone().lacks("e").holds(&disk, &context);
                    if operation.name == "capture" {
                        assert!(disk.names(&Path::new(ROOT).join("tmp")).unwrap().is_empty(), "{}", context());
                    }
                    // The disk stays full, and a ref can still be removed.
                    store.remove_ref("c").unwrap_or_else(|error| panic!("{}, then removal: {error}", context()));
                    before.clone().lacks("c").holds(&disk, &context);
                }
            }
            disk.suffer(Faults::default());
            let expected = before.unsure("c").unsure("e");
            explored
                .each(&[disk.shot()], |number, disk, _, crash| expected.is_right(number, disk, &|| format!("{}: {}", context(), crash())));
        }
    }
    println!("full disks (noticed at sync: {full_at_sync}): {failed} failed, {succeeded} succeeded");
    assert!(failed > 5 && succeeded > 3);
}

#[test]
fn full_when_it_writes() {
    full_after_any_byte(false);
}

#[test]
fn full_when_it_syncs() {
    full_after_any_byte(true);
}
