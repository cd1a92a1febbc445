//! One conformance suite over every backend and every file system that this machine can give.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::backend::{Copy, Reflink};
use super::snapshot::Snapshot;
use super::*;
use crate::ErrorKind;
use crate::progress::Control;

/// A file system in an image on a loop device. It is mounted in a mount namespace of its own, which ends at once, and lives on
/// in an open descriptor: nobody else sees it, and it goes when this process does, in whatever way.
pub(crate) struct Image {
    folder: File,
    _files: tempfile::TempDir,
}

impl Image {
    /// `None`, said aloud, where this machine cannot make one.
    pub(crate) fn new(test: &str, kind: &str, options: &[&str]) -> Option<Self> {
        Self::of_size(test, kind, options, 512 << 20)
    }

    pub(crate) fn of_size(test: &str, kind: &str, options: &[&str], bytes: u64) -> Option<Self> {
        let skip = |why: &str| {
            eprintln!("SKIPPED {test}: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("mounting needs root");
        }
        let folder = tempfile::tempdir().expect("folder");
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("image");
        fs::create_dir(&mount).expect("mount point");
        let made = Command::new(format!("mkfs.{kind}")).args(options).arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return skip(&format!("no working mkfs.{kind}"));
        }
        let script = "mount -o loop \"$0\" \"$1\" && echo mounted && cat";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&image).arg(&mount);
        let mut holder = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Ok(holder) => holder,
            Err(error) => return skip(&format!("no unshare: {error}")),
        };
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().expect("output")).read_line(&mut line).expect("read");
        let opened = File::open(format!("/proc/{}/root{}", holder.id(), mount.display()));
        // The end of its input ends it, and with it the namespace.
        let ended = holder.wait_with_output().expect("wait");
        if line.trim() != "mounted" {
            return skip(&format!("mount failed: {}", String::from_utf8_lossy(&ended.stderr).trim()));
        }
        Some(Self { folder: opened.expect("open"), _files: folder })
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.folder.as_raw_fd()))
    }
}

type Listing = BTreeMap<PathBuf, (u32, Vec<u8>, i64)>;

/// Path to mode, content (or link text) and, for files, modification time.
fn listing(root: &Path) -> Listing {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("list") {
            let path = entry.expect("entry").path();
            let data = fs::symlink_metadata(&path).expect("stat");
            let relative = path.strip_prefix(root).expect("below").to_owned();
            let (content, time) = if data.is_dir() {
                folders.push(path);
                (b"folder".to_vec(), 0)
            } else if data.is_symlink() {
                (fs::read_link(&path).expect("link").as_os_str().as_bytes().to_vec(), 0)
            } else if data.is_file() {
                (content(&path), data.mtime_nsec() + data.mtime() * 1_000_000_000)
            } else {
                (b"other".to_vec(), 0)
            };
            found.insert(relative, (data.mode(), content, time));
        }
    }
    found
}

fn content(path: &Path) -> Vec<u8> {
    crate::sys::fs::read(path).expect("read")
}

fn put(path: &Path, bytes: &[u8]) {
    File::create(path).and_then(|mut file| file.write_all(bytes)).expect("write");
}

fn zoo(root: &Path) {
    make_folder(root, 0o750).expect("root");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket"));
    put(&root.join("empty"), b"");
    put(&root.join("small"), b"small");
    let big: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
    put(&root.join("big"), &big);
    let sparse = File::create(root.join("sparse")).expect("sparse");
    sparse.write_all_at(b"middle", 5 << 20).expect("write");
    sparse.set_len(16 << 20).expect("size");
    let mut deep = root.join("deep");
    for _ in 0..300 {
        fs::create_dir(&deep).expect("deep");
        deep.push("d");
    }
    put(&root.join(std::ffi::OsStr::from_bytes(b"odd\n\"\xff")), b"odd");
    symlink("/etc/passwd", root.join("link")).expect("link");
    symlink("nowhere", root.join("dangling")).expect("link");
    fs::hard_link(root.join("small"), root.join("linked")).expect("hard link");
    crate::sys::tree::make_fifo(std::os::fd::AsFd::as_fd(&File::open(root).expect("root")), b"pipe", 0o620).expect("pipe");
    fs::create_dir(root.join("sealed")).expect("sealed");
    put(&root.join("sealed/program"), b"#!/bin/sh\n");
    fs::set_permissions(root.join("sealed/program"), fs::Permissions::from_mode(0o4755)).expect("mode");
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o400)).expect("mode");
    fs::set_permissions(root.join("sealed"), fs::Permissions::from_mode(0o1555)).expect("mode");
}

