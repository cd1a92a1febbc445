//! A loss of power at every step of a repair: nothing that could be read is lost, and the next repair ends where it would.

use super::*;
use crate::store::{RepairOptions, RepairReport};

fn repair(store: &Store) -> Result<RepairReport> {
    store.repair(&RepairOptions { attempts: 1, ..RepairOptions::default() }, &Control::silent())
}

/// All packs and index segments of the store.
fn files(disk: &SimulatedDisk, top: &str) -> Vec<PathBuf> {
    let top = Path::new(ROOT).join(top);
    let mut found = Vec::new();
    for name in disk.names(&top).unwrap() {
        let path = top.join(name);
        if disk.is_folder(&path).unwrap() {
            found.extend(disk.names(&path).unwrap().into_iter().map(|name| path.join(name)));
        } else {
            found.push(path);
        }
    }
    found
}

/// The files of checkpoints that can be read; each that can has the right bytes.
fn readable(disk: &Arc<SimulatedDisk>, context: &dyn Fn() -> String) -> BTreeSet<(String, String)> {
    let store = open(disk).unwrap();
    let reader = store.reader(&Control::silent()).unwrap();
    let (refs, bad) = store.refs().unwrap();
    assert!(bad.is_empty(), "{}: {bad:?}", context());
    let mut found = BTreeSet::new();
    for reference in refs {
        let Ok(manifest) = reader.manifest(&reference.files.unwrap().root) else { continue };
        for entry in manifest.map_while(Result::ok) {
            let path = String::from_utf8(entry.path).unwrap();
            if let EntryKind::File { chunks, .. } = entry.kind {
                let mut bytes = Vec::new();
                if reader.copy(&chunks, &mut bytes).is_ok() {
                    assert_eq!(bytes, content(&reference.id)[&path], "{}: {} {path}", context(), reference.id);
                    found.insert((reference.id.clone(), path));
                }
            }
        }
    }
    found
}

/// Flips a byte in one pack, cuts another, empties a third, and damages a segment.
fn damaged(which: usize) -> Arc<SimulatedDisk> {
    let disk = start().0.shot().killed();
    let packs = files(&disk, "packs");
    for (at, pack) in packs.iter().enumerate() {
        let mut bytes = disk.read(pack).unwrap();
        match (at + which) % 4 {
            0 => {
                let middle = bytes.len() / 3;
                bytes[middle] ^= 4;
            }
            1 => bytes.truncate(bytes.len() - 20),
            2 if which == 2 => bytes.clear(),
            _ => continue,
        }
        disk.damage(pack, bytes);
    }
    if let Some(segment) = files(&disk, "index").first().filter(|_| which > 0) {
        disk.damage(segment, b"rubbish".to_vec());
    }
    disk
}

#[test]
fn power_is_lost_at_any_step_of_a_repair() {
    let mut explored = Explored::new(if is_short() { 0 } else { 6 });
    let mut salvaged = 0;
    for which in 0..4 {
        let disk = damaged(which);
        let before = readable(&disk, &|| "before".to_owned());
        let shots = steps(&disk, || {
            salvaged += repair(&open(&disk)?)?.chunks_salvaged;
            Ok(())
        });
        let whole = readable(&disk, &|| "after".to_owned());
        assert!(whole.is_superset(&before), "{which}: a repair lost {:?}", before.difference(&whole));
        explored.each(&shots, |number, disk, _, crash| {
            let context = || format!("damage {which}: {}", crash());
            let left = readable(disk, &context);
            assert!(left.is_superset(&before), "{}: lost {:?}", context(), before.difference(&left));
            if number % (2 * thinning() as u64) == 0 {
                repair(&open(disk).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", context()));
                assert_eq!(readable(disk, &context), whole, "{}", context());
                put(&open(disk).unwrap(), "next").unwrap();
                assert_eq!(restore(&open(disk).unwrap(), "next").unwrap(), content("next"), "{}", context());
            }
        });
    }
    assert!(salvaged > 0);
    explored.tell("repair");
}

/// A repair that fails in any call has lost nothing, and the next one ends where the first would have.
#[test]
fn a_repair_fails_in_any_call() {
    let disk = damaged(1);
    let before = readable(&disk, &|| "before".to_owned());
    let shot = disk.shot();
    let store = open(&disk).unwrap();
    disk.record();
    repair(&store).unwrap();
    let names = disk.call_names();
    let whole = readable(&disk, &|| "after".to_owned());
    let (mut injected, mut failed) = (0, 0);
    for (at, name) in names.iter().enumerate() {
        if (name.contains("/packs/") && !name.contains(".pack") && at % 64 != 0) || at % thinning() != 0 {
            continue;
        }
        injected += 1;
        let context = || format!("call {at}, {name}, failed");
        let disk = shot.killed();
        let store = open(&disk).unwrap();
        disk.suffer(Faults { fail_at: Some((at as u64, [libc::EIO, libc::ENOSPC][at % 2])), ..Faults::default() });
        failed += u64::from(repair(&store).is_err());
        disk.suffer(Faults::default());
        assert!(readable(&disk, &context).is_superset(&before), "{}", context());
        repair(&store).unwrap_or_else(|error| panic!("{}: {error}", context()));
        assert_eq!(readable(&disk, &context), whole, "{}", context());
    }
    println!("calls of a repair that fail: {injected} ({failed} failed)");
    assert!(failed > 10, "{failed}");
}
