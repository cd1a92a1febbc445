//! What dead servers leave behind.

use std::process::{Child, Command};

use forklift::ErrorKind;
use forklift::postgres::ServerStatus;

use crate::support::{Cluster, signal, stop};

/// A process that has nothing to do with any of this.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Rows 1 and 2.
#[test]
fn a_pid_file_that_names_a_stranger_neither_blocks_a_start_nor_harms_the_stranger() {
    let cluster = Cluster::new();
    let mut stranger = Stranger::new();
    let pid = stranger.0.id();
    let file = format!("{pid}\n{}\n1700000000\n5432\n/tmp\n\n  5432001 2000000000\nready   \n", cluster.spec.data.display());
    std::fs::write(cluster.spec.data.join("postmaster.pid"), file).unwrap();
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    let server = cluster.start().unwrap();
    cluster.client().unwrap();
    stop(server);
    assert!(stranger.lives());
}

/// Row 13.
#[test]
fn a_socket_lock_that_names_a_stranger_does_not_block_a_start() {
    let cluster = Cluster::new();
    let mut stranger = Stranger::new();
    cluster.spec.address.ensure().unwrap();
    let lock = cluster.spec.address.private.join(".s.PGSQL.5432.lock");
    std::fs::write(&lock, format!("{}\n/nowhere\n1700000000\n5432\n/tmp\n", stranger.0.id())).unwrap();
    std::fs::write(cluster.spec.address.private.join(".s.PGSQL.5432"), "").unwrap();
    std::fs::write(cluster.spec.address.public.join(".s.PGSQL.5432"), "").unwrap();
    let server = cluster.start().unwrap();
    cluster.client().unwrap();
    stop(server);
    assert!(stranger.lives());
}

/// Row 7: the pid file is never deleted to get past a living child.
#[test]
fn a_child_that_does_not_end_keeps_the_cluster_busy() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let mut client = cluster.client().unwrap();
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let backend = u32::try_from(backend).unwrap();
    signal(backend, libc::SIGSTOP);
    signal(server.pid(), libc::SIGKILL);
    crate::support::wait_for("the postmaster to end", || cluster.status() == ServerStatus::InTransition { pids: vec![backend] });
    let token = forklift::CancelToken::new();
    let error = std::thread::scope(|scope| {
        let start = scope
            .spawn(|| forklift::postgres::Server::start(&cluster.spec, |_| Ok(()), &forklift::Control::new(token.clone(), None)).map(drop));
        crate::support::wait_for("the start to wait", || start.is_finished() || cluster.spec.run.join("keeper.lock").exists());
        token.cancel();
        start.join().unwrap().unwrap_err()
    });
    assert!(matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Busy), "{error}");
    assert!(cluster.spec.data.join("postmaster.pid").exists());
    assert!(std::path::Path::new(&format!("/proc/{backend}")).exists());
    signal(backend, libc::SIGCONT);
    cluster.wait_until_stopped();
    stop(super::start::wait_for_start(&cluster));
}

#[test]
fn a_record_of_another_boot_or_half_written_says_nothing() {
    let cluster = Cluster::new();
    std::fs::create_dir_all(&cluster.spec.run).unwrap();
    for text in [
        "{",
        "{\"postmaster\":{\"pid\":1,\"ticks\":1},\"keeper\":{\"pid\":1,\"ticks\":1},\"boot_id\":\"x\",\"data\":\"/\",\"system_identifier\":1}",
    ] {
        std::fs::write(cluster.spec.run.join("server.json"), text).unwrap();
        assert_eq!(cluster.status(), ServerStatus::Stopped);
    }
    stop(cluster.start().unwrap());
}