/// `shares`: what `shares_blocks` says is true on the file system of `place`.
fn conforms(backend: &dyn Backend, place: &Path, shares: bool) {
    let control = Control::silent();
    let (source, target) = (place.join("source"), place.join("target"));
    zoo(&source);
    let report = copy_tree(backend, &source, &target, &TreeOptions::default(), &control).expect("copy");
    assert_eq!(report.method, backend.method());
    assert_eq!(backend.is_atomic(), backend.cost() == Cost::Constant);
    assert!(backend.shares_blocks() || backend.cost() == Cost::Bytes);
    let mut expected = listing(&source);
    expected.remove(Path::new("socket"));
    assert_eq!(expected, listing(&target));
    assert_eq!(fs::metadata(&target).expect("stat").mode() & 0o7777, 0o750);
    assert_eq!(report.files, 7);
    assert_eq!(report.bytes, 5 + 5 + 3_000_001 + (16 << 20) + 3 + 10);
    let blocks = |root: &Path| fs::metadata(root.join("sparse")).expect("stat").blocks() * 512;
    assert!(blocks(&target) < 1 << 20, "holes stay holes: {} of {}", blocks(&target), blocks(&source));

    // What it costs is what it says it costs.
    let used = usage(&target, &control).expect("usage");
    if let Some(exclusive) = used.exclusive {
        assert!(used.bytes > 2 << 20, "{used:?}");
        assert!(if shares { exclusive < 64 << 10 } else { exclusive == used.bytes }, "{used:?}");
    }

    // The copy is its own: writing to it leaves the source alone.
    OpenOptions::new().write(true).open(target.join("big")).and_then(|file| file.write_all_at(b"changed", 1 << 20)).expect("write");
    assert_ne!(content(&source.join("big")), content(&target.join("big")));
    assert_eq!(content(&source.join("big"))[1 << 20], ((1 << 20) % 251) as u8);

    if let (true, Some(exclusive)) = (shares, usage(&target, &control).expect("usage").exclusive) {
        assert!((4 << 10..1 << 20).contains(&exclusive), "{exclusive} after one write");
    }

    let taken = copy_tree(backend, &source, &target, &TreeOptions::default(), &control).expect_err("target exists");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert!(target.join("small").exists());

    let skip = |path: &Path| path == Path::new("deep") || path == Path::new("big");
    let fewer = place.join("fewer");
    copy_tree(backend, &source, &fewer, &TreeOptions { skip: Some(&skip), live: true, cloned_again: true }, &control).expect("copy");
    assert!(!fewer.join("deep").exists() && !fewer.join("big").exists() && fewer.join("small").exists());

    let cancelled = Control::silent();
    cancelled.cancel().cancel();
    let stopped = place.join("stopped");
    let error = copy_tree(backend, &source, &stopped, &TreeOptions::default(), &cancelled).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!stopped.exists(), "nothing half done is left");
    for tree in [&source, &target, &fewer] {
        remove_tree(tree).expect("remove");
        remove_tree(tree).expect("one that is not there is fine");
        assert!(!tree.exists());
    }
}

fn suite(place: &Path, reflinks: bool) {
    let snapshots = crate::sys::btrfs::is_btrfs(place);
    let by_hand = Copy { by_hand: true };
    let backends: [(&str, &dyn Backend, bool); 4] = [
        ("copy", &Copy::default(), false),
        ("by hand", &by_hand, false),
        ("reflink", &Reflink::default(), reflinks),
        ("snapshot", &Snapshot, snapshots),
    ];
    for (name, backend, shares) in backends {
        if name == "snapshot" && !snapshots {
            continue;
        }
        // On XFS and btrfs copy_file_range shares too.
        let shares = shares || (name == "copy" && reflinks);
        let place = place.join(name);
        fs::create_dir(&place).expect("place");
        conforms(backend, &place, shares);
    }
    let chosen = choose(place, place).expect("choose");
    assert_eq!(chosen.method(), if reflinks { Method::Reflink } else { Method::Copy });
    assert_eq!(chosen.shares_blocks(), reflinks);
    assert!(
        !fs::read_dir(place).expect("list").any(|entry| entry.expect("entry").file_name().as_bytes().starts_with(b".")),
        "no probe is left"
    );
}

#[test]
fn on_the_file_system_of_the_temporary_folder() {
    let place = tempfile::tempdir().expect("folder");
    let reflinks = {
        let (from, to) = (File::create(place.path().join("from")).expect("from"), File::create(place.path().join("to")).expect("to"));
        (&from).write_all(&[1; 8192]).expect("write");
        let from = File::open(place.path().join("from")).expect("open");
        rustix::fs::ioctl_ficlone(&to, &from).is_ok()
    };
    suite(place.path(), reflinks);
}

#[test]
fn on_xfs() {
    if let Some(image) = Image::new("on_xfs", "xfs", &["-q", "-m", "reflink=1"]) {
        suite(&image.path(), true);
    }
}

