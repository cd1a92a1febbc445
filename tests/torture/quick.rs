//! Quick versions of what `make torture` runs for long: each kind with a real kernel, for some seconds.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// Runs some kinds and shows what they skip under the name of the test.
fn run(test: &str, kinds: &str, seconds: u32) {
    let folder = tempfile::tempdir().unwrap();
    let (work, keep) = (folder.path().join("work"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("torture"));
    std::fs::create_dir(&work).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forklift-torture"))
        .args(["run", "--kinds", kinds, "--seconds", &seconds.to_string()])
        .arg("--work")
        .arg(&work)
        .arg("--keep")
        .arg(&keep)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.replace("SKIPPED ", &format!("SKIPPED {test} ")));
    assert!(output.status.success(), "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn power_cuts_on_ext4_and_xfs_lose_no_acknowledged_ref() {
    run("power_cuts", "power", 10);
}

#[test]
fn kills_of_several_processes_lose_nothing() {
    run("kills", "kills", 5);
}

#[test]
fn failing_writeback_loses_no_acknowledged_ref() {
    run("failing_writeback", "writeback", 4);
}

#[test]
fn full_disks_fail_by_name_and_are_pruned() {
    run("full_disks", "space", 6);
}

#[test]
fn errors_and_kills_at_the_nth_call_lose_nothing() {
    run("injected_faults", "inject", 10);
}

#[test]
fn flips_are_found_and_never_believed() {
    run("flips", "flips", 5);
}
