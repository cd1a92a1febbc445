//! kill -9 at each step of a rewind and of a redo, full disks, and a person who goes on working.

use super::rewinding::{before, begin, end, rewind, turn};
use super::*;
use crate::ErrorKind;

const BEFORE: &[&str] =
    &["journal-written", "cluster-prepared", "prepared", "stopping", "safety-captured", "rewind-planned", "rewind-staged"];
const AFTER: &[&str] = &["selected", "files-installed", "rewind-recorded", "installed", "journal-removed", "cleaned"];

#[test]
fn child_rewind() {
    if let Some(project) = inherited() {
        rewind(&project, before("s", "1")).unwrap();
    }
}

#[test]
fn child_redo() {
    if let Some(project) = inherited() {
        project.redo(RedoOptions::default(), &Control::silent()).unwrap();
    }
}

fn killed(machine: &Machine, child: &str, step: &str) {
    let status = machine.killed_at(&format!("rewind_crashing::{child}"), step);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{child} {step}: {status}");
}

fn rewound(project: &Project) -> usize {
    project.timeline().unwrap().0.turns("s").iter().filter(|turn| turn.rewound.is_some()).count()
}

#[test]
fn killed_anywhere_it_is_wholly_done_or_not_at_all() {
    for (place, step) in BEFORE.iter().chain(AFTER).enumerate() {
        let (machine, project) = Machine::with_project();
        let work = machine.work();
        let start = tree(&work);
        turn(&project, "s", "1", edit);
        let edited = tree(&work);
        let refs = project.log().unwrap().0.len();
        for (child, [old, new]) in [("child_rewind", [&edited, &start]), ("child_redo", [&start, &edited])] {
            killed(&machine, child, step);
            let done = place >= BEFORE.len();
            if !matches!(*step, "journal-removed" | "cleaned") {
                let error = project.plan_rewind(before("s", "1"), &Control::silent()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RecoveryNeeded, "{step}");
            }
            project.recover(&Control::silent()).unwrap();
            assert_eq!(&tree(&work), if done { new } else { old }, "{child} {step}");
            assert_eq!(project.status(&Control::silent()).unwrap().pending, None);
            assert_eq!(rewound(&project), usize::from((child == "child_rewind") == done), "{child} {step}");
            if !done {
                assert_eq!(project.log().unwrap().0.len(), refs, "{child} {step}: no checkpoint is left of what was not done");
                // What was rolled back can be done.
                if child == "child_redo" {
                    continue;
                }
                rewind(&project, before("s", "1")).unwrap();
                assert_eq!(&tree(&work), new, "{child} {step}");
                let undone = project.redo(RedoOptions::default(), &Control::silent()).unwrap();
                assert!(undone.undoes.is_some());
                rewind(&project, before("s", "1")).unwrap();
                break;
            }
        }
    }
}

#[test]
fn a_recovery_may_be_killed_too() {
    for (step, again) in [
        ("rewind-staged", "rollback-started"),
        ("rewind-staged", "rollback-safety-removed"),
        ("rewind-staged", "rollback-rewind-removed"),
        ("selected", "files-installed"),
        ("files-installed", "rewind-recorded"),
        ("rewind-recorded", "installed"),
    ] {
        let (machine, project) = Machine::with_project();
        let start = tree(&machine.work());
        turn(&project, "s", "1", edit);
        let edited = tree(&machine.work());
        killed(&machine, "child_rewind", step);
        let status = machine.killed_at("crashing::child_recover", again);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{step} {again}: {status}");
        project.recover(&Control::silent()).unwrap();
        let done = step != "rewind-staged";
        assert_eq!(tree(&machine.work()), if done { start } else { edited }, "{step} {again}");
        assert_eq!(project.timeline().unwrap().0.rewinds().count(), usize::from(done), "{step} {again}: recorded once");
    }
}

#[test]
fn an_edit_made_between_crash_and_recovery_stays_where_it_is() {
    let (machine, project) = Machine::with_project();
    turn(&project, "s", "1", edit);
    killed(&machine, "child_rewind", "selected");
    write(&machine.work().join("app.py"), "by hand\n");
    let report = project.recover(&Control::silent()).unwrap();
    assert_eq!(read(&machine.work().join("app.py")), "by hand\n");
    assert_eq!(read(&machine.work().join("lib/util.py")), "one\n");
    assert!(report.warnings.iter().any(|warning| warning.contains("app.py") && warning.contains("kept")), "{:?}", report.warnings);
}

#[test]
fn a_full_disk_in_any_step_leaves_all_or_nothing_done() {
    let machine = Machine::new();
    let mount = format!("mount -t tmpfs -o size=6m tmpfs {}", machine.path("").display());
    super::faults::in_namespace(&machine, "rewind_crashing::child_on_a_full_disk", &mount);
}

#[test]
fn child_on_a_full_disk() {
    let Some(machine) = super::faults::here() else { return };
    let (machine, project) = machine.with_bound_worktree();
    let work = machine.work();
    let mut failed = 0;
    for pages in 0..40 {
        write(&work.join("large"), &super::faults::noise(1));
        let first = tree(&work);
        let name = format!("t{pages}");
        turn(&project, "s", &name, |work| write(&work.join("large"), &super::faults::noise(100 + pages)));
        let edited = tree(&work);
        let filler = super::faults::Filler::leaving(&machine.path("filler"), pages * 3);
        let result = rewind(&project, before("s", &name));
        drop(filler);
        match result.map_err(|error| (error.kind(), error)) {
            Ok(_) => assert_eq!(tree(&work), first, "{pages}"),
            Err((ErrorKind::RecoveryNeeded, _)) => {
                let outcome = project.recover(&Control::silent()).unwrap().outcome;
                assert_eq!(&tree(&work), if outcome == RecoverOutcome::Finished { &first } else { &edited }, "{pages}");
            }
            Err((kind, error)) => {
                failed += 1;
                assert_eq!((kind, tree(&work)), (ErrorKind::NoSpace, edited), "{pages}: {error}");
            }
        }
        assert_eq!(project.status(&Control::silent()).unwrap().pending, None);
        forget_all(&project);
    }
    assert!(failed > 3, "{failed} failed");
    println!("DONE");
}

