//! Public failures of stores and backup tools that show when files are put back; `row_N` is the number of the report.

use std::os::unix::fs::symlink;

use super::*;
use crate::ErrorKind;

/// Makes every file old enough for the stat cache to trust it.
fn settle(lab: &Lab) {
    for path in listing(&lab.root()).keys() {
        let path = lab.root().join(path);
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("times");
    }
}

#[test]
fn row_37_row_38_a_shorter_file_leaves_no_tail_and_has_its_exact_size() {
    let mut lab = Lab::new();
    lab.write("short", "short");
    lab.write("empty", "");
    lab.write("large", vec![7; 700_000]);
    let (before, target) = (lab.listing(), lab.capture());
    lab.write("short", "much longer than it was".repeat(9000));
    lab.write("empty", "not any more");
    lab.write("large", vec![7; 700_001]);
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
    assert_eq!(fs::metadata(lab.at("short")).expect("stat").len(), 5);
}

#[test]
fn row_40_an_edit_of_the_same_size_with_the_old_time_is_captured() {
    let mut lab = Lab::new();
    lab.write("file", "before");
    settle(&lab);
    lab.capture();
    lab.write("file", "after!");
    settle(&lab);
    let (edited, second) = (lab.listing(), lab.capture());
    lab.write("file", "again!");
    lab.restore(&second);
    assert_eq!(lab.listing(), edited);
}

#[test]
fn row_43_row_48_links_at_the_target_are_replaced_and_never_written_through() {
    let mut lab = Lab::new();
    let outside = tempfile::tempdir().expect("outside");
    for name in ["a", "b", "c", "deep/d"] {
        lab.write(name, format!("checkpoint {name}"));
    }
    let (before, target) = (lab.listing(), lab.capture());
    put(&outside.path().join("file"), b"outside");
    fs::remove_file(lab.at("a")).expect("remove");
    symlink(outside.path().join("file"), lab.at("a")).expect("link");
    fs::remove_file(lab.at("b")).expect("remove");
    fs::hard_link(outside.path().join("file"), lab.at("b")).or_else(|_| symlink("nowhere", lab.at("b"))).expect("link");
    fs::remove_file(lab.at("c")).expect("remove");
    symlink("c", lab.at("c")).expect("a link to itself");
    clear(lab.at("deep"));
    symlink(outside.path(), lab.at("deep")).expect("link");
    lab.restore(&target);
    assert_eq!(lab.listing(), before, "and it goes on after each");
    assert_eq!(get(&outside.path().join("file")), b"outside");
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 1);
}

#[test]
fn row_45_row_46_attributes_and_modes_come_last() {
    let mut lab = Lab::new();
    lab.write("sealed/tool", "#!/bin/sh\n");
    lab.mode("sealed/tool", 0o6755);
    let capability: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let set = |name: &str, value: &[u8]| rustix::fs::setxattr(lab.at("sealed/tool"), name, value, rustix::fs::XattrFlags::empty()).is_ok();
    let (capable, noted) = (set("security.capability", &capability), set("user.note", b"mine"));
    lab.mode("sealed/tool", 0o6755);
    lab.mode("sealed", 0o555);
    settle(&lab);
    let (before, target) = (lab.listing(), lab.capture());
    lab.mode("sealed", 0o755);
    fs::remove_file(lab.at("sealed/tool")).expect("remove");
    lab.write("sealed/tool", "replaced");
    lab.write("sealed/more", "more");
    lab.restore(&target);
    assert_eq!(lab.listing(), before, "twelve bits of mode, of the folder too");
    let mut value = [0; 64];
    if capable {
        let len = rustix::fs::getxattr(lab.at("sealed/tool"), "security.capability", &mut value).expect("capability");
        assert_eq!(value[..len], capability[..]);
    }
    if noted {
        assert_eq!(rustix::fs::getxattr(lab.at("sealed/tool"), "user.note", &mut value).expect("note"), 4);
    }
}

#[test]
fn row_54_a_hint_alone_never_decides() {
    let mut lab = Lab::new();
    lab.write("file", vec![5; 100_000]);
    lab.write("other", "kept");
    settle(&lab);
    let before = lab.listing();
    lab.capture();
    // The cache says that nothing changed; the store says that it has nothing of it.
    for first in 0..=255_u8 {
        let folder = lab.base.join(format!("store/packs/{first:02x}"));
        clear(&folder);
        make(&folder);
    }
    let target = lab.capture();
    lab.write("file", "edited");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn row_56_row_38_a_restore_that_meets_damage_fails_by_name_and_touches_nothing() {
    let mut lab = Lab::new();
    lab.write("good", "good");
    lab.write("lost", vec![9; 5000]);
    let target = lab.capture();
    lab.write("good", "edited");
    lab.write("lost", "edited too");
    let (edited, safety) = (lab.listing(), lab.capture());
    let packs = lab.base.join("store/packs");
    for folder in fs::read_dir(&packs).expect("list") {
        for pack in fs::read_dir(folder.expect("folder").path()).expect("list") {
            let path = pack.expect("pack").path();
            let mut bytes = get(&path);
            // The first chunk of the pack of the first capture, whatever it is.
            bytes[90] ^= 1;
            fs::remove_file(&path).expect("remove");
            put(&path, &bytes);
        }
    }
    let (reader, scope, folders) = (lab.reader(), lab.scope_of(&target), lab.folders());
    let request = lab.request(&reader, &scope, &target, &safety, &folders);
    let error = stage(&request, &Control::silent()).map(drop).and_then(|()| install(&request, &Control::silent()).map(drop));
    let error = error.expect_err("a chunk is damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.hint_text().is_some() && error.context().iter().any(|(key, _)| *key == "path"), "{error:?}");
    assert_eq!(lab.listing(), edited);
}

#[test]
fn row_57_what_the_checkpoint_does_not_have_goes() {
    let mut lab = Lab::new();
    lab.write("file", "one");
    let (before, target) = (lab.listing(), lab.capture());
    lab.write("left/over/from/a/run", "x");
    lab.write("file.orig", "x");
    symlink("file", lab.at("stray")).expect("link");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn row_59_a_sparse_file_comes_back_sparse_and_exact() {
    let mut lab = Lab::new();
    let file = fs::File::create(lab.at("sparse")).expect("sparse");
    for at in [0_u64, 3 << 20, (9 << 20) + 5] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"island", at).expect("write");
    }
    file.set_len(48 << 20).expect("size");
    // Zeros that are written are content, not a hole.
    lab.write("zeros", vec![0; 300_000]);
    let (before, target) = (lab.listing(), lab.capture());
    drop(file);
    lab.write("sparse", "dense");
    lab.write("zeros", "x");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
    assert!(fs::metadata(lab.at("sparse")).expect("stat").blocks() * 512 < 8 << 20);
}
