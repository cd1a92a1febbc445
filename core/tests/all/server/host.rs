//! What the host program notices, and what its death does: bodies for processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU32, Ordering};

use forklift::Control;
use forklift::postgres::{Server, ServerStatus};

use crate::support::{Cluster, argument, child, signal, spec_at, stop};

static CHILD_SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    CHILD_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn dies_in_prepare() {
    let Some(root) = argument() else { return };
    let die = |_: &Server| {
        signal(std::process::id(), libc::SIGKILL);
        loop {
            std::thread::park();
        }
    };
    drop(Server::start(&spec_at(&root), die, &Control::silent()));
}

#[test]
fn owns_a_server() {
    let Some(root) = argument() else { return };
    let mut spec = spec_at(&root);
    spec.bound_to_owner = root.join("bound").exists();
    let server = Server::start(&spec, |_| Ok(()), &Control::silent()).unwrap();
    println!("\nstarted {}", server.pid());
    std::io::stdout().flush().unwrap();
    // Until it is killed.
    drop(std::io::stdin().lines().next());
}

#[test]
#[allow(unsafe_code, reason = "a signal handler is what this is about")]
fn is_a_careful_host() {
    let Some(root) = argument() else { return };
    // Before the counting begins: finding Postgres runs its programs as ordinary children.
    let spec = spec_at(&root);
    // SAFETY: the handler makes one atomic addition.
    unsafe { libc::signal(libc::SIGCHLD, count as *const () as libc::sighandler_t) };
    let secret = std::fs::File::open(root.join("credentials.json")).unwrap();
    // SAFETY: duplicates an open descriptor without CLOEXEC, as careless hosts do.
    let leak = unsafe { libc::dup(secret.as_raw_fd()) };
    assert!(leak > 0);
    let server = Server::start(&spec, |_| Ok(()), &Control::silent()).unwrap();
    let ServerStatus::Running { pid, keeper } = forklift::postgres::status(&root.join("run"), &root.join("data")).unwrap() else {
        panic!()
    };
    for process in [pid, keeper] {
        // A Ctrl-C in the host's terminal reaches neither.
        assert_ne!(session_of(process), session_of(std::process::id()));
        for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
            let target = std::fs::read_link(entry.unwrap().path()).unwrap();
            assert!(!target.ends_with("credentials.json"), "{process} has {}", target.display());
            assert!(process != pid || !target.ends_with("keeper.lock"), "{process} has {}", target.display());
        }
    }
    stop(server);
    let children = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap_or_default();
    assert_eq!(children.trim(), "");
    assert_eq!(CHILD_SIGNALS.load(Ordering::Relaxed), 0);
    println!("\ncareful");
}

#[test]
fn the_host_sees_no_signal_no_zombie_and_passes_no_descriptor_on() {
    let cluster = Cluster::new();
    let output = child("server::host::is_a_careful_host", cluster.root()).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("careful"), "{text}");
}

fn session_of(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(3).unwrap().to_owned()
}

#[test]
fn a_bound_server_ends_with_its_handle() {
    let mut cluster = Cluster::new();
    cluster.spec.bound_to_owner = true;
    let server = cluster.start().unwrap();
    cluster.client().unwrap();
    drop(server);
    cluster.wait_until_stopped();
    assert_eq!(std::fs::read(cluster.spec.data.join("global/pg_control")).unwrap()[16], 1);
}

/// The end of a server's owner; whether the server lives on.
#[test]
fn a_bound_server_ends_with_its_owner_and_another_does_not() {
    for bound in [true, false] {
        let cluster = Cluster::new();
        if bound {
            std::fs::write(cluster.root().join("bound"), "").unwrap();
        }
        let mut owner = child("server::host::owns_a_server", cluster.root());
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("started ")));
        cluster.client().unwrap();
        owner.kill().unwrap();
        assert_eq!(owner.wait().unwrap().signal(), Some(libc::SIGKILL));
        if bound {
            cluster.wait_until_stopped();
            assert!(cluster.client().is_err());
        } else {
            cluster.client().unwrap();
            let spec = &cluster.spec;
            let server = Server::attach(&spec.run, &spec.data, &spec.address, &spec.credentials).unwrap().unwrap();
            assert_eq!(server.connect("app").unwrap().value("SELECT 1").unwrap(), "1");
            stop(server);
            assert!(Server::attach(&spec.run, &spec.data, &spec.address, &spec.credentials).unwrap().is_none());
        }
    }
}
