//! Pools on real loop devices, each test in a mount namespace of its own, whose mounts and devices end with it.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use crate::progress::Control;
use crate::sys::fs::Syncs;

const MIB: u64 = 1 << 20;
/// Set in the process that runs in the namespace; its value is the folder of a test that a child of it takes part in.
const INSIDE: &str = "FORKLIFT_TEST_POOL";

#[allow(clippy::disallowed_methods, reason = "how a test tells itself that it runs in its namespace")]
fn inside() -> Option<std::ffi::OsString> {
    std::env::var_os(INSIDE)
}

/// Runs this test again in a mount namespace of its own, and gives `true` there.
fn in_own_namespace(test: &str) -> bool {
    if inside().is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED {test}: mounting needs root");
        return false;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("clone::pool::tests::{test}"), "--nocapture"]).env(INSIDE, "").stdin(Stdio::null());
    let ended = command.output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{line}");
    }
    assert!(ended.status.success(), "{said}");
    false
}

/// Whether this machine can mount an image at all, and has the programs; said aloud where not.
fn possible(test: &str, kind: PoolKind) -> bool {
    crate::clone::tests::Image::new(&format!("{test} ({})", kind.name()), kind.name(), &["-q"]).is_some()
}

struct Setting {
    folder: tempfile::TempDir,
    host: PoolHost,
}

const FSTAB: &[u8] = b"# the table of this test\nUUID=0 / ext4 defaults 0 1\n";

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = PoolHost { systemd: false, units: folder.path().join("units"), fstab: folder.path().join("fstab") };
        crate::sys::fs::replace(&host.fstab, FSTAB, 0o644, &Syncs::new()).unwrap();
        Self { folder, host }
    }

    fn pool(&self) -> Pool {
        Pool::at(&self.folder.path().join("a/pool"), self.host.clone()).unwrap()
    }

    fn assert_gone(&self) {
        assert!(!self.pool().folder().exists());
        assert_eq!(crate::sys::fs::read(&self.host.fstab).unwrap(), FSTAB);
        let here = self.folder.path().canonicalize().unwrap();
        assert!(mounts::list().unwrap().iter().all(|mount| !mount.point.starts_with(&here)));
    }
}

fn put(path: &Path, bytes: &[u8]) {
    File::create(path).and_then(|mut file| file.write_all(bytes)).unwrap();
}

