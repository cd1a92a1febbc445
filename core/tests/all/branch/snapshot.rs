//! Forks by snapshot on real btrfs, in a child with a mount namespace of its own.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forklift::branch::{Branch, CaptureMode, ForkFrom, ForkMode, ForkOptions, ForkReport};
use forklift::{ErrorKind, clone};

use super::super::support::wait_for;
use super::{Place, client, commit, program, rows, run, silent, start, stop, value};

/// Tells the child where its file system is.
const DISK: &str = "FORKLIFT_TEST_BTRFS";
/// What the child's shell ends with where the image cannot be mounted.
const NO_MOUNT: i32 = 77;

/// Runs the test `child` on a btrfs image that nobody else sees and that goes with the child.
fn on_btrfs(test: &str, child: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED {test}: mounting needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
    std::fs::File::create(&image).and_then(|file| file.set_len(2 << 30)).unwrap();
    std::fs::create_dir(&mount).unwrap();
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED {test}: no working mkfs.btrfs");
        return;
    }
    let script = format!("mount -o loop \"$1\" \"$2\" || exit {NO_MOUNT}; chmod 711 \"$2\"; shift 2; exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(&image).arg(&mount);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("branch::snapshot::{child}"), "--nocapture"]).env(DISK, &mount);
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(NO_MOUNT) => println!("SKIPPED {test}: no loop mounts here"),
        Ok(output) => panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("SKIPPED {test}: no unshare: {error}"),
    }
}

#[allow(clippy::disallowed_methods, reason = "the parent tells its child the folder so")]
fn disk() -> Option<PathBuf> {
    std::env::var_os(DISK).map(PathBuf::from)
}

fn fork(place: &Place, name: &str, from: &str, mode: ForkMode) -> forklift::Result<(Branch, ForkReport)> {
    place.branches.fork(name, &ForkFrom::Branch(from.to_owned()), &ForkOptions { mode, ..ForkOptions::default() }, &silent())
}

fn data(branch: &Branch) -> PathBuf {
    branch.info().unwrap().data
}

fn is_subvolume(folder: &Path) -> bool {
    std::fs::metadata(folder).unwrap().ino() == 256
}

const SUMS: &str = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), \
     (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history), \
     (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history), \
     (select count(*) > 20 from pgbench_history), \
     (select coalesce(max(n), 0) < (select nextval('seen_n_seq')) from seen)";

#[test]
fn an_atomic_fork_of_a_busy_server_is_consistent_and_cuts_nobody() {
    on_btrfs("an_atomic_fork_of_a_busy_server_is_consistent_and_cuts_nobody", "child_forks_a_busy_server");
}