/// Frees the small disk.
fn forget_all(project: &Project) {
    for info in project.log().unwrap().0 {
        project.store.remove_ref(&info.id).unwrap();
    }
    project.store.prune(&crate::store::PruneOptions::default(), &Control::silent()).unwrap();
}

/// A generator of numbers that a failure can be repeated with.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Rounds: a few in every run, 10,000 where asked for.
fn rounds() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "a test run says how long it may take")]
    let asked = std::env::var("FORKLIFT_TORTURE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.unwrap_or(25)
}

/// One edit of a person: adds a line of its own to one of the files, in one of the ways of editors.
fn edit_by_hand(work: &Path, dice: &mut Dice, line: &str) {
    use std::io::Write;
    let path = work.join(format!("f{}", dice.roll(6)));
    match dice.roll(3) {
        0 => {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        1 => {
            let text = crate::sys::fs::read_optional(&path).unwrap().unwrap_or_default();
            let beside = work.join("f.tmp");
            std::fs::File::create(&beside).unwrap().write_all(&[&text, line.as_bytes()].concat()).unwrap();
            rustix::fs::rename(&beside, &path).unwrap();
        }
        _ => {
            let mut file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
    }
}

#[test]
fn no_edit_is_lost_while_turns_and_rewinds_run() {
    let mut left = rounds();
    let mut outcomes = [0; 3];
    while left > 0 {
        let now = left.min(100);
        let found = write_turn_and_rewind(now, left);
        outcomes = std::array::from_fn(|at| outcomes[at] + found[at]);
        left -= now;
    }
    println!("rewound {}, refused {}, redone {}", outcomes[0], outcomes[1], outcomes[2]);
}

/// Rounds in one project while a person writes in it; how many were done, refused and taken back.
fn write_turn_and_rewind(rounds: u64, seed: u64) -> [u64; 3] {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (machine, project) = Machine::with_project();
    let work = machine.work();
    let over = AtomicBool::new(false);
    let (written, seen) = std::thread::scope(|threads| {
        let person = threads.spawn(|| {
            let (mut dice, mut written) = (Dice(seed + 7), 0_u64);
            while !over.load(Ordering::Relaxed) {
                written += 1;
                // A line is looked for by itself, so a later edit of the same person must not take it away: only additions.
                edit_by_hand(&work, &mut dice, &format!("person {written}.\n"));
                std::thread::sleep(std::time::Duration::from_micros(dice.roll(4000)));
            }
            written
        });
        let mut dice = Dice(seed);
        let mut outcomes = [0_u64; 3];
        for round in 0..rounds {
            let name = round.to_string();
            begin(&project, "s", &name);
            for _ in 0..=dice.roll(2) {
                write(&work.join(format!("g{}", dice.roll(4))), &format!("agent {round}\n"));
            }
            end(&project, "s", &name);
            let options = RewindOptions { keep_edited: dice.roll(2) == 0, ..before("s", &round.saturating_sub(dice.roll(3)).to_string()) };
            match rewind(&project, options) {
                Ok(_) => outcomes[0] += 1,
                Err(error) if error.kind() == ErrorKind::Edited => outcomes[1] += 1,
                Err(error) => panic!("round {round}: {error}"),
            }
            if dice.roll(3) == 0 && project.redo(RedoOptions { keep_edited: true, ..RedoOptions::default() }, &Control::silent()).is_ok() {
                outcomes[2] += 1;
            }
        }
        over.store(true, Ordering::Relaxed);
        (person.join().unwrap(), outcomes)
    });
    assert!(seen[0] > 0 && written > 0, "{seen:?} {written}");
    let everywhere = everywhere(&project);
    let lost: Vec<u64> = (1..=written).filter(|number| !everywhere.contains(&format!("person {number}."))).collect();
    assert_eq!(lost, [] as [u64; 0], "of {written}; {seen:?}");
    let beside: Vec<_> = tree(&work).into_keys().filter(|path| path.to_string_lossy().contains(".forklift-")).collect();
    assert_eq!(beside, [] as [PathBuf; 0]);
    seen
}

/// Every line on disk, in what was kept, and in the checkpoints.
fn everywhere(project: &Project) -> std::collections::HashSet<String> {
    let mut lines = std::collections::HashSet::new();
    let mut add = |content: &[u8]| lines.extend(String::from_utf8_lossy(content).lines().map(str::to_owned));
    let kept = project.folder.path().join("kept");
    for root in [project.root(), &kept] {
        if root.is_dir() {
            tree(root).into_values().for_each(|(_, content)| add(&content));
        }
    }
    let reader = project.store.reader(&Control::silent()).unwrap();
    for reference in project.refs().unwrap().0 {
        for entry in reader.manifest(&reference.files.unwrap().root).unwrap() {
            if let crate::store::EntryKind::File { chunks, .. } = entry.unwrap().kind {
                let mut content = Vec::new();
                reader.copy(&chunks, &mut content).unwrap();
                add(&content);
            }
        }
    }
    lines
}
