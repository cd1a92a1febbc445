//! kill -9 at every step, torn and lost logs.

use super::*;
use crate::timeline::FACT;

#[test]
fn child_begin() {
    if let Some(project) = inherited() {
        begin(&project, "a", "1", "call");
    }
}

#[test]
fn child_end() {
    if let Some(project) = inherited() {
        end(&project, "a", "1", "call");
    }
}

const STEPS: &[&str] = &["turn-paired", "turn-published", "turn-logged"];

fn killed(machine: &Machine, test: &str, step: &str) {
    let status = machine.killed_at(test, step);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{step}: {status}");
}

#[test]
fn a_begin_that_was_killed_is_there_wholly_or_not_at_all() {
    for step in STEPS {
        let (machine, project) = Machine::with_project();
        killed(&machine, "turns::broken_off::child_begin", step);
        // Told again, as by a host that was not answered.
        let again = begin(&project, "a", "1", "call");
        assert_eq!(again.repeated, *step != "turn-paired", "{step}");
        edit(&machine.work());
        end(&project, "a", "1", "call");
        assert_eq!(changed(&project, "a", "1").len(), 4, "{step}");
        assert_eq!(windows(&project).len(), 1, "{step}");
        assert_eq!(refs(&project).len(), 2, "{step}");
    }
}

#[test]
fn an_end_that_was_killed_is_there_wholly_or_not_at_all() {
    for step in STEPS {
        let (machine, project) = Machine::with_project();
        begin(&project, "a", "1", "call");
        edit(&machine.work());
        killed(&machine, "turns::broken_off::child_end", step);
        let again = end(&project, "a", "1", "call");
        assert_eq!(again.repeated, *step != "turn-paired", "{step}");
        assert_eq!(changed(&project, "a", "1").len(), 4, "{step}");
        assert_eq!(refs(&project).len(), 2, "{step}");
        assert_eq!(windows(&project)[0].state, WindowState::Ended);
    }
}

/// Some turns, changed and unchanged, an edit, and the bytes of their log.
fn lived(machine: &Machine, project: &Project) -> Vec<u8> {
    turn(project, "a", "1", || write(&machine.work().join("x"), "1"));
    turn(project, "a", "2", || {});
    project.edited(&[machine.work().join("app.py")], "human", &Control::silent()).unwrap();
    write(&machine.work().join("app.py"), "by hand\n");
    turn(project, "b", "1", || write(&machine.work().join("x"), "2"));
    crate::sys::fs::read(&log_file(project)).unwrap()
}

#[test]
fn a_turn_after_a_torn_tail_goes_on_from_what_the_refs_have() {
    let (machine, project) = Machine::with_project();
    let whole = lived(&machine, &project);
    // A log that ends with a whole record is not torn.
    let torn = |cut: &usize| *cut == 0 || whole[cut - 1] != b'\n';
    for cut in (0..whole.len()).step_by(97).chain([whole.len() - 1]).filter(torn) {
        std::io::Write::write_all(&mut std::fs::File::create(log_file(&project)).unwrap(), &whole[..cut]).unwrap();
        let begun = begin(&project, "c", "1", "");
        assert!(begun.warnings.iter().any(|warning| warning.contains("mended")), "{cut}: {:?}", begun.warnings);
        let found = crate::sys::fs::read(&log_file(&project)).unwrap();
        assert!(found.starts_with(&whole), "{cut}");
    }
}

#[test]
fn a_log_that_is_gone_or_damaged_is_made_of_the_refs() {
    let (machine, project) = Machine::with_project();
    let whole = lived(&machine, &project);
    crate::sys::fs::remove_file(&log_file(&project)).unwrap();
    let report = project.rebuild_timeline(&Control::silent()).unwrap();
    assert_eq!((report.rebuilt.recovered, &*report.rebuilt.missing), (7, &[][..]));
    assert_eq!(crate::sys::fs::read(&log_file(&project)).unwrap(), whole);

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::io::Write::write_all(&mut std::fs::File::create(log_file(&project)).unwrap(), &damaged).unwrap();
    assert!(!project.timeline().unwrap().1.is_none(), "told, not mended, by who only looks");
    let ended = begin(&project, "c", "1", "");
    assert!(ended.warnings[0].contains("1 of its log were damaged"), "{:?}", ended.warnings);
    assert!(crate::sys::fs::read(&log_file(&project)).unwrap().starts_with(&whole));
}

#[test]
fn after_a_power_cut_the_records_of_newer_refs_come_back() {
    let (machine, project) = Machine::with_project();
    let whole = lived(&machine, &project);
    // The log ends cleanly before the last turn, in another boot.
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let boot = crate::sys::process::boot_id().unwrap();
    let mut log = Vec::new();
    for (at, line) in lines[..lines.len() - 1].iter().enumerate() {
        let body = crate::timeline::tests_body(line).replace(&boot, "another-boot");
        if at == 0 { log.extend_from_slice(line) } else { log.extend(crate::timeline::tests_line(&body).into_bytes()) }
    }
    std::io::Write::write_all(&mut std::fs::File::create(log_file(&project)).unwrap(), &log).unwrap();
    assert!(windows(&project).iter().any(Window::is_open));
    let begun = begin(&project, "c", "1", "");
    assert!(begun.warnings[0].contains("1 record came back"), "{:?}", begun.warnings);
    assert_eq!(changed(&project, "b", "1"), ["x"]);
}

#[test]
fn refs_of_before_a_rebuild_carry_everything_once() {
    let (machine, project) = Machine::with_project();
    lived(&machine, &project);
    let (found, _) = project.refs().unwrap();
    let mut numbers: Vec<u64> = found.iter().flat_map(crate::timeline::records_of).map(|record| record.n).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((count, numbers), (7, (1..=7).collect::<Vec<_>>()));
    assert!(found.iter().all(|reference| reference.facts.get(FACT).is_some()));
}
