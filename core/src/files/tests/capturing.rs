//! Captures: what is in them, what is read again, and how they differ.

use std::os::unix::fs::symlink;

use super::*;
use crate::store::{Entry, EntryKind};

fn entries(lab: &Lab, captured: &Captured) -> Vec<Entry> {
    let reader = lab.reader();
    reader.manifest(&captured.half.root).expect("manifest").collect::<crate::Result<_>>().expect("entries")
}

/// Makes every file old enough for the cache: its change time cannot be set, so the rule's clock is what has to pass.
fn settle() {
    let start = crate::files::cache::now_ns();
    while crate::files::cache::now_ns() - start < 2_100_000_000 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn an_unchanged_tree_opens_no_file_and_gives_the_same_root() {
    let mut lab = Lab::new();
    for n in 0..50 {
        lab.write(&format!("dir{}/file{n}", n % 7), format!("content {n}"));
    }
    lab.write("large", (0..900_000_u32).flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
    settle();
    let first = lab.capture();
    assert_eq!(first.files_opened, 51);
    assert_eq!(first.bytes_read, first.half.bytes);
    let second = lab.capture();
    assert_eq!((second.files_opened, second.bytes_read), (0, 0));
    assert_eq!(first.half, second.half);
    assert_eq!(first.fingerprint, second.fingerprint);
    assert!(!moved_since(&lab.scope(), &second, &Control::silent()).expect("moved"));

    let path = lab.folders()[0].with_extension("cache");
    lab.cache.save(&path).expect("save");
    lab.cache = StatCache::load(&path);
    assert_eq!(lab.capture().files_opened, 0, "the cache outlives the process");
    let mut bytes = get(&path);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    put(&path, &bytes);
    lab.cache = StatCache::load(&path);
    assert_eq!(lab.capture().files_opened, 51, "a damaged cache is an empty one");

    lab.write("dir0/file0", "content X");
    assert!(moved_since(&lab.scope(), &second, &Control::silent()).expect("moved"));
    let third = lab.capture();
    assert_eq!(third.files_opened, 1);
    let reader = lab.reader();
    let changes = diff(reader.manifest(&second.half.root).expect("manifest"), reader.manifest(&third.half.root).expect("manifest"));
    assert_eq!(changes.expect("diff"), [Change { path: b"dir0/file0".to_vec(), kind: ChangeKind::Modified }]);
}

#[test]
fn a_same_size_edit_in_the_same_tick_is_never_missed() {
    let mut lab = Lab::new();
    lab.write("file", "00000000");
    for round in 0..40_u32 {
        let content = format!("{round:08}");
        lab.write("file", &content);
        let captured = lab.capture();
        let entries = entries(&lab, &captured);
        let EntryKind::File { chunks, .. } = &entries[0].kind else { panic!("a file") };
        let mut stored = Vec::new();
        lab.reader().copy(chunks, &mut stored).expect("content");
        assert_eq!(stored, content.as_bytes(), "round {round}");
    }
}

#[test]
fn what_is_on_disk_has_the_ids_of_a_capture() {
    let mut lab = Lab::new();
    for size in [0_usize, 1, 128 << 10, (128 << 10) + 1, 700_000, 3_000_000] {
        let mut state = 7_u64;
        let bytes: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        lab.write(&format!("size-{size}"), bytes);
    }
    lab.write("zeros", vec![0; 2_000_000]);
    let captured = lab.capture();
    let disk = disk_entries(&lab.scope(), &mut StatCache::default(), &Control::silent()).expect("entries");
    assert_eq!(entries(&lab, &captured), disk);
}

#[test]
fn every_kind_of_entry_is_recorded() {
    let mut lab = Lab::new();
    lab.write("plain", "x");
    lab.write("a/b", "x");
    lab.write("a.b", "sorts before a/b");
    fs::hard_link(lab.at("plain"), lab.at("zz-linked")).expect("link");
    symlink(lab.at("a"), lab.at("absolute")).expect("link");
    symlink("nowhere", lab.at("dangling")).expect("link");
    fs::create_dir(lab.at("empty")).expect("folder");
    crate::sys::tree::make_fifo(std::os::fd::AsFd::as_fd(&fs::File::open(lab.root()).expect("root")), b"pipe", 0o620).expect("pipe");
    let socket = std::os::unix::net::UnixListener::bind(lab.at("socket")).expect("socket");
    let sparse = fs::File::create(lab.at("sparse")).expect("sparse");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 1 << 20).expect("write");
    sparse.set_len(3 << 20).expect("size");
    let attribute = rustix::fs::setxattr(lab.at("plain"), "user.note", b"value", rustix::fs::XattrFlags::empty());
    let captured = lab.capture();
    drop(socket);

    let entries = entries(&lab, &captured);
    let find = |path: &str| entries.iter().find(|entry| entry.path == path.as_bytes()).unwrap_or_else(|| panic!("{path}"));
    let link = |path: &str| if let EntryKind::File { link, .. } = find(path).kind { link } else { panic!("{path}") };
    assert_eq!((link("plain"), link("zz-linked"), link("a/b")), (1, 1, 0));
    assert_eq!(find("absolute").kind, EntryKind::Symlink(lab.at("a").as_os_str().as_bytes().to_vec()));
    assert_eq!(find("dangling").kind, EntryKind::Symlink(b"nowhere".to_vec()));
    assert_eq!(find("empty").kind, EntryKind::Folder);
    assert_eq!((find("pipe").kind.clone(), find("pipe").mode), (EntryKind::Fifo, 0o620));
    assert_eq!(find("socket").kind, EntryKind::Socket);
    assert_eq!(left_out(&captured), BTreeMap::from([("socket".to_owned(), "socket".to_owned())]));
    assert!(!captured.coverage.complete);
    let EntryKind::File { size, holes, .. } = &find("sparse").kind else { panic!("sparse") };
    assert_eq!(*size, 3 << 20);
    assert!(holes.is_empty() || holes[0] == (0, 1 << 20), "{holes:?}");
    if attribute.is_ok() {
        assert_eq!(find("plain").xattrs.len(), 1);
        assert_eq!(find("plain").xattrs[0].value, b"value");
    }
    assert_eq!(captured.half.entries, entries.len() as u64);
}

#[test]
fn case_10_a_capture_that_fails_is_no_restore_point() {
    let mut lab = Lab::new();
    lab.write("file", "content");
    let control = Control::silent();
    let session = lab.store.session(&control).expect("session");
    let scope = Scope { source: Some(vec!["file".into(), "gone".into()]), ..lab.scope() };
    let error = capture(&scope, &session, &mut lab.cache, &control).expect_err("a selected path is missing");
    assert_eq!(error.kind(), crate::ErrorKind::NotFound);
    drop(session);
    control.cancel().cancel();
    let other = lab.store.session(&Control::silent()).expect("session");
    let error = capture(&lab.scope(), &other, &mut lab.cache, &control).expect_err("cancelled");
    assert_eq!(error.kind(), crate::ErrorKind::Cancelled);
    drop(other);
    assert!(lab.store.refs().expect("refs").0.is_empty());
}

#[test]
fn case_29_a_capture_is_whole_whatever_the_number_of_files() {
    let (work, base) = (quick_folder(), tempfile::tempdir().expect("folder"));
    let mut lab = Lab::on(work.path(), base.path());
    for n in 0..5_100 {
        lab.write(&format!("d{}/f{n}", n % 40), format!("{n}"));
    }
    let captured = lab.capture();
    assert_eq!(captured.half.entries, 5_140);
    assert!(captured.coverage.complete);
}

#[test]
fn case_35_equal_bytes_are_no_change() {
    let mut lab = Lab::new();
    lab.write(".gitattributes", "* text=auto eol=lf\n");
    lab.write("crlf.txt", "one\r\ntwo\r\n");
    let first = lab.capture();
    lab.write("crlf.txt", "one\r\ntwo\r\n");
    assert_eq!(lab.plan(&first).items, []);
    assert_eq!(lab.plan(&first).unchanged, 2);
}

#[test]
fn case_48_nested_repositories_are_captured_without_their_git() {
    let mut lab = Lab::new();
    lab.write("nested/.git/HEAD", "ref: refs/heads/main\n");
    lab.write("nested/code", "x");
    lab.write("module/.git", "gitdir: ../.git/modules/module\n");
    lab.write("module/code", "y");
    let captured = lab.capture();
    let paths: Vec<String> = entries(&lab, &captured).iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(paths, ["module", "module/code", "nested", "nested/code"]);
    assert!(captured.coverage.complete);
    assert_eq!(left_out(&captured).keys().cloned().collect::<Vec<_>>(), ["module/.git", "nested/.git"]);
}

#[test]
fn a_file_that_never_stands_still_is_recorded_as_unstable() {
    let mut lab = Lab::new();
    lab.write("log", vec![b'x'; 4 << 20]);
    let (path, stop) = (lab.at("log"), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let writer = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().append(true).open(path).expect("open");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                file.write_all(b"line\n").expect("append");
            }
        })
    };
    // A writer that has not begun yet would leave the first read in peace.
    let start = fs::metadata(lab.at("log")).expect("stat").len();
    while fs::metadata(lab.at("log")).expect("stat").len() == start {
        std::thread::yield_now();
    }
    // On a busy machine the writer may stand still all the while, and then the file is as stable as any.
    let log = lab.at("log");
    let length = || fs::metadata(&log).expect("stat").len();
    let captured = loop {
        let before = length();
        let captured = lab.capture();
        if length() > before {
            break captured;
        }
    };
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("writer");
    assert_eq!(captured.unstable, [PathBuf::from("log")]);
    assert!(entries(&lab, &captured)[0].unstable);
}

