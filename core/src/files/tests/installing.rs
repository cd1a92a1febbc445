//! Restores: exactness, and what is left alone.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;

use super::*;
use crate::ErrorKind;

#[test]
fn a_tree_comes_back_exactly() {
    let mut lab = Lab::new();
    lab.write("keep", "same");
    lab.write("edit", "before");
    lab.write("remove", "x");
    lab.write("dir/inner/file", "deep");
    lab.write("becomes-folder", "a file");
    lab.write("becomes-file/x", "in a folder");
    lab.write("becomes-link", "a file");
    symlink("keep", lab.at("link")).expect("link");
    let large: Vec<u8> = (0..600_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    lab.write("large", &large);
    fs::create_dir(lab.at("empty")).expect("folder");
    let before = lab.listing();
    let target = lab.capture();
    let kept_time = fs::metadata(lab.at("keep")).expect("stat").mtime_nsec();

    lab.write("edit", "after!");
    fs::remove_file(lab.at("remove")).expect("remove");
    clear(lab.at("dir/inner"));
    lab.write("added/new", "new");
    fs::remove_file(lab.at("becomes-folder")).expect("remove");
    lab.write("becomes-folder/y", "y");
    fs::remove_file(lab.at("becomes-file/x")).expect("remove");
    fs::remove_dir(lab.at("becomes-file")).expect("remove");
    lab.write("becomes-file", "now a file");
    fs::remove_file(lab.at("becomes-link")).expect("remove");
    symlink("edit", lab.at("becomes-link")).expect("link");
    fs::remove_file(lab.at("link")).expect("remove");
    symlink("elsewhere", lab.at("link")).expect("link");
    fs::remove_dir(lab.at("empty")).expect("remove");
    let mut changed = large.clone();
    changed[1_000_000] ^= 1;
    lab.write("large", &changed);
    let middle = lab.listing();

    let plan = verdicts(&lab.plan(&target).items);
    let safety = lab.capture();
    let report = lab.install(&target, &safety);
    assert_eq!(lab.listing(), before);
    assert_eq!(plan, verdicts(&report.items), "what was planned is what was done");
    assert_eq!(plan["edit"], Verdict::Restore);
    assert_eq!(plan["remove"], Verdict::Create);
    assert_eq!(plan["added"], Verdict::Delete);
    assert!(!plan.contains_key("keep") && !lab.kept().exists());
    assert_eq!(fs::metadata(lab.at("keep")).expect("stat").mtime_nsec(), kept_time, "case 40: what does not differ is not touched");
    assert!(report.fsyncs > 0);

    let again = lab.capture();
    assert_eq!(lab.install(&target, &again).items, []);
    lab.install(&safety, &again);
    assert_eq!(lab.listing(), middle, "a restore can be undone");
}

#[test]
fn case_12_a_rule_of_today_protects_although_the_restore_takes_it_back() {
    let mut lab = Lab::new();
    lab.write(".gitignore", "*.tmp\n");
    lab.write("code", "x");
    let target = lab.capture();
    lab.write(".gitignore", "*.tmp\nprivate.txt\n");
    lab.write("private.txt", "the only copy");
    lab.write("agent.txt", "made by the agent");
    let plan = verdicts(&lab.plan(&target).items);
    let report = lab.restore(&target);
    assert_eq!(get(&lab.at("private.txt")), b"the only copy");
    assert!(!lab.at("agent.txt").exists());
    assert_eq!(get(&lab.at(".gitignore")), b"*.tmp\n");
    assert_eq!((plan["private.txt"], plan["agent.txt"]), (Verdict::NotCaptured, Verdict::Delete));
    assert!(!verdicts(&report.items).contains_key("private.txt"));
}

#[test]
fn case_13_not_captured_is_never_deleted() {
    let mut lab = Lab::new();
    lab.write(".gitignore", "data.bin\n");
    lab.write("data.bin", vec![1; 3 << 20]);
    let target = lab.capture();
    assert_eq!(left_out(&target)["data.bin"], "ignored and larger than 1 MiB");
    // Today it is small and no rule names it: only the checkpoint's coverage knows.
    lab.write(".gitignore", "");
    lab.write("data.bin", "shrunk");
    assert_eq!(verdicts(&lab.plan(&target).items)["data.bin"], Verdict::NotCaptured);
    lab.restore(&target);
    assert_eq!(get(&lab.at("data.bin")), b"shrunk");
    assert_eq!(get(&lab.at(".gitignore")), b"data.bin\n");
}

#[test]
fn case_13_what_a_capture_could_not_read_is_never_deleted() {
    let mut lab = Lab::new();
    lab.write("code", "x");
    let mut target = lab.capture();
    let denied = serde_json::json!([{ "path": "locked", "reason": "unreadable: permission denied" }]);
    target.half.facts["scope"]["left_out"] = denied;
    lab.write("locked/in/file", "readable today");
    lab.write("other", "made later");
    let plan = verdicts(&lab.plan(&target).items);
    assert_eq!((plan["locked/in/file"], plan["locked"], plan["other"]), (Verdict::NotCaptured, Verdict::NotCaptured, Verdict::Delete));
    lab.restore(&target);
    assert_eq!(get(&lab.at("locked/in/file")), b"readable today");
    assert!(!lab.at("other").exists());
}

#[test]
fn case_16_ignored_files_survive_or_come_back() {
    let mut lab = Lab::new();
    lab.write(".gitignore", ".env\n*.keystore\ndist/\nlate.env\n");
    lab.write(".env", "SECRET=1");
    lab.write("app.keystore", "key");
    lab.write("dist/app.js", "built");
    lab.write("src/main", "one");
    let target = lab.capture();
    lab.write("src/main", "two");
    lab.write(".env", "SECRET=2");
    fs::remove_file(lab.at("app.keystore")).expect("remove");
    lab.write("dist/app.js", "built again");
    lab.write("late.env", "made after the checkpoint");
    let plan = verdicts(&lab.plan(&target).items);
    assert_eq!((plan["dist"], plan["late.env"]), (Verdict::NotCaptured, Verdict::NotCaptured));
    lab.restore(&target);
    assert_eq!((get(&lab.at(".env")), get(&lab.at("app.keystore"))), (b"SECRET=1".to_vec(), b"key".to_vec()));
    assert_eq!((get(&lab.at("dist/app.js")), get(&lab.at("late.env"))), (b"built again".to_vec(), b"made after the checkpoint".to_vec()));
    assert_eq!(get(&lab.at("src/main")), b"one");
}

#[test]
fn case_31_33_newer_files_go_and_empty_folders_come_back() {
    let mut lab = Lab::new();
    make(lab.at("empty/nested"));
    let target = lab.capture();
    clear(lab.at("empty"));
    lab.write("newer/file", "x");
    lab.restore(&target);
    assert_eq!(lab.listing().into_keys().collect::<Vec<_>>(), [PathBuf::from("empty"), PathBuf::from("empty/nested")]);
    assert_eq!(lab.plan(&target).items, []);
}

#[test]
fn case_34_36_bytes_stay_bytes() {
    let mut lab = Lab::new();
    lab.write(".gitattributes", "* text=auto\n*.id ident\n");
    lab.write("crlf.txt", "one\r\ntwo\r\n");
    lab.write("x.id", "$Id$\n");
    lab.write("bom.txt", b"\xef\xbb\xbfbom");
    let random: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    lab.write("random", &random);
    let (before, target) = (lab.listing(), lab.capture());
    for name in ["crlf.txt", "x.id", "bom.txt", "random"] {
        lab.write(name, "changed");
    }
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn case_38_39_modes_come_back_before_the_content_shows() {
    let mut lab = Lab::new();
    for mode in [0o400, 0o600, 0o644, 0o755, 0o4755, 0o2711, 0o1640] {
        lab.write(&format!("mode-{mode:o}"), format!("{mode:o}"));
        lab.mode(&format!("mode-{mode:o}"), mode);
    }
    lab.write("sealed/file", "sealed");
    lab.mode("sealed", 0o555);
    let (before, target) = (lab.listing(), lab.capture());
    lab.mode("sealed", 0o755);
    lab.write("sealed/file", "opened");
    lab.write("sealed/new", "new");
    lab.mode("sealed", 0o511);
    for mode in [0o400, 0o644, 0o4755] {
        fs::remove_file(lab.at(&format!("mode-{mode:o}"))).expect("remove");
        lab.write(&format!("mode-{mode:o}"), "changed");
        lab.mode(&format!("mode-{mode:o}"), 0o666);
    }
    lab.mode("mode-755", 0o644);
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn case_41_odd_names() {
    let mut lab = Lab::new();
    let long = "l".repeat(255);
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"\"quoted\" 'name'",
        b"\xff\xfe not utf-8",
        "漢字".as_bytes(),
        "🦀".as_bytes(),
        long.as_bytes(),
        b"-rf",
        b"a\\b",
        b" space ",
    ];
    for name in names {
        put(&lab.root().join(OsStr::from_bytes(name)), name);
    }
    let (before, target) = (lab.listing(), lab.capture());
    for name in names {
        fs::remove_file(lab.root().join(OsStr::from_bytes(name))).expect("remove");
    }
    put(&lab.root().join(OsStr::from_bytes(b"\xff new")), b"x");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
    for name in names {
        put(&lab.root().join(OsStr::from_bytes(name)), b"edited");
    }
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn case_43_a_planted_link_leads_nowhere() {
    let mut lab = Lab::new();
    let outside = tempfile::tempdir().expect("outside");
    put(&outside.path().join("file"), b"outside");
    lab.write("file", "inside");
    lab.write("dir/file", "inside");
    let (before, target) = (lab.listing(), lab.capture());
    fs::remove_file(lab.at("file")).expect("remove");
    symlink(outside.path().join("file"), lab.at("file")).expect("link");
    clear(lab.at("dir"));
    symlink(outside.path(), lab.at("dir")).expect("link");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
    assert_eq!(get(&outside.path().join("file")), b"outside");
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 1);
}

#[test]
fn case_43_a_link_above_a_selected_path_is_refused_before_anything_is_touched() {
    let mut lab = Lab::new();
    let outside = tempfile::tempdir().expect("outside");
    lab.write("dir/file", "inside");
    lab.write("plain", "one");
    let scope = Scope { source: Some(vec!["dir/file".into(), "plain".into()]), ..lab.scope() };
    let target = lab.capture_scope(&scope);
    clear(lab.at("dir"));
    symlink(outside.path(), lab.at("dir")).expect("link");
    lab.write("plain", "two");
    let safety = lab.capture_scope(&Scope { source: Some(vec!["plain".into()]), ..lab.scope() });
    let (reader, scope, folders) = (lab.reader(), lab.scope_of(&target), lab.folders());
    let request = lab.request(&reader, &scope, &target, &safety, &folders);
    let error = stage(&request, &Control::silent()).expect_err("a link is in the way");
    assert_eq!(error.kind(), ErrorKind::Edited);
    assert!(error.message().contains("dir"), "{error}");
    assert_eq!(get(&lab.at("plain")), b"two");
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 0);
}

#[test]
fn case_45_an_absolute_link_into_the_tree_is_text() {
    let mut lab = Lab::new();
    lab.write("data/file", "x");
    symlink(lab.at("data"), lab.at("alias")).expect("link");
    let (before, target) = (lab.listing(), lab.capture());
    fs::remove_file(lab.at("alias")).expect("remove");
    lab.write("alias/file", "a folder now");
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
}

#[test]
fn case_47_no_git_is_touched() {
    let mut lab = Lab::new();
    lab.write(".git/HEAD", "one");
    lab.write("sub/.git/HEAD", "one");
    lab.write("sub/file", "one");
    let target = lab.capture();
    lab.write(".git/HEAD", "two");
    lab.write("sub/.git/HEAD", "two");
    lab.write("sub/file", "two");
    lab.write("late/.git/HEAD", "a repository made later");
    lab.write("late/file", "x");
    let report = lab.restore(&target);
    assert_eq!((get(&lab.at(".git/HEAD")), get(&lab.at("sub/.git/HEAD"))), (b"two".to_vec(), b"two".to_vec()));
    assert_eq!(get(&lab.at("sub/file")), b"one");
    assert!(lab.at("late/.git/HEAD").exists() && !lab.at("late/file").exists());
    assert_eq!(verdicts(&report.items)["late"], Verdict::NotCaptured);
}

#[test]
fn hard_links_are_linked_again_and_others_are_parted() {
    let mut lab = Lab::new();
    lab.write("a", "shared");
    fs::hard_link(lab.at("a"), lab.at("b")).expect("link");
    fs::hard_link(lab.at("a"), lab.at("dir-c")).expect("link");
    lab.write("x", "alike");
    lab.write("y", "alike");
    let target = lab.capture();
    fs::remove_file(lab.at("b")).expect("remove");
    lab.write("b", "shared");
    fs::remove_file(lab.at("dir-c")).expect("remove");
    fs::remove_file(lab.at("y")).expect("remove");
    fs::hard_link(lab.at("x"), lab.at("y")).expect("link");
    assert_eq!(verdicts(&lab.plan(&target).items).into_keys().collect::<Vec<_>>(), ["b", "dir-c", "y"]);
    lab.restore(&target);
    let inode = |path: &str| fs::metadata(lab.at(path)).expect("stat").ino();
    assert_eq!((inode("a"), inode("a")), (inode("b"), inode("dir-c")));
    assert_ne!(inode("x"), inode("y"));
    assert_eq!(lab.plan(&target).items, []);
}

#[test]
fn sparse_files_attributes_and_pipes_come_back() {
    let mut lab = Lab::new();
    let sparse = fs::File::create(lab.at("sparse")).expect("sparse");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", (1 << 20) + 17).expect("write");
    sparse.set_len(64 << 20).expect("size");
    lab.write("noted", "x");
    let set = |path: PathBuf, name: &str| rustix::fs::setxattr(path, name, b"value", rustix::fs::XattrFlags::empty()).is_ok();
    let attributes = set(lab.at("noted"), "user.note") && set(lab.root(), "user.root");
    crate::sys::tree::make_fifo(std::os::fd::AsFd::as_fd(&fs::File::open(lab.root()).expect("root")), b"pipe", 0o620).expect("pipe");
    let (before, target) = (lab.listing(), lab.capture());
    fs::remove_file(lab.at("sparse")).expect("remove");
    fs::remove_file(lab.at("pipe")).expect("remove");
    if attributes {
        rustix::fs::removexattr(lab.at("noted"), "user.note").expect("remove");
        assert!(set(lab.at("noted"), "user.other"));
    }
    lab.restore(&target);
    assert_eq!(lab.listing(), before);
    assert!(fs::metadata(lab.at("sparse")).expect("stat").blocks() * 512 < 1 << 20);
    if attributes {
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(lab.at("noted"), "user.note", &mut value).expect("attribute"), 5);
        assert!(rustix::fs::getxattr(lab.at("noted"), "user.other", &mut value).is_err());
    }
    assert_eq!(lab.plan(&target).items, []);
}