#[test]
fn on_btrfs() {
    if let Some(image) = Image::new("on_btrfs", "btrfs", &["-q"]) {
        suite(&image.path(), true);
        // Another subvolume is another device, and yet shares.
        let subvolume = image.path().join("subvolume");
        let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(&subvolume).status().expect("btrfs");
        assert!(made.success());
        let folder = image.path().join("folder");
        fs::create_dir(&folder).expect("folder");
        put(&folder.join("file"), b"here");
        assert_eq!(choose(&folder, &subvolume).expect("choose").method(), Method::Reflink);
        assert_eq!(choose_for_tree(&folder, &subvolume).expect("choose").method(), Method::Reflink);
        assert_eq!(choose_for_tree(&subvolume, &image.path()).expect("choose").method(), Method::Snapshot);
        let other = tempfile::tempdir().expect("folder");
        put(&other.path().join("file"), b"elsewhere");
        assert_eq!(choose(other.path(), &subvolume).expect("choose").method(), Method::Copy);
    }
}

#[test]
fn a_snapshot_is_whole_or_made_file_by_file() {
    let Some(image) = Image::new("a_snapshot_is_whole_or_made_file_by_file", "btrfs", &["-q"]) else { return };
    let control = Control::silent();
    let source = image.path().join("source");
    make_folder(&source, 0o700).expect("source");
    assert!(crate::sys::btrfs::is_subvolume(&source));
    put(&source.join("file"), b"outer");
    make_folder(&source.join("inner"), 0o700).expect("inner");
    put(&source.join("inner/file"), b"inner");
    // A snapshot would have left the inner one empty.
    let options = TreeOptions { cloned_again: true, ..TreeOptions::default() };
    let report = copy_tree(&Snapshot, &source, &image.path().join("copy"), &options, &control).expect("copy");
    assert_eq!((report.method, report.files), (Method::Reflink, 2));
    assert_eq!(listing(&source), listing(&image.path().join("copy")));
    // That copy is one subvolume, and can be taken whole.
    let report = copy_tree(&Snapshot, &image.path().join("copy"), &image.path().join("again"), &options, &control).expect("copy");
    assert_eq!((report.method, report.files), (Method::Snapshot, 2));
    for name in ["source", "copy", "again"] {
        remove_tree(&image.path().join(name)).expect("remove");
    }
    assert_eq!(fs::read_dir(image.path()).expect("list").count(), 0);
    let elsewhere = tempfile::tempdir().expect("folder");
    put(&elsewhere.path().join("file"), b"elsewhere");
    let report = copy_tree(&Snapshot, elsewhere.path(), &image.path().join("copy"), &options, &control).expect("copy");
    assert_eq!(report.method, Method::Reflink, "what is no subvolume");
}

/// Writers that each advance a counter in two files, the first one first: no state that the source ever had has the second ahead.
#[test]
fn a_snapshot_is_one_instant() {
    let Some(image) = Image::new("a_snapshot_is_one_instant", "btrfs", &["-q"]) else { return };
    let source = image.path().join("source");
    make_folder(&source, 0o700).expect("source");
    let names: Vec<PathBuf> = (0..8).map(|n| source.join(format!("file{n}"))).collect();
    names.iter().for_each(|name| put(name, &0_u64.to_le_bytes()));
    let done = std::sync::atomic::AtomicBool::new(false);
    let count = |path: &Path| u64::from_le_bytes(content(path).try_into().expect("eight bytes"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let files: Vec<File> = names.iter().map(|name| OpenOptions::new().write(true).open(name).expect("open")).collect();
            for number in 1_u64.. {
                for file in &files {
                    file.write_all_at(&number.to_le_bytes(), 0).expect("write");
                    file.sync_data().expect("sync");
                }
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        });
        for round in 0..10 {
            let target = image.path().join(format!("copy{round}"));
            let report = copy_tree(&Snapshot, &source, &target, &TreeOptions::default(), &Control::silent()).expect("copy");
            assert_eq!(report.method, Method::Snapshot);
            let counts: Vec<u64> = (0..8).map(|n| count(&target.join(format!("file{n}")))).collect();
            assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]), "{counts:?}");
            assert!(counts[0] - counts[7] <= 1, "{counts:?}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_full_disk_leaves_no_target() {
    let Some(image) = Image::new("a_full_disk_leaves_no_target", "ext4", &["-q"]) else { return };
    let source = tempfile::tempdir().expect("folder");
    let file = File::create(source.path().join("large")).expect("file");
    let block = vec![3_u8; 1 << 20];
    for n in 0..600 {
        file.write_all_at(&block, n << 20).expect("write");
    }
    let target = image.path().join("target");
    let error = copy_tree(&Copy::default(), source.path(), &target, &TreeOptions::default(), &Control::silent()).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.message().contains("large"), "{error}");
    assert!(!target.exists());
}

#[test]
fn a_missing_source_is_named() {
    let place = tempfile::tempdir().expect("folder");
    let error =
        copy_tree(&Copy::default(), &place.path().join("none"), &place.path().join("target"), &TreeOptions::default(), &Control::silent())
            .expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!place.path().join("target").exists());
}
