//! Captures through clones on real XFS and btrfs, in children with a mount namespace of their own.

use std::path::PathBuf;
use std::process::Command;

use forklift::branch::{Branch, Branches, CaptureMode, ClusterCapture, ForkFrom, ForkOptions, ServerState};
use forklift::postgres::{ClusterCache, StoreSink, copy_stopped};
use forklift::store::{ChunkId, EntryKind, Ref};

use super::{Place, client, commit, environment, rows, run, silent, start, stop, value};

/// Tells a child where its file system is.
const IMAGE: &str = "FORKLIFT_TEST_IMAGE";
/// What the child's shell ends with where the image cannot be mounted.
const NO_MOUNT: i32 = 77;

/// Runs the test `child` on an XFS and a btrfs image that nobody else sees, and that go with the child.
fn on_each(test: &str, child: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED {test}: mounting needs root");
        return;
    }
    for kind in ["xfs", "btrfs"] {
        let folder = tempfile::tempdir().unwrap();
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        std::fs::File::create(&image).and_then(|file| file.set_len(1 << 30)).unwrap();
        std::fs::create_dir(&mount).unwrap();
        let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED {test}: no working mkfs.{kind}");
            continue;
        }
        let script = format!("mount -o loop \"$1\" \"$2\" || exit {NO_MOUNT}; chmod 711 \"$2\"; shift 2; exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).arg(&image).arg(&mount);
        let output = command.arg(std::env::current_exe().unwrap()).args(["--exact", child, "--nocapture"]).env(IMAGE, &mount).output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) if output.status.code() == Some(NO_MOUNT) => println!("SKIPPED {test} on {kind}: no loop mounts here"),
            Ok(output) => {
                panic!("on {kind}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
            }
            Err(error) => println!("SKIPPED {test}: no unshare: {error}"),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the parent tells its child the folder so")]
fn mounted() -> Option<PathBuf> {
    std::env::var_os(IMAGE).map(PathBuf::from)
}

fn capture(place: &Place, branch: &Branch, mode: CaptureMode) -> (Ref, ClusterCapture) {
    let session = place.store.session(&silent()).unwrap();
    let captured = branch.capture(&session, mode, None, &silent()).unwrap();
    assert!(captured.warnings.is_empty(), "{:?}", captured.warnings);
    (commit(session, branch, captured.half.clone()), captured)
}

fn data(place: &Place, branch: &Branch) -> PathBuf {
    place.store.branches().join(&branch.record().id).join("clusters").join(branch.current().unwrap()).join("data")
}

fn kept(place: &Place, branch: &Branch) -> PathBuf {
    data(place, branch).with_file_name("kept")
}

/// The manifest that reading everything gives.
fn whole(place: &Place, branch: &Branch) -> ChunkId {
    let session = place.store.session(&silent()).unwrap();
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    copy_stopped(&data(place, branch), &mut sink, &silent()).unwrap();
    sink.finish().unwrap().0.root
}

/// The sizes of the segments in a checkpoint.
fn wal_segments(place: &Place, reference: &Ref) -> Vec<u64> {
    let reader = place.store.reader(&silent()).unwrap();
    let entries = reader.manifest(&reference.cluster.as_ref().unwrap().root).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.filter_map(|entry| {
        let segment = entry.path.strip_prefix(b"pg_wal/").is_some_and(|name| name.len() == 24);
        match entry.kind {
            EntryKind::File { size, .. } if segment => Some(size),
            _ => None,
        }
    });
    sizes.collect()
}

#[test]
fn a_changed_cluster_is_read_where_its_blocks_changed() {
    on_each("a_changed_cluster_is_read_where_its_blocks_changed", "branch::reflink::child_reads_what_changed");
}

#[test]
fn child_reads_what_changed() {
    let Some(disk) = mounted() else { return };
    let place = Place::below(&disk);
    let branch = place.running(
        "main",
        "create table t with (fillfactor = 80) as select i, md5(i::text) || repeat('x', 200) as filler from generate_series(1, 60000) i; \
         create index on t (i); create table other as select * from t; create table gone as select * from t limit 20000",
    );
    // Else the next scan writes hint bits into every page.
    run(&branch, "vacuum freeze");
    stop(&branch);
    let (_, first) = capture(&place, &branch, CaptureMode::Auto);
    assert_eq!(first.half.root, whole(&place, &branch));
    assert_eq!(first.reads.why.new, first.reads.files_opened, "{:?}", first.reads);
    assert!(first.reads.bytes_read > 30 << 20 && kept(&place, &branch).is_dir());

    // Nothing happened: nothing is opened, however young it is.
    let (_, same) = capture(&place, &branch, CaptureMode::Auto);
    assert_eq!((same.reads.files_opened, same.half.root), (0, first.half.root), "{:?}", same.reads);

    let steps: [(&[&str], u64, bool); 8] = [
        (&["update t set filler = filler || 'y' where i % 600 = 7"], 6 << 20, true),
        (&["update t set filler = md5(i::text) where i between 100 and 200", "delete from other where i % 1000 = 0"], 6 << 20, true),
        (&["truncate gone"], 2 << 20, false),
        (&["delete from other where i > 30000", "vacuum other"], 20 << 20, true),
        (&["alter table t add column z int default 7", "insert into t select i, 'new', 1 from generate_series(1, 1000) i"], 6 << 20, true),
        (&["vacuum full t"], 40 << 20, false),
        (&["insert into gone select * from other", "update t set z = z + 1 where i % 5000 = 0"], 20 << 20, true),
        (&["drop table gone", "create index on other (filler)", "vacuum freeze"], 40 << 20, true),
    ];
    for (statements, most, by_extents) in steps {
        start(&branch);
        statements.iter().for_each(|sql| run(&branch, sql));
        stop(&branch);
        let (reference, taken) = capture(&place, &branch, CaptureMode::Auto);
        assert_eq!(taken.half.root, whole(&place, &branch), "{statements:?}");
        let reads = &taken.reads;
        let wal: u64 = wal_segments(&place, &reference).iter().sum();
        assert!(reads.bytes_read < most + wal, "{statements:?}: {reads:?}");
        assert!(reads.why.extents > 0 || !by_extents, "{statements:?}: {reads:?}");
        assert_eq!((reads.why.in_doubt, reads.why.racy), (0, 0), "{statements:?}: {reads:?}");
    }
    // Of WAL only what the next start needs: one segment, or two where the checkpoint lies across them.
    let (reference, _) = capture(&place, &branch, CaptureMode::Auto);
    assert!((1..=2).contains(&wal_segments(&place, &reference).len()));

    // A fork of the checkpoint has the rows.
    let (fork, _) = place.branches.fork("fork", &ForkFrom::Checkpoint(reference.id.clone()), &ForkOptions::default(), &silent()).unwrap();
    start(&fork);
    start(&branch);
    for sql in ["select count(*), sum(hashtext(t::text)) from t", "select count(*), sum(hashtext(o::text)) from other o"] {
        assert_eq!(rows(&fork, sql), rows(&branch, sql), "{sql}");
    }
    stop(&fork);

    // Switched off: no clone is kept, and a changed file is read whole.
    run(&branch, "update t set z = 9 where i = 5");
    stop(&branch);
    let off = Branches::open(&place.store, &environment().with("FORKLIFT_NO_EXTENTS", "1")).unwrap().find("main").unwrap();
    let (_, taken) = capture(&place, &off, CaptureMode::Auto);
    assert_eq!((taken.half.root, taken.reads.why.extents), (whole(&place, &branch), 0));
    assert!(taken.reads.why.times_changed > 0 && taken.reads.bytes_read > 10 << 20, "{:?}", taken.reads);
    assert_eq!(branch.kept_bytes(), 0);
    capture(&place, &branch, CaptureMode::Auto);
    assert!(branch.kept_bytes() > 10 << 20);
    branch.forget_kept().unwrap();
    assert!(!kept(&place, &branch).exists());
}

#[test]
fn a_busy_server_is_captured_through_clones() {
    on_each("a_busy_server_is_captured_through_clones", "branch::reflink::child_captures_while_it_runs");
}

#[test]
fn child_captures_while_it_runs() {
    let Some(disk) = mounted() else { return };
    let place = Place::below(&disk);
    let branch = place.running(
        "main",
        "create table account (id int primary key, balance bigint, filler text); \
         insert into account select i, 1000, repeat('x', 300) from generate_series(1, 20000) i; \
         create table history (id bigserial primary key, account int, delta int)",
    );
    let stopped = std::sync::atomic::AtomicBool::new(false);
    let sums = "select sum(balance) - 20000000, (select coalesce(sum(delta), 0) from history), count(*) from account";
    let checkpoints = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (branch, stopped) = (&branch, &stopped);
                scope.spawn(move || {
                    let mut client = client(branch);
                    let mut number = worker;
                    while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                        number = (number * 7919 + 13) % 20000;
                        let sql = format!(
                            "begin; update account set balance = balance + 1 where id = {}; \
                             insert into history (account, delta) values ({0}, 1); commit",
                            number + 1
                        );
                        // Two may wait for each other's rows.
                        client.batch_execute(&sql).ok();
                    }
                })
            })
            .collect();
        let mut taken = Vec::new();
        for round in 0..3 {
            let (reference, captured) = capture(&place, &branch, CaptureMode::Auto);
            assert_eq!((captured.mode.as_str(), captured.downtime_ms), ("online", 0));
            assert!(captured.parts_ms.iter().any(|(part, _)| part == "store"));
            assert!(round == 0 || captured.reads.why.extents > 0, "{:?}", captured.reads);
            taken.push(reference);
        }
        stopped.store(true, std::sync::atomic::Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
        taken
    });
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let name = format!("fork-{number}");
        let from = ForkFrom::Checkpoint(checkpoint.id.clone());
        let (fork, _) = place.branches.fork(&name, &from, &ForkOptions::default(), &silent()).unwrap();
        start(&fork);
        let found = rows(&fork, sums).pop().unwrap();
        let parts: Vec<&str> = found.split('|').collect();
        assert_eq!((parts[0], parts[2]), (parts[1], "20000"), "{name}: {found}");
        assert_eq!(value(&fork, "set enable_indexscan = off; set enable_indexonlyscan = off; select count(*) from account"), "20000");
        stop(&fork);
    }

    // By a short stop, where nobody is connected: it is read when the server runs again.
    super::super::support::wait_for("the clients to be gone", || branch.server().unwrap().unwrap().clients().unwrap() == 0);
    let (_, captured) = capture(&place, &branch, CaptureMode::Auto);
    assert_eq!((captured.mode.as_str(), branch.info().unwrap().state), ("stopped", ServerState::Running));
    let parts: Vec<&str> = captured.parts_ms.iter().map(|(part, _)| part.as_str()).collect();
    assert_eq!(parts, ["stop", "files", "start", "store"]);
    assert!(captured.reads.why.extents > 0, "{:?}", captured.reads);
    stop(&branch);
}
