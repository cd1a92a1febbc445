//! From start to stop.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forklift::postgres::{Address, Server, ServerStatus, Sql, StopMode, UrlForm, status};
use forklift::{CancelToken, Control, Error, ErrorKind};

use crate::support::{Cluster, PATIENCE, child, fingerprint, signal, stop, wait_for};

#[test]
fn a_server_starts_serves_and_stops() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    assert_eq!(cluster.client().unwrap().query_one("SELECT 1", &[]).unwrap().get::<_, i32>(0), 1);
    assert!(matches!(cluster.status(), ServerStatus::Running { pid, .. } if pid == server.pid()));
    assert!(cluster.spec.address.is_public());
    stop(server);
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    assert!(!cluster.spec.address.is_public());
    assert!(!cluster.spec.run.join("server.json").exists());
    assert!(cluster.client().is_err());
    // Cleanly: state 1 is "shut down".
    assert_eq!(std::fs::read(cluster.spec.data.join("global/pg_control")).unwrap()[16], 1);
}

#[test]
fn passwords_are_needed_everywhere_and_are_nowhere_to_be_seen() {
    let mut cluster = Cluster::new();
    let other = Address::new(Path::new("/x"), &cluster.root().display().to_string(), true).unwrap();
    cluster.spec.address.port = other.port;
    cluster.spec.settings.push(("log_statement".to_owned(), "all".to_owned()));
    cluster.spec.settings.push(("log_connections".to_owned(), "on".to_owned()));
    let server = cluster.start().unwrap();
    let url = &cluster.spec.credentials.url;
    for form in [UrlForm::Socket, UrlForm::Tcp] {
        let right = cluster.spec.address.url(form, url, "app").unwrap();
        postgres::Client::connect(&right, postgres::NoTls).unwrap();
        let wrong = right.replace(&url.password, "wrong");
        let refused = postgres::Client::connect(&wrong, postgres::NoTls).map(drop).unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some("28P01"));
        let without = right.replace(&format!(":{}", url.password), "");
        assert!(postgres::Client::connect(&without, postgres::NoTls).is_err());
    }
    // The private socket is closed to everybody without a password as well.
    let mut role = cluster.spec.credentials.ours.clone();
    role.password = "wrong".to_owned();
    assert_eq!(Sql::connect(server.address(), &role, "postgres").map(drop).unwrap_err().kind(), ErrorKind::Sql);
    for secret in [&url.password, &cluster.spec.credentials.ours.password] {
        for name in ["log", "server.json", "hba.conf"] {
            assert!(!std::fs::read_to_string(cluster.spec.run.join(name)).unwrap().contains(secret), "{name}");
        }
        let ServerStatus::Running { pid, keeper } = cluster.status() else { panic!("not running") };
        for pid in [pid, keeper] {
            for file in ["cmdline", "environ"] {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
                assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{file} of {pid}");
            }
        }
    }
    assert!(std::fs::read_to_string(cluster.spec.run.join("log")).unwrap().contains("statement: "), "log_statement was on");
    stop(server);
    // The passwords are in the cluster now.
    cluster.spec.set_passwords = false;
    let server = cluster.start().unwrap();
    cluster.client().unwrap();
    stop(server);
}

#[test]
fn nobody_connects_before_prepare_has_ended() {
    let cluster = Cluster::new();
    let server = Server::start(
        &cluster.spec,
        |server| {
            assert!(!cluster.spec.address.is_public());
            assert!(cluster.client().is_err());
            server.connect("app")?.run("CREATE TABLE public.prepared AS SELECT 7 AS x")
        },
        &Control::silent(),
    )
    .unwrap();
    assert_eq!(cluster.client().unwrap().query_one("SELECT x FROM prepared", &[]).unwrap().get::<_, i32>(0), 7);
    stop(server);
}

#[test]
fn a_failed_prepare_or_a_cancel_stops_the_server() {
    let cluster = Cluster::new();
    let error =
        Server::start(&cluster.spec, |_| Err(Error::new(ErrorKind::Command, "seed failed")), &Control::silent()).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Command, "seed failed"));
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    let token = CancelToken::new();
    let control = Control::new(token.clone(), None);
    let cancel = |_: &Server| {
        token.cancel();
        Ok(())
    };
    let error = Server::start(&cluster.spec, cancel, &control).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    stop(cluster.start().unwrap());
}

/// Row 9.
#[test]
fn a_start_that_fails_leaves_the_data_as_it_was_and_says_why() {
    let mut cluster = Cluster::new();
    let before = fingerprint(&cluster.spec.data);
    cluster.spec.settings.push(("nonsense_setting".to_owned(), "1".to_owned()));
    let error = cluster.start().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServerStart);
    assert!(error.message().contains("nonsense_setting"), "{error}");
    assert!(error.context().iter().any(|(key, value)| *key == "log" && value.contains("FATAL")), "{error:?}");
    assert!(error.hint_text().unwrap().contains("log"));
    assert_eq!(fingerprint(&cluster.spec.data), before);
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    cluster.spec.settings.pop();
    stop(cluster.start().unwrap());
}

