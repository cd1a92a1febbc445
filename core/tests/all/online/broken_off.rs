//! Copies that end before they are done leave nothing in the source.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use forklift::postgres::{Address, Credentials, Server, StopMode, TreeSink, copy_online};
use forklift::{CancelToken, Control, ErrorKind};

use super::hooked::Hooked;
use crate::copying::{Running, Source, assert_nothing_left};
use crate::support::{signal, wait_for};

/// What another process needs to find the server.
#[derive(serde::Serialize, serde::Deserialize)]
struct Where {
    run: std::path::PathBuf,
    data: std::path::PathBuf,
    address: Address,
    credentials: Credentials,
    target: std::path::PathBuf,
}

/// Set in the child that copies.
const CHILD: &str = "FORKLIFT_TEST_COPY_CHILD";

/// Not a test of its own: what [`a_killed_process_leaves_no_backup_behind`] starts and kills.
#[test]
fn copies_until_it_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let found: Where = serde_json::from_reader(std::io::stdin().lines().next().unwrap().unwrap().as_bytes()).unwrap();
    let server = Server::attach(&found.run, &found.data, &found.address, &found.credentials).unwrap().unwrap();
    let mut inner = TreeSink::new(&found.data, &found.target).unwrap();
    let mut hook = || {
        println!("copying");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    };
    copy_online(&server, &mut Hooked { inner: &mut inner, hook: &mut hook }, &Control::silent()).unwrap();
}

#[test]
fn a_killed_process_leaves_no_backup_behind() {
    for settings in [&[][..], &[("max_replication_slots", "0")][..]] {
        let source = Source::start(settings);
        let spec = &source.cluster.spec;
        let found = Where {
            run: spec.run.clone(),
            data: spec.data.clone(),
            address: spec.address.clone(),
            credentials: spec.credentials.clone(),
            target: source.cluster.root().join("target"),
        };
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["online::broken_off::copies_until_it_is_killed", "--exact", "--nocapture"]).env(CHILD, "1");
        let mut child = Running(child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        writeln!(child.0.stdin.take().unwrap(), "{}", serde_json::to_string(&found).unwrap()).unwrap();
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("copying")));

        let slots = source.value("SELECT count(*) FROM pg_replication_slots");
        assert_eq!(slots, if settings.is_empty() { "1" } else { "0" });
        assert_eq!(
            source.value("SELECT count(*) FROM pg_locks WHERE relation = 'pg_tablespace'::regclass AND mode = 'ShareRowExclusiveLock'"),
            "1"
        );
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        wait_for("the next copy to work", || source.copy_through(|sink| copy_online(source.server(), sink, &Control::silent())).1.is_ok());
        // The WAL it kept aside was removed by the copy after it.
        assert_nothing_left(&source);
    }
}

#[test]
fn a_cancelled_copy_leaves_no_backup_behind() {
    let source = Source::start(&[]);
    let token = CancelToken::new();
    let control = Control::new(token.clone(), None);
    let (_, cancelled) = source.copy_through(|sink| {
        let mut hook = || token.cancel();
        copy_online(source.server(), &mut Hooked { inner: sink, hook: &mut hook }, &control)
    });
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_nothing_left(&source);
    let (_, cancelled) = source.copy_through(|sink| copy_online(source.server(), sink, &control));
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_copy_that_waits_for_its_checkpoint_can_be_cancelled() {
    let mut source = Source::start(&[]);
    let checkpointer: u32 = source.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'").parse().unwrap();
    signal(checkpointer, libc::SIGSTOP);
    let token = CancelToken::new();
    let control = Control::new(token.clone(), None);
    let (_, cancelled) = source.copy_through(|sink| {
        std::thread::scope(|scope| {
            let source = &source;
            scope.spawn(move || {
                let waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_%backup%' AND state = 'active' AND pid <> pg_backend_pid()";
                wait_for("the start of the backup", || source.value(waiting) == "1");
                token.cancel();
            });
            copy_online(source.server(), sink, &control)
        })
    });
    signal(checkpointer, libc::SIGCONT);
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_nothing_left(&source);
    source.stop_server(StopMode::Fast);
}

#[test]
fn a_sink_that_fails_leaves_no_backup_behind() {
    let source = Source::start(&[]);
    let (copy, failed) = source.copy_through(|sink| {
        let control = Control::silent();
        sink.bytes(std::path::Path::new("PG_VERSION"), 0o600, b"in the way").unwrap();
        copy_online(source.server(), sink, &control)
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(!copy.data().join("global/pg_control").exists(), "without it nothing starts");
    assert_nothing_left(&source);
}
