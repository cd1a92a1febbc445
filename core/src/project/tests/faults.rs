//! Full and read-only file systems: real ones, in children with a mount namespace of their own.

use std::io::Write;

use super::*;
use crate::ErrorKind;

/// Runs one of the tests named `child_...` after a shell command in a namespace where we may mount.
pub(super) fn in_namespace(machine: &Machine, test: &str, shell: &str) {
    let possible = Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success());
    if !possible {
        println!("SKIPPED {test}: user and mount namespaces are not allowed here");
        return;
    }
    let child = machine.child(test);
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &format!("{shell} && exec \"$@\""), "sh"]).arg(child.get_program()).args(child.get_args());
    command.envs(machine.variables());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("DONE"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The machine of the process that started this one.
pub(super) fn here() -> Option<Machine> {
    parent().map(Machine::at)
}

#[test]
fn a_full_disk_in_any_step_leaves_the_old_pair_or_the_new_one() {
    let machine = Machine::new();
    in_namespace(&machine, "faults::child_on_a_full_disk", &format!("mount -t tmpfs -o size=6m tmpfs {}", machine.path("").display()));
}

#[test]
fn child_on_a_full_disk() {
    let Some(machine) = here() else { return };
    let (machine, project) = machine.with_bound_worktree();
    let work = machine.work();
    write(&work.join("large"), &noise(1));
    capture(&project, "first");
    let first = tree(&work);
    let (mut failed, mut recovered) = (0, 0);
    for pages in 0..60 {
        edit(&work);
        write(&work.join("large"), &noise(100 + pages));
        let edited = tree(&work);
        let filler = Filler::leaving(&machine.path("filler"), pages * 2);
        let result = project.restore("first", &RestoreOptions::default(), &Control::silent());
        let refused = project.capture(&format!("full-{pages}"), &CaptureOptions::default(), &Control::silent());
        drop(filler);
        match result.map_err(|error| (error.kind(), error)) {
            Ok(_) => assert_eq!(tree(&work), first, "{pages}"),
            Err((ErrorKind::RecoveryNeeded, _)) => {
                recovered += 1;
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::RecoveryNeeded);
                let outcome = project.recover(&Control::silent()).unwrap().outcome;
                let expected = if outcome == RecoverOutcome::Finished { &first } else { &edited };
                assert_eq!(&tree(&work), expected, "{pages}");
            }
            Err((kind, error)) => {
                failed += 1;
                assert_eq!(kind, ErrorKind::NoSpace, "{pages}: {error}");
                assert_eq!(tree(&work), edited, "{pages}");
            }
        }
        assert_eq!(project.status(&Control::silent()).unwrap().pending, None);
        restore(&project, "first");
        assert_eq!(tree(&work), first);
        project.prune(true, &[], &Control::silent()).unwrap();
    }
    assert!(failed > 3, "{failed} failed, {recovered} recovered");
    println!("DONE");
}

#[test]
fn a_read_only_store_is_read_and_refuses_by_name() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    edit(&machine.work());
    let store = machine.path("store").display().to_string();
    in_namespace(
        &machine,
        "faults::child_on_a_read_only_store",
        &format!("mount --bind {store} {store} && mount -o remount,bind,ro {store}"),
    );
}

#[test]
fn child_on_a_read_only_store() {
    let Some(machine) = here() else { return };
    let work = machine.work();
    let project = machine.open(&work).unwrap();
    let before = tree(&work);
    assert_eq!(project.log().unwrap().0.len(), 1);
    assert!(!project.diff("first", None, &Control::silent()).unwrap().is_empty());
    assert!(!project.plan_restore("first", &Control::silent()).unwrap().paths.is_empty());
    assert!(project.status(&Control::silent()).unwrap().changed > 0);
    let names = ["first".to_owned()];
    for error in [
        project.capture("x", &CaptureOptions::default(), &Control::silent()).unwrap_err(),
        project.restore("first", &RestoreOptions::default(), &Control::silent()).unwrap_err(),
        project.forget(&names, true, &Control::silent()).unwrap_err(),
        project.prune(true, &[], &Control::silent()).unwrap_err(),
        machine.setup(&machine.path("data")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.message().contains("store"), "{error}");
    }
    assert_eq!(tree(&work), before);
    println!("DONE");
}

/// Fills the disk but for some pages; dropping it frees them again.
pub(super) struct Filler(PathBuf);

impl Filler {
    pub(super) fn leaving(path: &Path, pages: u64) -> Self {
        let mut file = std::fs::File::create(path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(pages * 4096)).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// 30 KB that compress badly, another for each seed.
pub(super) fn noise(seed: u64) -> String {
    (0..500).map(|line| blake3::hash(format!("{seed} {line}").as_bytes()).to_hex().to_string()).collect::<Vec<_>>().join("\n")
}