#[test]
fn a_file_that_cannot_be_read_has_not_moved() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut lab = Lab::new();
    lab.write("plain", "1");
    lab.write("closed", "2");
    std::fs::set_permissions(lab.at("closed"), std::fs::Permissions::from_mode(0o000)).expect("mode");
    // In a thread of its own, which loses what lets root read everything.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = capabilities(None).expect("capabilities");
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).expect("fewer capabilities");
            let captured = lab.capture();
            assert!(captured.coverage.left_out.iter().any(|left| left.path.ends_with("closed")), "{:?}", captured.coverage);
            assert!(!moved_since(&lab.scope(), &captured, &Control::silent()).expect("moved"));
            lab.write("plain", "changed");
            assert!(moved_since(&lab.scope(), &captured, &Control::silent()).expect("moved"));
        });
    });
}

#[test]
fn the_holes_of_a_huge_sparse_file_are_not_read() {
    let test = "the_holes_of_a_huge_sparse_file_are_not_read";
    let Some(image) = crate::clone::tests::Image::new(test, "ext4", &["-q"]) else { return };
    let base = tempfile::tempdir().expect("folder");
    let mut lab = Lab::on(&image.path(), base.path());
    // Reading it all, several times, would take many minutes.
    let size = 64_u64 << 30;
    let sparse = fs::File::create(lab.at("sparse")).expect("sparse");
    sparse.set_len(size).expect("size");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"abc", (40 << 30) + 17).expect("write");
    drop(sparse);
    let target = lab.capture();
    put(&lab.at("sparse"), b"short");
    lab.restore(&target);
    assert_eq!(lab.plan(&target).items, []);
    let back = fs::File::open(lab.at("sparse")).expect("sparse");
    let mut bytes = [0; 5];
    std::os::unix::fs::FileExt::read_exact_at(&back, &mut bytes, (40 << 30) + 16).expect("read");
    assert_eq!((&bytes, back.metadata().expect("stat").len()), (b"\0abc\0", size));
    assert!(back.metadata().expect("stat").blocks() * 512 < 8 << 20);
}
