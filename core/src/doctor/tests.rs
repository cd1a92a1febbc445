//! The doctor on real folders and file systems.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::clone::tests::Image;

fn examine_at(store: &Path) -> Report {
    examine(store, &Environment::read(), &Control::silent()).unwrap()
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    let found: Vec<&Check> = report.checks.iter().filter(|check| check.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {report:#?}");
    found[0]
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn a_store_that_is_not_there_is_examined_in_its_nearest_parent_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("not/there/store");
    let report = examine_at(&store);
    assert_eq!((report.store.as_path(), report.examined.as_path()), (store.as_path(), folder.path()));
    assert!(report.able && !report.exists, "{report:#?}");
    assert_eq!(listing(folder.path()), Vec::<PathBuf>::new());
    for name in ["copy", "writable", "locks", "sync", "file_system"] {
        assert!(check(&report, name).required, "{name}");
        assert_ne!(check(&report, name).state, State::Unavailable, "{name}");
    }
    for name in [
        "snapshot",
        "reflink",
        "space",
        "inodes",
        "leases",
        "seccomp",
        "landlock",
        "user_namespaces",
        "network_namespaces",
        "shared_memory",
    ] {
        assert!(!check(&report, name).required, "{name}");
        assert!(!check(&report, name).found.is_empty() && !check(&report, name).found.contains('\n'), "{name}");
    }
    let best = report.best.clone.as_deref().unwrap();
    assert_eq!(check(&report, best).state, State::Available);
}

#[test]
fn a_store_is_examined_in_itself_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let before = listing(folder.path());
    let report = examine_at(store.path());
    assert_eq!(report.examined, store.branches());
    assert!(report.able && report.exists, "{report:#?}");
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn a_store_of_another_format_is_not_one_that_this_machine_can_run() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let path = store.path().to_owned();
    let text = String::from_utf8(crate::sys::fs::read(&path.join("FORMAT")).unwrap()).unwrap();
    crate::sys::fs::remove_file(&path.join("FORMAT")).unwrap();
    let newer = text.replace("\"version\":1", "\"version\":9").replace("\"version\": 1", "\"version\": 9");
    assert_ne!(newer, text);
    crate::sys::fs::write_new(&path.join("FORMAT"), &[newer.as_bytes()], 0o600, &crate::sys::fs::Syncs::new()).unwrap();
    let report = examine_at(&path);
    assert!(!report.able, "{report:#?}");
    assert!(report.lacking.iter().any(|line| line.starts_with("format: ")), "{:?}", report.lacking);
}

#[test]
fn what_a_killed_doctor_left_is_removed_by_the_next_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join(format!(".forklift-doctor-{}", crate::sys::id::sortable().unwrap()));
    let mine = folder.path().join(".forklift-doctor-mine");
    let alive = folder.path().join(format!(".forklift-doctor-{}", crate::sys::id::sortable().unwrap()));
    for path in [&dead, &mine, &alive] {
        std::fs::create_dir(path).unwrap();
        crate::sys::fs::create_new(&path.join("file"), 0o600).unwrap();
    }
    let _lock = crate::sys::lock::Lock::attempt_existing(&alive, crate::sys::lock::Mode::Exclusive).unwrap().unwrap();
    examine_at(folder.path());
    assert!(!dead.exists());
    assert!(mine.join("file").exists() && alive.join("file").exists());
}

#[test]
fn a_place_that_cannot_be_written_to_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Root writes anywhere but where nothing can be written.
    let place = if rustix::process::geteuid().is_root() { PathBuf::from("/proc/sys") } else { closed };
    let report = examine_at(&place.join("store"));
    assert!(!report.able, "{report:#?}");
    assert_eq!(check(&report, "writable").state, State::Unavailable);
    for name in ["snapshot", "reflink", "copy", "locks"] {
        assert_eq!(check(&report, name).state, State::Unknown, "{name}");
    }
    assert_eq!(report.best.clone, None);
    let refused = examine(Path::new("relative"), &Environment::read(), &Control::silent()).unwrap_err();
    assert_eq!(refused.kind(), crate::ErrorKind::InvalidArgument);
}

#[test]
fn the_best_clone_is_the_one_of_the_file_system() {
    for (kind, options, best) in
        [("ext4", &["-q"][..], "copy"), ("xfs", &["-q", "-m", "reflink=1"], "reflink"), ("btrfs", &["-q"], "snapshot")]
    {
        let test = format!("the_best_clone_is_the_one_of_the_file_system ({kind})");
        let Some(image) = Image::new(&test, kind, options) else { continue };
        let report = examine_at(&image.path().join("store"));
        assert_eq!(report.best.clone.as_deref(), Some(best), "{report:#?}");
        assert_eq!(check(&report, "copy").state, State::Available);
        let reflink = check(&report, "reflink");
        assert_eq!(reflink.state == State::Available, kind != "ext4", "{reflink:?}");
        if kind != "ext4" {
            assert_eq!(reflink.facts["exclusive"], 0);
        }
        assert!(listing(&image.path()).iter().all(|path| path.ends_with("lost+found")), "{:?}", listing(&image.path()));
    }
}