fn lives(test: &str, kind: PoolKind) {
    if !possible(test, kind) {
        return;
    }
    let (setting, control) = (Setting::new(), Control::silent());
    let pool = setting.pool();
    let made = pool.create(512 * MIB + 77, kind, &control).unwrap();
    let status = pool.status().unwrap();
    // XFS gives the blocks of removed probes back a moment later.
    assert_eq!(PoolStatus { free: None, ..made.status }, PoolStatus { free: None, ..status.clone() });
    assert_eq!((status.state, status.mounted, status.comes_back, status.size), (PoolState::Ready, true, true, 512 * MIB));
    assert!(status.allocated >= 512 * MIB, "reserved: {status:?}");
    assert_eq!(status.contents, Vec::<String>::new());
    let table = String::from_utf8(crate::sys::fs::read(&setting.host.fstab).unwrap()).unwrap();
    assert!(table.contains(&format!("{} {} {} loop,", pool.image().display(), pool.mount().display(), kind.name())), "{table}");
    assert!(crate::clone::choose(&pool.mount(), &pool.mount()).unwrap().shares_blocks());
    assert_eq!(pool.create(512 * MIB, kind, &control).unwrap_err().kind(), ErrorKind::AlreadyExists);

    let store = pool.mount().join("store");
    fs::create_dir(&store).unwrap();
    put(&store.join("file"), &vec![3; 8 << 20]);
    let refused = pool.remove(false, &control).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HasDependents);
    assert!(refused.message().contains("store"), "{refused}");
    assert_eq!(pool.grow(256 * MIB, &control).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let free = status.free.unwrap();
    let grown = pool.grow(768 * MIB, &control).unwrap();
    assert_eq!(grown.size, 768 * MIB);
    assert!(grown.free.unwrap() > free + 200 * MIB, "{free} {grown:?}");
    // Broken off before the file system took the new size, and asked for again.
    assert_eq!(pool.grow(768 * MIB, &control).unwrap().size, 768 * MIB);
    assert_eq!(pool.grow(1 << 50, &control).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(pool.status().unwrap().size, 768 * MIB);
    assert_eq!(crate::sys::fs::read(&store.join("file")).unwrap(), vec![3; 8 << 20]);

    // Somebody works in it: nothing happens, whatever was asked for.
    let open = File::open(store.join("file")).unwrap();
    assert_eq!(pool.remove(true, &control).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(pool.status().unwrap().state, PoolState::Ready);
    assert!(store.join("file").exists());
    drop(open);

    // After a boot that did not mount it what is in it is looked at all the same.
    assert!(Command::new("umount").arg(pool.mount()).status().unwrap().success());
    let status = pool.status().unwrap();
    assert!(!status.mounted && status.comes_back && status.free.is_none());
    assert_eq!(pool.grow(800 * MIB, &control).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(pool.remove(false, &control).unwrap_err().kind(), ErrorKind::HasDependents);
    assert!(!pool.status().unwrap().mounted);
    setting.host.mount(&pool.record().unwrap().comes_back, &pool.mount()).unwrap();
    assert_eq!(crate::sys::fs::read(&store.join("file")).unwrap().len(), 8 << 20);

    fs::remove_file(store.join("file")).unwrap();
    fs::remove_dir(&store).unwrap();
    let removed = pool.remove(false, &control).unwrap();
    assert_eq!((removed.contents.len(), removed.written), (0, setting.host.fstab.canonicalize().unwrap()));
    setting.assert_gone();
    assert_eq!(pool.remove(false, &control).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(pool.status().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_xfs_pool_lives_and_goes() {
    if in_own_namespace("an_xfs_pool_lives_and_goes") {
        lives("an_xfs_pool_lives_and_goes", PoolKind::Xfs);
    }
}

#[test]
fn a_btrfs_pool_lives_and_goes() {
    if in_own_namespace("a_btrfs_pool_lives_and_goes") {
        lives("a_btrfs_pool_lives_and_goes", PoolKind::Btrfs);
    }
}

#[test]
fn contents_go_only_on_request() {
    let test = "contents_go_only_on_request";
    if !in_own_namespace(test) || !possible(test, PoolKind::Xfs) {
        return;
    }
    let (setting, control) = (Setting::new(), Control::silent());
    let pool = setting.pool();
    pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap();
    put(&pool.mount().join("file"), b"dear");
    assert_eq!(pool.remove(true, &control).unwrap().contents, ["file"]);
    setting.assert_gone();
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let test = "what_cannot_be_made_leaves_nothing";
    if !in_own_namespace(test) || !possible(test, PoolKind::Xfs) {
        return;
    }
    let (setting, control) = (Setting::new(), Control::silent());
    let pool = setting.pool();
    assert_eq!(pool.create(1 << 50, PoolKind::Xfs, &control).unwrap_err().kind(), ErrorKind::NoSpace);
    setting.assert_gone();
    assert_eq!(pool.create(MIB, PoolKind::Xfs, &control).unwrap_err().kind(), ErrorKind::InvalidArgument);
    setting.assert_gone();
    let cancelled = Control::silent();
    cancelled.cancel().cancel();
    assert_eq!(pool.create(SMALLEST_POOL, PoolKind::Xfs, &cancelled).unwrap_err().kind(), ErrorKind::Cancelled);
    setting.assert_gone();
    // A table that cannot be replaced: the image was made by then.
    let host = PoolHost { fstab: PathBuf::from("/proc/fstab"), ..setting.host.clone() };
    Pool::at(pool.folder(), host).unwrap().create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap_err();
    setting.assert_gone();
    // A folder with something in it stays as it is.
    crate::sys::fs::make_folder(pool.folder(), 0o755).unwrap();
    put(&pool.folder().join("mine"), b"mine");
    assert_eq!(pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(crate::sys::fs::names(pool.folder()).unwrap(), ["mine"]);
    fs::remove_file(pool.folder().join("mine")).unwrap();
    // An empty one that was there before stays when the pool goes.
    pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap();
    let lock = Lock::attempt_existing(pool.folder(), Mode::Exclusive).unwrap().unwrap();
    assert_eq!(pool.remove(false, &control).unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    pool.remove(false, &control).unwrap();
    assert!(crate::sys::fs::names(pool.folder()).unwrap().is_empty());
}

/// As after a kill between the mount and the last record.
#[test]
fn one_that_was_mounted_and_not_finished_is_made_anew_unless_something_is_in_it() {
    let test = "one_that_was_mounted_and_not_finished_is_made_anew_unless_something_is_in_it";
    if !in_own_namespace(test) || !possible(test, PoolKind::Xfs) {
        return;
    }
    let (setting, control) = (Setting::new(), Control::silent());
    let pool = setting.pool();
    pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap();
    let half_made = || Record { state: PoolState::Making, ..pool.record().unwrap() }.save(pool.folder()).unwrap();
    half_made();
    put(&pool.mount().join("file"), b"dear");
    assert_eq!(pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap_err().kind(), ErrorKind::HasDependents);
    assert_eq!(pool.remove(false, &control).unwrap_err().kind(), ErrorKind::HasDependents);
    assert_eq!(crate::sys::fs::read(&pool.mount().join("file")).unwrap(), b"dear");
    fs::remove_file(pool.mount().join("file")).unwrap();
    let made = pool.create(600 * MIB, PoolKind::Xfs, &control).unwrap();
    assert_eq!((made.status.size, made.status.state), (600 * MIB, PoolState::Ready));
    half_made();
    pool.remove(false, &control).unwrap();
    assert_eq!(crate::sys::fs::read(&setting.host.fstab).unwrap(), FSTAB);
    assert!(!pool.image().exists() && !pool.mount().exists());
}

#[test]
fn a_folder_that_no_table_can_name_is_refused() {
    for bad in ["relative", "/", "/with blank", "/a/../b", "/per%cent", "/back\\slash", "/new\nline"] {
        let error = Pool::at(Path::new(bad), PoolHost::detect()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad}");
    }
    assert_eq!(Pool::at(Path::new("/a/./b//c/"), PoolHost::detect()).unwrap().folder(), Path::new("/a/b/c"));
}

/// What the process does that the next test kills; by itself it does nothing.
#[test]
fn makes_or_removes_a_pool_until_it_is_killed() {
    let Some(folder) = inside().filter(|folder| !folder.is_empty()) else { return };
    let folder = PathBuf::from(folder);
    let host = PoolHost { systemd: false, units: folder.join("units"), fstab: folder.join("fstab") };
    let pool = Pool::at(&folder.join("a/pool"), host).unwrap();
    if pool.folder().exists() {
        pool.remove(false, &Control::silent()).ok();
    } else {
        pool.create(SMALLEST_POOL, PoolKind::Xfs, &Control::silent()).ok();
    }
}

#[test]
fn a_kill_in_the_middle_is_cleared_away_or_taken_up_again() {
    let test = "a_kill_in_the_middle_is_cleared_away_or_taken_up_again";
    if !in_own_namespace(test) || !possible(test, PoolKind::Xfs) {
        return;
    }
    let (setting, control) = (Setting::new(), Control::silent());
    let pool = setting.pool();
    let table = || crate::sys::fs::read(&setting.host.fstab).unwrap();
    let state = || Record::load(pool.folder()).ok().flatten().map(|record| record.state);
    let run_until = |reached: &dyn Fn() -> bool| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "clone::pool::tests::makes_or_removes_a_pool_until_it_is_killed"]).env(INSIDE, setting.folder.path());
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !reached() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let making: [&dyn Fn() -> bool; 5] = [
        &|| pool.folder().exists(),
        &|| state().is_some(),
        &|| image::sizes(&pool.image()).is_ok_and(|(size, _)| size == SMALLEST_POOL),
        &|| pool.mount().exists(),
        &|| table() != FSTAB,
    ];
    for (point, reached) in making.into_iter().enumerate() {
        run_until(reached);
        // A program that it had started may go on for a moment, after which everything stands still.
        let settled = || pool.mounted().is_ok();
        assert!(settled(), "point {point}");
        match state() {
            Some(PoolState::Ready) => {}
            _ => {
                let made = retry(|| pool.create(SMALLEST_POOL, PoolKind::Xfs, &control));
                assert!(made.status.mounted, "point {point}");
            }
        }
        assert_eq!(pool.status().unwrap().state, PoolState::Ready);
        retry(|| pool.remove(false, &control));
        assert_eq!(table(), FSTAB);
        if pool.folder().exists() {
            fs::remove_dir(pool.folder()).unwrap();
        }
        assert_eq!(crate::sys::fs::names(setting.folder.path()).unwrap(), ["a", "fstab"], "point {point}");
    }
    // Half made, and not wanted any more.
    run_until(&|| pool.mount().exists());
    if state().is_some() {
        retry(|| pool.remove(false, &control));
    }
    assert_eq!(table(), FSTAB);

    let removing: [&dyn Fn() -> bool; 3] = [&|| state() != Some(PoolState::Ready), &|| table() == FSTAB, &|| !pool.image().exists()];
    for (point, reached) in removing.into_iter().enumerate() {
        if pool.folder().exists() {
            fs::remove_dir(pool.folder()).unwrap();
        }
        pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap();
        run_until(reached);
        if state() == Some(PoolState::Removing) {
            let refused = pool.create(SMALLEST_POOL, PoolKind::Xfs, &control).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "point {point}");
        }
        if state().is_some() {
            retry(|| pool.remove(false, &control));
        }
        assert_eq!(table(), FSTAB, "point {point}");
        assert!(!pool.image().exists());
    }
}

/// A program that a killed process had started (mkfs, mount) goes on for a moment.
fn retry<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    let mut left = 3000;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => {
                left -= 1;
                assert!(left > 0, "{error}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}
