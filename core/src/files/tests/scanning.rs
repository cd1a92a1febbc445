//! Which names belong to a scope. No store is needed here.

use super::*;
use crate::ErrorKind;
use crate::files::scan::scan;

fn tree() -> (tempfile::TempDir, Scope) {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("real path");
    (folder, Scope { root, ..Scope::default() })
}

fn write(scope: &Scope, path: &str, content: &[u8]) {
    let path = scope.root.join(path);
    make(path.parent().expect("parent"));
    put(&path, content);
}

fn names(scope: &Scope) -> Vec<String> {
    let scan = scan(scope, &Control::silent()).expect("scan");
    assert!(scan.found.is_sorted_by(|first, second| first.path < second.path));
    scan.found.iter().map(|found| String::from_utf8_lossy(&found.path).into_owned()).collect()
}

fn reasons(scope: &Scope) -> Vec<(String, String)> {
    let coverage = scan(scope, &Control::silent()).expect("scan").coverage();
    coverage.left_out.into_iter().map(|left| (left.path.to_string_lossy().into_owned(), left.reason)).collect()
}

#[test]
fn ignore_rules_of_the_tree_without_git() {
    let (_folder, scope) = tree();
    write(&scope, ".gitignore", b"*.log\nnode_modules/\n!keep.log\n/top.txt\n\xef\xbf\n");
    write(&scope, "a.log", b"small: kept");
    write(&scope, "keep.log", &vec![1; 2 << 20]);
    write(&scope, "big.log", &vec![1; (1 << 20) + 1]);
    write(&scope, "top.txt", &vec![1; 2 << 20]);
    write(&scope, "sub/top.txt", &vec![1; 2 << 20]);
    write(&scope, "sub/.gitignore", b"!*.log\r\nprivate\r\n");
    write(&scope, "sub/big.log", &vec![1; 2 << 20]);
    write(&scope, "sub/private/x", b"x");
    write(&scope, "node_modules/m/index.js", b"x");
    write(&scope, "build/out.log", b"ignored in a build folder");
    write(&scope, "build/script.sh", b"not ignored");
    write(&scope, ".ignore", b"sub\n");
    write(&scope, ".git/config", b"[core]\n");
    write(&scope, ".git/info/exclude", b"sub\n");
    assert_eq!(
        names(&scope),
        [".gitignore", ".ignore", "a.log", "build", "build/script.sh", "keep.log", "sub", "sub/.gitignore", "sub/big.log", "sub/top.txt"]
    );
    let expected = [
        (".git", "git"),
        ("big.log", "ignored and larger than 1 MiB"),
        ("build", "ignored files in a build folder"),
        ("node_modules", "ignored folder"),
        ("sub/private", "ignored folder"),
        ("top.txt", "ignored and larger than 1 MiB"),
    ];
    assert_eq!(reasons(&scope), expected.map(|(path, reason)| (path.to_owned(), reason.to_owned())));
}

#[test]
fn selected_paths_are_taken_whole_but_for_git_and_excludes() {
    let (_folder, mut scope) = tree();
    write(&scope, ".gitignore", b"gen\n");
    write(&scope, "app/gen/x", b"x");
    write(&scope, "app/tmp/y", b"y");
    write(&scope, "app/.git/HEAD", b"ref");
    write(&scope, "other/z", b"z");
    write(&scope, "app.d", b"sorts between");
    scope.source = Some(vec!["./app/".into(), "app/gen".into(), "app.d".into()]);
    scope.exclude = vec!["tmp/".into()];
    assert_eq!(names(&scope), ["app", "app.d", "app/gen", "app/gen/x"]);
    scope.source = Some(vec![".".into()]);
    assert_eq!(names(&scope), [".gitignore", "app", "app.d", "app/gen", "app/gen/x", "other", "other/z"]);
    scope.source = Some(vec!["missing".into()]);
    let error = scan(&scope, &Control::silent()).expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("missing"));
}