#[test]
fn child_forks_a_busy_server() {
    let Some(disk) = disk() else { return };
    let place = Place::below(&disk);
    let source = place.running(
        "main",
        "create table seen (n bigserial primary key, at timestamptz default now()); create unlogged table quick as select 1 as x; \
         create extension amcheck",
    );
    assert!(is_subvolume(&data(&source)));
    let made = program(&source, "pgbench").args(["-i", "-q", "-s", "1"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let held = client(&source);
    let script = place.path().join("script");
    let tpcb = "\\set aid random(1, 100000 * :scale)\n\\set bid random(1, 1 * :scale)\n\\set tid random(1, 10 * :scale)\n\\set delta random(-5000, 5000)\n\
         BEGIN;\nUPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
         UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\n\
         UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;\n\
         INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);\n\
         INSERT INTO seen DEFAULT VALUES;\nEND;\n";
    std::fs::File::create(&script).and_then(|mut file| std::io::Write::write_all(&mut file, tpcb.as_bytes())).unwrap();
    let mut load = program(&source, "pgbench")
        .args(["-c", "4", "-T", "600", "-n", "-s", "1", "-f"])
        .arg(&script)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for round in 0..3 {
        let before = value(&source, "select count(*) from pgbench_history").parse::<u64>().unwrap();
        wait_for("the load", || value(&source, &format!("select count(*) > {before} + 20 from pgbench_history")) == "t");
        let name = format!("fork{round}");
        let (fork, report) = fork(&place, &name, "main", ForkMode::Atomic).unwrap();
        assert_eq!((report.mode.as_str(), report.method.as_str()), ("atomic", "snapshot"));
        assert_eq!(report.unlogged, ["app.public.quick"]);
        for part in ["checkpoint", "files", "start"] {
            assert!(report.parts_ms.iter().any(|(name, _)| name == part), "{report:?}");
        }
        start(&fork);
        assert_eq!(rows(&fork, SUMS), ["t|t|t|t|t"]);
        assert_eq!(value(&fork, "select count(*) from quick"), "0");
        run(
            &fork,
            "select bt_index_check(indexrelid, true) from pg_index join pg_class on oid = indexrelid where relam = 403 and relpersistence = 'p'",
        );
        run(&fork, "insert into seen default values; drop table pgbench_history");
        assert!(load.try_wait().unwrap().is_none(), "the load goes on");
        stop(&fork);
        let folder = data(&fork);
        assert!(is_subvolume(&folder));
        place.branches.delete(&name, &silent()).unwrap();
        assert!(!folder.exists());
    }
    // A client that ends by itself tells of no error.
    super::signal(load.id(), libc::SIGINT);
    let output = load.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("ERROR") && !said.contains("closed the connection"), "{said}");
    assert!(!held.is_closed());
    assert_eq!(value(&source, "select to_regclass('pgbench_history') is not null"), "t");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn stopped_branches_and_caches_are_taken_whole() {
    on_btrfs("stopped_branches_and_caches_are_taken_whole", "child_forks_stopped_branches");
}

#[test]
fn child_forks_stopped_branches() {
    let Some(disk) = disk() else { return };
    let place = Place::below(&disk);
    let main =
        place.running("main", "create unlogged table quick as select 1 as x; create table t as select generate_series(1, 50000) as i");
    stop(&main);
    let mut parent = "main".to_owned();
    for name in ["first", "second"] {
        // What is asked of a running source is nothing to a stopped one.
        let (made, report) = fork(&place, name, &parent, ForkMode::Atomic).unwrap();
        assert_eq!((report.mode.as_str(), report.method.as_str(), report.unlogged.len()), ("stopped", "snapshot", 0));
        let used = clone::usage(&data(&made), &silent()).unwrap();
        assert!(used.bytes > 20 << 20 && used.exclusive.unwrap() < 20 << 20, "beyond one segment of WAL: {used:?}");
        start(&made);
        assert_eq!(value(&made, "select (select count(*) from quick), (select count(*) from t)"), "1|50000");
        run(&made, "delete from t where i > 100");
        stop(&made);
        run_count(&made, "100");
        run(&made, "insert into t select generate_series(101, 50000)");
        stop(&made);
        parent = name.to_owned();
    }
    // One whose tablespace lies outside is copied file by file, and holds it.
    let outside = place.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    start(&main);
    run(&main, &format!("create tablespace far location '{}'", outside.display()));
    run(&main, "create table far tablespace far as select 7 as x");
    let refused = fork(&place, "third", "main", ForkMode::Atomic).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    stop(&main);
    let (third, report) = fork(&place, "third", "main", ForkMode::Auto).unwrap();
    assert_eq!((report.mode.as_str(), report.method.as_str()), ("stopped", "reflink"));
    start(&third);
    assert_eq!(value(&third, "select x from far"), "7");
    stop(&third);

    let session = place.store.session(&silent()).unwrap();
    let half = main.capture(&session, CaptureMode::Auto, None, &silent()).unwrap().half;
    let reference = commit(session, &main, half);
    let methods: Vec<(String, String)> = ["fourth", "fifth"]
        .into_iter()
        .map(|name| {
            let from = ForkFrom::Checkpoint(reference.id.clone());
            let (made, report) = place.branches.fork(name, &from, &ForkOptions::default(), &silent()).unwrap();
            assert!(is_subvolume(&data(&made)));
            start(&made);
            assert_eq!(value(&made, "select x from far"), "7");
            stop(&made);
            (report.mode, report.method)
        })
        .collect();
    let pair = |mode: &str, method: &str| (mode.to_owned(), method.to_owned());
    assert_eq!(methods, [pair("checkpoint", "copy"), pair("cache", "snapshot")]);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

fn run_count(branch: &Branch, expected: &str) {
    start(branch);
    assert_eq!(value(branch, "select count(*) from t"), expected);
}

#[test]
fn an_atomic_fork_is_refused_by_name_where_it_is_not_possible() {
    let place = Place::new();
    if is_subvolume(&std::env::temp_dir()) {
        println!("SKIPPED an_atomic_fork_is_refused_by_name_where_it_is_not_possible: the temporary folder is on btrfs");
        return;
    }
    let source = place.running("main", "create table t as select 1 as x");
    let error = fork(&place, "fork", "main", ForkMode::Atomic).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hint_text().is_some_and(|hint| hint.contains("--mode online")), "{error:?}");
    assert_eq!(place.names(), ["main"]);
    assert_eq!(place.leftovers(), Vec::<String>::new());
    stop(&source);
    let mut with = ForkOptions { settings: vec![("fsync".to_owned(), "off".to_owned())], ..ForkOptions::default() };
    with.mode = ForkMode::Atomic;
    let (loose, report) = place.branches.fork("loose", &ForkFrom::Branch("main".to_owned()), &with, &silent()).unwrap();
    assert_eq!(report.mode, "stopped");
    start(&loose);
    let error = fork(&place, "fork", "loose", ForkMode::Atomic).unwrap_err();
    assert!(error.message().contains("fsync"), "{error}");
}
