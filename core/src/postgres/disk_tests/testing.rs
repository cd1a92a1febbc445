//! Real clusters and servers for the tests of this folder: started directly, stopped on drop, signalled by pid only.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::environment::Environment;
use crate::postgres::{ControlFile, Installation, TreeSink, copy_stopped, find, prepare_copy};
use crate::progress::Control;
use crate::sys::fs;

/// The best installation of the machine; where there is none the test says that it was skipped.
pub(in crate::postgres) fn installation(test: &str) -> Option<Installation> {
    let best = find(&Environment::read()).0.into_iter().next();
    if best.is_none() {
        eprintln!("SKIPPED {test}: no Postgres on this machine");
    }
    best
}

/// A program of Postgres as somebody who is not root.
pub(in crate::postgres) fn command(installation: &Installation, program: &str) -> Command {
    let program = installation.bin.join(program);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=65534", "--map-group=65534"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    if let Some(path) = &installation.library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    command
}

pub(in crate::postgres) struct Cluster {
    pub(in crate::postgres) installation: Installation,
    pub(in crate::postgres) folder: tempfile::TempDir,
    pub(in crate::postgres) data: PathBuf,
}

impl Cluster {
    pub(in crate::postgres) fn with(installation: &Installation, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut initdb = command(installation, "initdb");
        initdb.arg("-D").arg(&data).args(["-U", "forklift", "-E", "UTF8", "--locale=C", "-A", "trust", "--no-sync"]).args(arguments);
        let output = initdb.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { installation: installation.clone(), folder, data }
    }

    pub(in crate::postgres) fn new(test: &str, arguments: &[&str]) -> Option<Self> {
        Some(Self::with(&installation(test)?, arguments))
    }

    pub(in crate::postgres) fn start(&self, settings: &[&str]) -> Server {
        Server::start(&self.installation, &self.data, settings).unwrap_or_else(|log| panic!("{log}"))
    }

    /// A stopped copy beside it, made safe to start.
    pub(in crate::postgres) fn copy(&self, name: &str, keep_replication: bool) -> PathBuf {
        let target = self.folder.path().join(name);
        let mut sink = TreeSink::new(&self.data, &target).unwrap();
        copy_stopped(&self.data, &mut sink, &Control::silent()).unwrap();
        prepare_copy(&target, keep_replication).unwrap();
        target
    }

    pub(in crate::postgres) fn control(&self) -> ControlFile {
        ControlFile::read(&self.data).unwrap()
    }
}

pub(in crate::postgres) struct Server {
    child: Child,
    sockets: tempfile::TempDir,
    client: Option<postgres::Client>,
}

impl Server {
    /// The log where it does not start.
    pub(in crate::postgres) fn start(installation: &Installation, data: &Path, settings: &[&str]) -> Result<Self, String> {
        let sockets = tempfile::Builder::new().prefix("fk").tempdir_in("/tmp").unwrap();
        let log_path = sockets.path().join("log");
        let log = fs::create_new(&log_path, 0o600).unwrap();
        let mut command = command(installation, "postgres");
        command.arg("-D").arg(data).arg("-k").arg(sockets.path()).args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "shared_buffers=8MB",
        ]);
        for setting in settings {
            command.args(["-c", setting]);
        }
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Self { child, sockets, client: None };
        let start = Instant::now();
        loop {
            if let Some(client) = server.connect("postgres") {
                server.client = Some(client);
                return Ok(server);
            }
            let ended = server.child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > Duration::from_secs(120) {
                return Err(format!("{ended:?}: {}", String::from_utf8_lossy(&fs::read(&log_path).unwrap())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(in crate::postgres) fn connect(&self, database: &str) -> Option<postgres::Client> {
        let mut config = postgres::Config::new();
        config.host_path(self.sockets.path()).user("forklift").dbname(database);
        config.connect(postgres::NoTls).ok()
    }

    pub(in crate::postgres) fn run(&mut self, sql: &str) {
        self.client.as_mut().unwrap().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub(in crate::postgres) fn value(&mut self, sql: &str) -> String {
        let rows = self.client.as_mut().unwrap().simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = rows.iter().find_map(|row| if let postgres::SimpleQueryMessage::Row(row) = row { row.get(0) } else { None });
        row.unwrap_or_default().to_owned()
    }

    /// Ends it cleanly.
    pub(in crate::postgres) fn stop(mut self) {
        self.end(rustix::process::Signal::INT);
    }

    /// Ends it as a crash would.
    pub(in crate::postgres) fn crash(mut self) {
        self.end(rustix::process::Signal::QUIT);
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        self.client = None;
        if self.child.try_wait().unwrap().is_none() {
            let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        }
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(rustix::process::Signal::INT);
    }
}