#[test]
fn paths_of_todays_list_alone_are_outside() {
    let mut lab = Lab::new();
    lab.write("src/a", "one");
    lab.write("docs/b", "one");
    let narrow = Scope { source: Some(vec!["src".into()]), ..lab.scope() };
    let target = lab.capture_scope(&narrow);
    lab.write("src/a", "two");
    lab.write("src/new", "x");
    lab.write("docs/b", "two");
    let today = Scope { source: Some(vec!["src".into(), "docs".into()]), ..lab.scope() };
    let plan = lab.plan_scope(&target, &today);
    let expected = [("docs", Verdict::Outside), ("docs/b", Verdict::Outside), ("src/a", Verdict::Restore), ("src/new", Verdict::Delete)];
    assert_eq!(verdicts(&plan.items), expected.map(|(path, verdict)| (path.to_owned(), verdict)).into());
    lab.write("src/new", "y");
    assert_ne!(lab.plan_scope(&target, &today).id, plan.id, "the plan's id is a hash of all it saw");
    let safety = lab.capture_scope(&today);
    lab.install(&target, &safety);
    assert_eq!((get(&lab.at("src/a")), get(&lab.at("docs/b"))), (b"one".to_vec(), b"two".to_vec()));
    assert!(!lab.at("src/new").exists());
}

