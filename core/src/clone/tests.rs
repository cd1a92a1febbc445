//! One conformance suite over every backend and every file system that this machine can give.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::backend::{Copy, Reflink};
use super::*;
use crate::ErrorKind;
use crate::progress::Control;

/// A file system in an image on a loop device. It is detached from its mount point at once and lives on in an open
/// descriptor, so that it goes when this process does, in whatever way.
pub(crate) struct Image {
    folder: File,
    _files: tempfile::TempDir,
}

impl Image {
    /// `None`, said aloud, where this machine cannot make one.
    pub(crate) fn new(test: &str, kind: &str, options: &[&str]) -> Option<Self> {
        let skip = |why: &str| {
            eprintln!("SKIPPED {test}: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("mounting needs root");
        }
        let folder = tempfile::tempdir().expect("folder");
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("image");
        fs::create_dir(&mount).expect("mount point");
        let made = Command::new(format!("mkfs.{kind}")).args(options).arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return skip(&format!("no working mkfs.{kind}"));
        }
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount).output();
        match mounted {
            Ok(output) if output.status.success() => {
                let opened = File::open(&mount);
                let detached = Command::new("umount").arg("-l").arg(&mount).status().expect("umount");
                assert!(detached.success());
                Some(Self { folder: opened.expect("open"), _files: folder })
            }
            Ok(output) => skip(&format!("mount failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => skip(&format!("no mount: {error}")),
        }
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
    fs::create_dir(root).expect("root");
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

fn conforms(backend: &dyn Backend, place: &Path) {
    let control = Control::silent();
    let (source, target) = (place.join("source"), place.join("target"));
    zoo(&source);
    let report = copy_tree(backend, &source, &target, &TreeOptions::default(), &control).expect("copy");
    assert_eq!(report.method, backend.method());
    assert_eq!(listing(&source), listing(&target));
    assert_eq!(report.files, 7);
    assert_eq!(report.bytes, 5 + 5 + 3_000_001 + (16 << 20) + 3 + 10);
    let blocks = |root: &Path| fs::metadata(root.join("sparse")).expect("stat").blocks() * 512;
    assert!(blocks(&target) < 1 << 20, "holes stay holes: {} of {}", blocks(&target), blocks(&source));

    // The copy is its own: writing to it leaves the source alone.
    OpenOptions::new().write(true).open(target.join("big")).and_then(|file| file.write_all_at(b"changed", 1 << 20)).expect("write");
    assert_ne!(content(&source.join("big")), content(&target.join("big")));
    assert_eq!(content(&source.join("big"))[1 << 20], ((1 << 20) % 251) as u8);

    let taken = copy_tree(backend, &source, &target, &TreeOptions::default(), &control).expect_err("target exists");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert!(target.join("small").exists());

    let skip = |path: &Path| path == Path::new("deep") || path == Path::new("big");
    let fewer = place.join("fewer");
    copy_tree(backend, &source, &fewer, &TreeOptions { skip: Some(&skip), live: true }, &control).expect("copy");
    assert!(!fewer.join("deep").exists() && !fewer.join("big").exists() && fewer.join("small").exists());

    let cancelled = Control::silent();
    cancelled.cancel().cancel();
    let stopped = place.join("stopped");
    let error = copy_tree(backend, &source, &stopped, &TreeOptions::default(), &cancelled).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(!stopped.exists(), "nothing half done is left");
}

fn suite(place: &Path, reflinks: bool) {
    for (name, backend) in [("copy", &Copy as &dyn Backend), ("reflink", &Reflink)] {
        let place = place.join(name);
        fs::create_dir(&place).expect("place");
        conforms(backend, &place);
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
        assert_eq!(choose(&image.path().join("copy/source"), &subvolume).expect("choose").method(), Method::Reflink);
        let other = tempfile::tempdir().expect("folder");
        put(&other.path().join("file"), b"elsewhere");
        assert_eq!(choose(other.path(), &subvolume).expect("choose").method(), Method::Copy);
    }
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
    let error = copy_tree(&Copy, source.path(), &target, &TreeOptions::default(), &Control::silent()).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.message().contains("large"), "{error}");
    assert!(!target.exists());
}

#[test]
fn a_missing_source_is_named() {
    let place = tempfile::tempdir().expect("folder");
    let error = copy_tree(&Copy, &place.path().join("none"), &place.path().join("target"), &TreeOptions::default(), &Control::silent())
        .expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!place.path().join("target").exists());
}
