//! Edits made while a restore runs, and restores that were interrupted: nothing is lost.

use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::ErrorKind;
use crate::clone::tests::Image;
use crate::files::temporary;
use crate::store::ChunkId;

/// All contents below the folder of kept files.
fn kept(lab: &Lab) -> Vec<Vec<u8>> {
    if lab.kept().exists() { listing(&lab.kept()).into_values().map(|(_, _, content)| content).collect() } else { Vec::new() }
}

fn leftovers(lab: &Lab) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| temporary::is_one(name.as_bytes()));
    lab.listing().into_keys().filter(ours).collect()
}

#[test]
fn an_edit_after_the_safety_capture_is_kept() {
    let mut lab = Lab::new();
    lab.write("edited", "checkpoint");
    lab.write("sub/replaced", "checkpoint");
    let target = lab.capture();
    lab.write("edited", "agent");
    lab.write("sub/replaced", "agent");
    lab.write("added", "agent");
    let safety = lab.capture();
    lab.write("edited", "human");
    lab.write("added", "human");
    fs::remove_file(lab.at("sub/replaced")).expect("remove");
    std::os::unix::fs::symlink("somewhere", lab.at("sub/replaced")).expect("link");
    lab.write("unseen", "human");
    let report = lab.install(&target, &safety);
    assert_eq!((get(&lab.at("edited")), get(&lab.at("sub/replaced"))), (b"checkpoint".to_vec(), b"checkpoint".to_vec()));
    assert_eq!(get(&lab.kept().join("edited")), b"human");
    assert_eq!(get(&lab.kept().join("added")), b"human");
    assert_eq!(fs::read_link(lab.kept().join("sub/replaced")).expect("link"), Path::new("somewhere"));
    assert_eq!(get(&lab.at("unseen")), b"human", "a file that no capture saw stays");
    let verdicts = verdicts(&report.items);
    assert_eq!((verdicts["edited"], verdicts["added"], verdicts["sub/replaced"]), (Verdict::Kept, Verdict::Kept, Verdict::Kept));
    assert!(leftovers(&lab).is_empty());
}

#[test]
fn a_file_that_is_open_for_writing_is_kept_with_what_is_written_later() {
    let mut lab = Lab::new();
    lab.write("log", "checkpoint\n");
    let target = lab.capture();
    lab.write("log", "agent\n");
    let mut writer = fs::OpenOptions::new().append(true).open(lab.at("log")).expect("open");
    let report = lab.restore(&target);
    writer.write_all(b"human\n").expect("append");
    assert_eq!(get(&lab.at("log")), b"checkpoint\n");
    assert_eq!(get(&lab.kept().join("log")), b"agent\nhuman\n");
    assert_eq!(verdicts(&report.items)["log"], Verdict::Kept);
}

#[test]
fn what_an_interrupted_restore_left_is_sorted_out() {
    let mut lab = Lab::new();
    lab.write("dir/a", "checkpoint a");
    lab.write("dir/b", "checkpoint b");
    let target = lab.capture();
    lab.write("dir/a", "agent a");
    lab.write("dir/b", "agent b");
    let safety = lab.capture();
    // Killed between the exchange and the look at what came out, once with the agent's and once with somebody's content.
    let dir = lab.at("dir");
    let displaced = |path: &str, content: &str| {
        let (new, old) = temporary::pair(path.as_bytes()).expect("names");
        put(&dir.join(std::ffi::OsStr::from_bytes(&old)), content.as_bytes());
        put(&dir.join(std::ffi::OsStr::from_bytes(&new)), b"half writ");
    };
    displaced("dir/a", "agent a");
    displaced("dir/a", "checkpoint a");
    displaced("dir/b", "human b");
    lab.write("dir/b", "checkpoint b");
    let seen = lab.capture();
    assert_eq!(seen.half.entries, 3, "what was left is no part of a capture");
    assert_eq!(left_out(&seen).len(), 6);
    lab.install(&target, &safety);
    assert_eq!((get(&lab.at("dir/a")), get(&lab.at("dir/b"))), (b"checkpoint a".to_vec(), b"checkpoint b".to_vec()));
    assert_eq!(kept(&lab).into_iter().filter(|content| content != b"folder").collect::<Vec<_>>(), [b"human b".to_vec()]);
    assert!(leftovers(&lab).is_empty());
}

