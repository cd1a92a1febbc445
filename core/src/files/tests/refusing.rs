//! Restores that this user, or this disk, cannot do: refused by name before anything is touched.

use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::process::Command;

use super::*;
use crate::ErrorKind;
use crate::clone::tests::Image;

/// Where the child that is an ordinary user finds its worktree.
const BASE: &str = "FORKLIFT_TEST_REFUSING";

/// Runs a test named `child_...` as a user that does not own what uid 1 does.
fn as_ordinary_user(lab: &Lab, test: &str) {
    let mut child = Command::new("unshare");
    child.args(["--user", "--map-user=1000", "--map-group=1000"]).arg(std::env::current_exe().expect("self"));
    let output = child.args(["--exact", test, "--nocapture"]).env(BASE, &lab.base).output().expect("child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("DONE"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The child's lab, and what was captured in it.
#[allow(clippy::disallowed_methods, reason = "tells a child from a test that nobody started as one")]
fn here() -> Option<(Lab, Half)> {
    let base = PathBuf::from(std::env::var_os(BASE)?);
    let store = Store::open_or_create(&base.join("store")).expect("store");
    let half = store.refs().expect("refs").0.pop().and_then(|reference| reference.files).expect("files");
    Some((Lab { _folder: None, root: base.join("work"), base, store, cache: StatCache::default() }, half))
}

/// Whether somebody else's files can be made here.
fn possible(lab: &Lab, test: &str) -> bool {
    put(&lab.base.join("probe"), b"");
    let unshared = || Command::new("unshare").args(["--user", "--map-user=1000", "true"]).status().is_ok_and(|status| status.success());
    let possible = chown(lab.base.join("probe"), Some(1), Some(1)).is_ok() && unshared();
    if !possible {
        eprintln!("SKIPPED {test}: needs root and user namespaces");
    }
    possible
}

#[test]
fn what_belongs_to_somebody_else_is_refused_before_anything_is_touched() {
    let mut lab = Lab::new();
    if !possible(&lab, "what_belongs_to_somebody_else_is_refused_before_anything_is_touched") {
        return;
    }
    lab.write("plain", "one");
    lab.write("sticky/file", "one");
    lab.write("theirs", "same");
    lab.capture();
    lab.write("plain", "two");
    lab.write("own/file", "made later");
    lab.write("foreign/file", "made later");
    lab.write("sticky/file", "two");
    lab.mode("sticky", 0o1777);
    lab.mode("theirs", 0o666);
    for path in ["foreign", "foreign/file", "sticky", "sticky/file", "theirs"] {
        chown(lab.at(path), Some(1), Some(1)).expect("chown");
    }
    as_ordinary_user(&lab, "files::tests::refusing::child_meets_foreign_files");
}

#[test]
fn child_meets_foreign_files() {
    let Some((mut lab, half)) = here() else { return };
    let target = Captured { half, ..lab.capture() };
    let before = lab.listing();
    let (reader, scope, folders, control) = (lab.reader(), lab.scope_of(&target), lab.folders(), Control::silent());
    // As a restore does it: before its safety capture.
    let request = lab.request(&reader, &scope, &target, &target, &folders);
    let error = stage(&request, &control).expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    for path in ["sticky", "sticky/file", "theirs"] {
        assert!(error.message().contains(path), "{error}");
    }
    assert!(error.message().contains("and 1 more") && error.hint_text().is_some(), "{error}");
    assert_eq!(lab.listing(), before);
    println!("DONE");
}

#[test]
fn what_turns_out_to_be_somebody_elses_later_is_left_and_told_of() {
    let mut lab = Lab::new();
    if !possible(&lab, "what_turns_out_to_be_somebody_elses_later_is_left_and_told_of") {
        return;
    }
    lab.write("plain", "one");
    lab.write("theirs", "same");
    lab.mode("theirs", 0o644);
    lab.capture();
    lab.write("plain", "two");
    lab.write("own/file", "made later");
    lab.write("foreign/file", "made later");
    lab.mode("theirs", 0o666);
    for path in ["foreign", "foreign/file", "theirs"] {
        chown(lab.at(path), Some(1), Some(1)).expect("chown");
    }
    as_ordinary_user(&lab, "files::tests::refusing::child_finishes_around_foreign_files");
}

#[test]
fn child_finishes_around_foreign_files() {
    let Some((mut lab, half)) = here() else { return };
    let safety = lab.capture();
    let target = Captured { half, ..safety.clone() };
    let (reader, scope, folders, control) = (lab.reader(), lab.scope_of(&target), lab.folders(), Control::silent());
    let report = install(&lab.request(&reader, &scope, &target, &safety, &folders), &control).expect("install");
    assert_eq!((get(&lab.at("plain")), get(&lab.at("foreign/file"))), (b"one".to_vec(), b"made later".to_vec()));
    assert!(!lab.at("own").exists());
    let verdicts = verdicts(&report.items);
    assert_eq!((verdicts["foreign/file"], verdicts["foreign"]), (Verdict::NotCaptured, Verdict::NotCaptured));
    assert_eq!((verdicts["theirs"], verdicts["plain"]), (Verdict::NotCaptured, Verdict::Restore));
    assert!(report.warnings.iter().any(|warning| warning.contains("foreign/file")), "{:?}", report.warnings);
    assert!(report.warnings.iter().any(|warning| warning.contains("theirs")), "{:?}", report.warnings);
    println!("DONE");
}

#[test]
fn a_file_marked_immutable_is_refused_before_anything_is_touched() {
    let test = "a_file_marked_immutable_is_refused_before_anything_is_touched";
    let Some(image) = Image::new(test, "ext4", &["-q"]) else { return };
    let base = tempfile::tempdir().expect("folder");
    let mut lab = Lab::on(&image.path(), base.path());
    lab.write("fixed", "one");
    lab.write("plain", "one");
    let target = lab.capture();
    lab.write("fixed", "two");
    lab.write("plain", "two");
    let flags = |flags| rustix::fs::ioctl_setflags(fs::File::open(lab.at("fixed")).expect("open"), flags);
    if flags(rustix::fs::IFlags::IMMUTABLE).is_err() {
        eprintln!("SKIPPED {test}: files cannot be marked here");
        return;
    }
    let middle = lab.listing();
    let (reader, scope, folders) = (lab.reader(), lab.scope_of(&target), lab.folders());
    let error = stage(&lab.request(&reader, &scope, &target, &target, &folders), &Control::silent()).expect_err("immutable");
    assert!(error.kind() == ErrorKind::Permission && error.message().contains("fixed"), "{error}");
    assert_eq!(lab.listing(), middle);
    flags(rustix::fs::IFlags::empty()).expect("unmark");
}

#[test]
fn a_full_worktree_is_refused_though_the_staging_folder_has_room() {
    let test = "a_full_worktree_is_refused_though_the_staging_folder_has_room";
    for inodes in [false, true] {
        let options: &[&str] = if inodes { &["-q", "-m", "0", "-N", "64"] } else { &["-q", "-m", "0"] };
        let Some(image) = Image::new(test, "ext4", options) else { return };
        let base = tempfile::tempdir().expect("folder");
        let mut lab = Lab::on(&image.path(), base.path());
        for number in 0..4 {
            lab.write(&format!("gone/{number}"), vec![number + 1; 1 << 20]);
        }
        let target = lab.capture();
        clear(lab.at("gone"));
        lab.write("new/file", "made later");
        let filler = image.path().join("filler");
        make(&filler);
        if inodes {
            let mut number = 0;
            while fs::File::create(filler.join(number.to_string())).is_ok() {
                number += 1;
            }
        } else {
            let file = fs::File::create(filler.join("file")).expect("filler");
            let free = rustix::fs::fstatvfs(file.as_fd()).map(|system| system.f_bavail * system.f_frsize).expect("statvfs");
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free - (2 << 20)).expect("fallocate");
        }
        let middle = lab.listing();
        let (reader, scope, folders) = (lab.reader(), lab.scope_of(&target), lab.folders());
        let error = stage(&lab.request(&reader, &scope, &target, &target, &folders), &Control::silent()).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(error.message().contains(if inodes { "inodes" } else { "bytes" }), "{error}");
        assert_eq!(lab.listing(), middle);
        // Found out later all the same: what is there is still there when what is missing cannot be made.
        let safety = lab.capture();
        let error = install(&lab.request(&reader, &scope, &target, &safety, &folders), &Control::silent()).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(get(&lab.at("new/file")), b"made later");
        crate::sys::fs::remove_tree(&filler).expect("remove");
        lab.install(&target, &safety);
        assert!(!lab.at("new").exists() && lab.at("gone/3").exists());
    }
}