#[test]
fn a_selected_path_that_is_gone_today_is_made_again() {
    let mut lab = Lab::new();
    lab.write("deep/down/file", "x");
    let scope = Scope { source: Some(vec!["deep/down".into()]), ..lab.scope() };
    let target = lab.capture_scope(&scope);
    clear(lab.at("deep"));
    assert_eq!(verdicts(&lab.plan(&target).items).into_keys().collect::<Vec<_>>(), ["deep/down", "deep/down/file"]);
    let safety = lab.scope_of(&target).existing();
    let safety = lab.capture_scope(&safety);
    assert_eq!(safety.half.entries, 0);
    lab.install(&target, &safety);
    assert_eq!(get(&lab.at("deep/down/file")), b"x");
}

#[test]
fn a_file_that_only_looks_like_a_leftover_is_left_alone() {
    let mut lab = Lab::new();
    lab.write("edit", "before");
    let names = [".forklift-0123456789abcdef01234567.new", ".forklift-0123456789abcdef01234567.old"];
    for name in names {
        lab.write(name, "precious");
    }
    let target = lab.capture();
    lab.write("edit", "after");
    let safety = lab.capture();
    lab.install(&target, &safety);
    for name in names {
        assert_eq!(get(&lab.at(name)), b"precious");
    }
}