#[test]
fn appending_writers_lose_no_line() {
    let mut lab = Lab::new();
    lab.write("log", "start\n");
    let target = lab.capture();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = |name: &'static str, hold: bool| {
        let (path, stop) = (lab.at("log"), stop.clone());
        std::thread::spawn(move || {
            let open = || fs::OpenOptions::new().append(true).create(true).open(&path).expect("open");
            let mut file = open();
            let mut lines = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                if !hold || lines.is_multiple_of(50) {
                    file = open();
                }
                file.write_all(format!("{name} {lines}\n").as_bytes()).expect("append");
                lines += 1;
                std::thread::yield_now();
            }
            (name, lines)
        })
    };
    let writers = [writer("brief", false), writer("holding", true)];
    let mut seen = std::collections::HashSet::new();
    for _ in 0..30 {
        let safety = lab.capture();
        let reader = lab.reader();
        for entry in reader.manifest(&safety.half.root).expect("manifest") {
            if let crate::store::EntryKind::File { chunks, .. } = entry.expect("entry").kind {
                let mut content = Vec::new();
                reader.copy(&chunks, &mut content).expect("content");
                seen.extend(String::from_utf8_lossy(&content).lines().map(str::to_owned));
            }
        }
        lab.install(&target, &safety);
    }
    stop.store(true, Ordering::Relaxed);
    let written = writers.map(|writer| writer.join().expect("writer"));
    for content in kept(&lab).into_iter().chain([get(&lab.at("log"))]) {
        seen.extend(String::from_utf8_lossy(&content).lines().map(str::to_owned));
    }
    for (name, lines) in written {
        assert!(lines > 0);
        let lost: Vec<u32> = (0..lines).filter(|line| !seen.contains(&format!("{name} {line}"))).collect();
        assert!(lost.is_empty(), "{name} wrote {lines} lines and lost {lost:?}");
    }
    assert!(leftovers(&lab).is_empty());
}

#[test]
fn an_editor_that_saves_by_rename_loses_no_save() {
    let mut lab = Lab::new();
    lab.write("text", "start");
    let target = lab.capture();
    for round in 0..25 {
        lab.write("text", format!("agent {round}"));
        let safety = lab.capture();
        let (path, beside) = (lab.at("text"), lab.base.join("beside"));
        let editor = std::thread::spawn(move || {
            let content = format!("human {round}");
            put(&beside, content.as_bytes());
            rustix::fs::rename(&beside, &path).expect("save");
            content.into_bytes()
        });
        lab.install(&target, &safety);
        let saved = editor.join().expect("editor");
        assert!(get(&lab.at("text")) == saved || kept(&lab).contains(&saved), "round {round}");
    }
}

/// Names the folder that tells the child below what to do.
const CHILD: &str = "FORKLIFT_TEST_INSTALL_CHILD";

/// The other half of the next test: run by it in a process of its own.
#[test]
#[allow(clippy::disallowed_methods, reason = "tells a child from a test that nobody started as one")]
fn child_that_installs() {
    let Some(base) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let Ok(text) = String::from_utf8(get(&base.join("request"))) else { panic!("no request") };
    let ids: Vec<ChunkId> = text.lines().skip(1).take(2).map(|line| line.parse().expect("id")).collect();
    let scope = Scope { root: PathBuf::from(text.lines().next().expect("root")), ..Scope::default() };
    let reader = Store::open(&base.join("store")).expect("store").reader(&Control::silent()).expect("reader");
    let (staging, kept) = (base.join("staging"), base.join("kept"));
    let request = InstallRequest {
        reader: &reader,
        scope: &scope,
        target: ids[0],
        safety: ids[1],
        staging: &staging,
        kept: &kept,
        extent: Extent::Whole,
    };
    let control = Control::silent();
    put(&base.join("started"), b"");
    stage(&request, &control).expect("stage");
    install(&request, &control).expect("install");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Gone already, or gone now.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn kill_9_at_any_moment() {
    let mut lab = Lab::new();
    for n in 0..60 {
        lab.write(&format!("d{}/file{n}", n % 5), format!("checkpoint {n}").repeat(2000));
    }
    lab.write("kind", "file");
    let (before, target) = (lab.listing(), lab.capture());
    let mut interrupted = 0;
    for round in 0..8_u64 {
        for n in 0..60 {
            lab.write(&format!("d{}/file{n}", n % 5), format!("agent {round} {n}"));
        }
        lab.write("new/file", "agent");
        fs::remove_file(lab.at("kind")).expect("remove");
        lab.write("kind/inner", "agent");
        let safety = lab.capture();
        lab.write("d0/file0", format!("human {round}"));
        put(&lab.base.join("request"), format!("{}\n{}\n{}\n", lab.root().display(), target.half.root, safety.half.root).as_bytes());
        crate::sys::fs::remove_file(&lab.base.join("started")).expect("remove");
        let test = "files::tests::racing::child_that_installs";
        let child = Command::new(std::env::current_exe().expect("program"))
            .args(["--exact", test, "--test-threads=1"])
            .env(CHILD, &lab.base)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("child");
        let mut child = Killed(child);
        while !lab.base.join("started").exists() && child.0.try_wait().expect("wait").is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(1500 * (round * round + 1)));
        interrupted += u32::from(child.0.try_wait().expect("wait").is_none());
        drop(child);
        lab.install(&target, &safety);
        assert_eq!(lab.listing(), before, "round {round}");
        assert!(kept(&lab).contains(&format!("human {round}").into_bytes()), "round {round}");
        assert_eq!(lab.plan(&target).items, []);
    }
    assert!(interrupted > 0, "no child was killed in the middle");
}

