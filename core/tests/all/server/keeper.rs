//! Keepers and postmasters that are killed, and servers that are not ours.

use std::process::{Command, Stdio};

use forklift::ErrorKind;
use forklift::postgres::{Server, ServerStatus};

use super::start::wait_for_start;
use crate::support::{Cluster, signal, stop, wait_for};

#[test]
fn a_killed_keeper_takes_its_server_with_it() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    cluster.client().unwrap().batch_execute("CREATE TABLE kept AS SELECT 1 AS x").unwrap();
    let ServerStatus::Running { keeper, .. } = cluster.status() else { panic!("not running") };
    signal(keeper, libc::SIGKILL);
    cluster.wait_until_stopped();
    // PDEATHSIG is SIGINT: a clean stop.
    assert_eq!(std::fs::read(cluster.spec.data.join("global/pg_control")).unwrap()[16], 1);
    drop(server);
    let server = wait_for_start(&cluster);
    assert_eq!(cluster.client().unwrap().query_one("SELECT x FROM kept", &[]).unwrap().get::<_, i32>(0), 1);
    stop(server);
}

#[test]
fn a_keeper_told_to_end_stops_its_server_cleanly() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let ServerStatus::Running { keeper, .. } = cluster.status() else { panic!("not running") };
    signal(keeper, libc::SIGTERM);
    cluster.wait_until_stopped();
    wait_for("the keeper to clean up", || !cluster.spec.run.join("server.json").exists());
    assert!(!cluster.spec.address.is_public());
    drop(server);
}

/// Row 7.
#[test]
fn a_restart_right_after_the_postmaster_was_killed_waits_for_its_children() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let mut client = cluster.client().unwrap();
    client.batch_execute("CREATE TABLE kept AS SELECT 1 AS x").unwrap();
    signal(server.pid(), libc::SIGKILL);
    let server = wait_for_start(&cluster);
    assert_eq!(cluster.client().unwrap().query_one("SELECT x FROM kept", &[]).unwrap().get::<_, i32>(0), 1);
    stop(server);
}

/// Row 5: as after a keeper and a library that were killed where no signal of the parent's death exists.
#[test]
fn an_orphan_of_ours_is_stopped() {
    let cluster = Cluster::new();
    stop(cluster.start().unwrap());
    let spec = &cluster.spec;
    let mut command = spec.run_as.command(&spec.installation, "postgres").unwrap();
    command.arg("-D").arg(&spec.data).arg("-c").arg(format!("hba_file={}", spec.run.join("hba.conf").display()));
    command.arg("-c").arg(format!("unix_socket_directories={}", spec.address.private.display())).args(["-c", "listen_addresses="]);
    let mut orphan = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for("an orphan", || cluster.status() == ServerStatus::Orphaned { pid: orphan.id() });
    assert!(Server::attach(&spec.run, &spec.data, &spec.address, &spec.credentials).unwrap().is_none());
    assert!(orphan.wait().unwrap().success());
    assert_eq!(cluster.status(), ServerStatus::Stopped);
}

/// Row 4, and a server that somebody started by hand.
#[test]
fn a_server_that_is_not_ours_is_named_and_left_alone() {
    let cluster = Cluster::new();
    let spec = &cluster.spec;
    spec.address.ensure().unwrap();
    spec.run_as.give(&spec.address.private).unwrap();
    let mut command = spec.run_as.command(&spec.installation, "postgres").unwrap();
    command.arg("-D").arg(&spec.data).arg("-c").arg(format!("unix_socket_directories={}", spec.address.private.display()));
    let mut foreign = command.args(["-c", "listen_addresses="]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the server", || std::fs::read_to_string(spec.data.join("postmaster.pid")).is_ok_and(|text| text.contains("ready")));
    assert_eq!(cluster.status(), ServerStatus::Foreign { pid: foreign.id() });
    let started = cluster.start().map(drop).unwrap_err();
    let attached = Server::attach(&spec.run, &spec.data, &spec.address, &spec.credentials).map(drop).unwrap_err();
    for error in [started, attached] {
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.message().contains(&foreign.id().to_string()), "{error}");
    }
    // Another cluster of ours that was given the same address does not touch it either.
    let mut other = Cluster::new();
    other.spec.address = spec.address.clone();
    let error = other.start().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(&foreign.id().to_string()), "{error}");
    assert!(foreign.try_wait().unwrap().is_none());
    Command::new("kill").arg("-INT").arg(foreign.id().to_string()).status().unwrap();
    assert!(foreign.wait().unwrap().success());
}