#[test]
fn the_store_below_the_root_is_not_entered() {
    let (_folder, mut scope) = tree();
    write(&scope, "data/store/packs/x", b"x");
    write(&scope, "data/y", b"y");
    scope.never = vec![scope.root.join("data/store")];
    assert_eq!(names(&scope), ["data", "data/y"]);
    let coverage = scan(&scope, &Control::silent()).expect("scan").coverage();
    assert!(coverage.complete, "{coverage:?}");
}

#[test]
fn case_58_home_and_root_are_refused() {
    let (_folder, scope) = tree();
    let check = |root: &Path, home: &Path| Scope { root: root.to_owned(), ..Scope::default() }.check(Some(home));
    let home = scope.root.join("home");
    make(home.join("project"));
    assert!(check(&home.join("project"), &home).is_ok());
    for refused in [home.as_path(), &scope.root, Path::new("/"), Path::new("relative")] {
        let error = check(refused, &home).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(&*refused.to_string_lossy()) && error.hint_text().is_some(), "{error}");
    }
    std::os::unix::fs::symlink(home.join("project"), scope.root.join("link")).expect("link");
    assert_eq!(check(&scope.root.join("link"), &home).expect_err("link").kind(), ErrorKind::InvalidArgument);
    assert_eq!(check(&scope.root.join("none"), &home).expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn source_paths_and_patterns_that_are_not_allowed() {
    let (_folder, scope) = tree();
    make(scope.root.join("real/x"));
    std::os::unix::fs::symlink("real", scope.root.join("link")).expect("link");
    let check = |source: &str| Scope { source: Some(vec![source.into()]), ..scope.clone() }.check(None);
    for good in ["real", "./real/x", "real/", "not/there/yet", "link", "."] {
        check(good).expect(good);
    }
    for bad in ["", "/etc", "../x", "real/../../x", "link/x", ".git", "real/.git/hooks", "a\0b"] {
        assert_eq!(check(bad).expect_err(bad).kind(), ErrorKind::Config);
    }
    let none = Scope { source: Some(Vec::new()), ..scope.clone() };
    assert_eq!(none.check(None).expect_err("nothing").kind(), ErrorKind::Config);
    let pattern = Scope { exclude: vec!["a".into(), "x[".into()], ..scope };
    let error = pattern.check(None).expect_err("pattern");
    assert!(error.message().contains("x["), "{error}");
}

#[test]
fn a_root_that_is_gone_is_an_error_and_not_an_empty_tree() {
    let (folder, scope) = tree();
    folder.close().expect("remove");
    assert_eq!(scan(&scope, &Control::silent()).expect_err("gone").kind(), ErrorKind::NotFound);
}

#[test]
fn depth_500_and_10_000_empty_folders() {
    let folder = quick_folder();
    let scope = Scope { root: folder.path().to_owned(), ..Scope::default() };
    let mut deep = scope.root.clone();
    for level in 0..500 {
        deep.push(format!("level-{level}"));
        // One path to all of them would be too long for a single call.
        if deep.as_os_str().len() > 3500 {
            break;
        }
        fs::create_dir(&deep).expect("deep");
    }
    let mut fd = rustix::fs::open(deep.parent().expect("parent"), rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).expect("open");
    let mut below = 0;
    for level in 0..500 {
        let name = format!("below-{level}");
        rustix::fs::mkdirat(&fd, &name, rustix::fs::Mode::RWXU).expect("mkdir");
        fd = rustix::fs::openat(&fd, &name, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).expect("open");
        below += 1;
    }
    for n in 0..10_000 {
        fs::create_dir(scope.root.join(format!("empty-{n}"))).expect("empty");
    }
    let found = names(&scope);
    assert!(found.len() > 10_000 + below + 100, "{}", found.len());
    crate::sys::fs::remove_tree(&scope.root).expect("remove");
}