#[test]
fn a_full_disk_fails_before_anything_is_touched_and_later_completes() {
    let Some(image) = Image::new("a_full_disk_fails_before_anything_is_touched_and_later_completes", "ext4", &["-q", "-m", "0"]) else {
        return;
    };
    let base = tempfile::tempdir().expect("folder");
    let mut lab = Lab::on(&image.path(), base.path());
    let large: Vec<u8> = (0..5_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    lab.write("large", &large);
    lab.write("small", "checkpoint");
    let (before, target) = (lab.listing(), lab.capture());
    lab.write("large", "agent");
    lab.write("small", "agent");
    let (safety, middle) = (lab.capture(), lab.listing());
    // A file that takes all but a little of what is free.
    let filler = image.path().join("filler");
    let file = fs::File::create(&filler).expect("filler");
    let free = rustix::fs::fstatvfs(file.as_fd()).map(|system| system.f_bavail * system.f_frsize).expect("statvfs");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free - (8 << 20)).expect("fallocate");
    let (reader, scope, control) = (lab.reader(), lab.scope_of(&target), Control::silent());
    let folders = [image.path().join("staging"), image.path().join("kept")];
    let request = lab.request(&reader, &scope, &target, &safety, &folders);
    assert_eq!(stage(&request, &control).expect_err("full").kind(), ErrorKind::NoSpace);
    assert_eq!(lab.listing(), middle);
    crate::sys::fs::remove_tree(&folders[0]).expect("remove");
    let error = install(&request, &control).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.message().contains("large"), "{error}");
    assert_eq!(get(&lab.at("large")), b"agent");
    drop(file);
    crate::sys::fs::remove_file(&filler).expect("remove");
    install(&request, &control).expect("install");
    assert_eq!(lab.listing(), before);
    assert!(leftovers(&lab).is_empty());
}

#[test]
fn kept_on_another_file_system() {
    let Some(image) = Image::new("kept_on_another_file_system", "xfs", &["-q"]) else { return };
    let base = tempfile::tempdir().expect("folder");
    let mut lab = Lab::on(&image.path(), base.path());
    lab.write("edited", "checkpoint");
    lab.write("linked", "checkpoint");
    lab.write("kind", "checkpoint");
    let target = lab.capture();
    lab.write("edited", "agent");
    let safety = lab.capture();
    lab.write("edited", "human");
    fs::remove_file(lab.at("linked")).expect("remove");
    std::os::unix::fs::symlink("human", lab.at("linked")).expect("link");
    fs::remove_file(lab.at("kind")).expect("remove");
    lab.write("kind/sub/deep", "human");
    lab.install(&target, &safety);
    assert_eq!(get(&lab.at("kind")), b"checkpoint");
    assert_eq!((get(&lab.kept().join("edited")), get(&lab.kept().join("kind/sub/deep"))), (b"human".to_vec(), b"human".to_vec()));
    assert_eq!(fs::read_link(lab.kept().join("linked")).expect("link"), Path::new("human"));
    assert!(leftovers(&lab).is_empty());
}

#[test]
fn a_file_that_something_is_mounted_on_is_overwritten() {
    let mut lab = Lab::new();
    lab.write("file", "checkpoint");
    let target = lab.capture();
    let source = lab.base.join("mounted");
    put(&source, b"human");
    if !Command::new("mount")
        .arg("--bind")
        .arg(&source)
        .arg(lab.at("file"))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("SKIPPED a_file_that_something_is_mounted_on_is_overwritten: mounting needs root");
        return;
    }
    let path = lab.at("file");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let safety = target.clone();
        lab.install(&target, &safety);
        (get(&lab.at("file")), get(&lab.kept().join("file")))
    }));
    let unmounted = Command::new("umount").arg("-l").arg(&path).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(result.expect("install"), (b"checkpoint".to_vec(), b"human".to_vec()));
    assert!(leftovers(&lab).is_empty());
}