#[test]
fn what_is_no_cluster_or_of_another_version_is_refused_by_name() {
    let mut cluster = Cluster::new();
    std::fs::write(cluster.spec.data.join("PG_VERSION"), "12\n").unwrap();
    let error = cluster.start().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
    assert!(error.message().contains("Postgres 12"), "{error}");
    cluster.spec.data = cluster.root().join("nothing");
    assert_eq!(cluster.start().map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    cluster.spec.data = PathBuf::from("relative");
    assert_eq!(cluster.start().map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Row 42.
#[test]
fn of_two_starts_at_once_one_is_told_who_was_first() {
    let cluster = Cluster::new();
    let mut other = cluster.spec.clone();
    let outcomes = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3).map(|_| scope.spawn(|| cluster.start())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect::<Vec<_>>()
    });
    let (mut servers, errors): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(servers.len(), 1);
    assert!(errors.iter().all(|outcome| outcome.as_ref().map(drop).is_err_and(|error| error.kind() == ErrorKind::Busy)));
    let server = servers.pop().unwrap().unwrap();
    // The same data by another run folder.
    other.run = cluster.root().join("other");
    other.address = Address::new(&cluster.root().join("t"), "other", false).unwrap();
    let error = Server::start(&other, |_| Ok(()), &Control::silent()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(&server.pid().to_string()), "{error}");
    assert!(matches!(status(&other.run, &other.data).unwrap(), ServerStatus::Foreign { pid } if pid == server.pid()));
    stop(server);
}

/// Row 12.
#[test]
fn a_long_path_gets_a_short_socket_folder() {
    let mut cluster = Cluster::new();
    let deep = cluster.root().join("d".repeat(100));
    cluster.spec.address = Address::new(&deep, &cluster.root().display().to_string(), false).unwrap();
    assert!(cluster.spec.address.private.starts_with("/tmp"));
    let server = cluster.start().unwrap();
    cluster.client().unwrap();
    stop(server);
    std::fs::remove_dir_all(&cluster.spec.address.public).unwrap();
    std::fs::remove_dir_all(&cluster.spec.address.private).unwrap();
}

#[test]
fn a_stop_that_a_backend_holds_up_names_it_and_loses_nothing() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    let mut client = cluster.client().unwrap();
    client.batch_execute("CREATE TABLE kept AS SELECT 1 AS x").unwrap();
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let backend = u32::try_from(backend).unwrap();
    signal(backend, libc::SIGSTOP);
    let (run, data) = (cluster.spec.run.clone(), cluster.spec.data.clone());
    let error = server.stop(StopMode::Fast, Duration::from_millis(300), &Control::silent()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServerStop);
    assert!(error.message().contains(&backend.to_string()), "{error}");
    assert!(matches!(status(&run, &data).unwrap(), ServerStatus::InTransition { .. }));
    signal(backend, libc::SIGCONT);
    cluster.wait_until_stopped();
    let server = wait_for_start(&cluster);
    assert_eq!(cluster.client().unwrap().query_one("SELECT x FROM kept", &[]).unwrap().get::<_, i32>(0), 1);
    stop(server);
}

#[test]
fn an_immediate_stop_is_quick_and_the_next_start_recovers() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    cluster.client().unwrap().batch_execute("CREATE TABLE kept AS SELECT 1 AS x").unwrap();
    server.stop(StopMode::Immediate, PATIENCE, &Control::silent()).unwrap();
    let server = cluster.start().unwrap();
    assert_eq!(cluster.client().unwrap().query_one("SELECT x FROM kept", &[]).unwrap().get::<_, i32>(0), 1);
    stop(server);
}

#[test]
fn killing_the_library_during_a_start_stops_the_server() {
    let cluster = Cluster::new();
    let mut starter = child("server::host::dies_in_prepare", cluster.root());
    let status = starter.wait().unwrap();
    assert!(!status.success());
    cluster.wait_until_stopped();
    assert!(!cluster.spec.address.is_public());
    let server = wait_for_start(&cluster);
    cluster.client().unwrap();
    stop(server);
}

/// The keeper of a server that has just ended may hold its lock for a moment longer.
pub(super) fn wait_for_start(cluster: &Cluster) -> Server {
    let mut started = None;
    wait_for("the server to start again", || match cluster.start() {
        Ok(server) => {
            started = Some(server);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            false
        }
    });
    started.unwrap()
}
