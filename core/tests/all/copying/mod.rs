//! Servers to copy from and to, for the tests of copies, sequences and marks.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forklift::postgres::{
    Address, CopyReport, Credentials, InitOptions, Installation, Role, RunAs, Server, ServerSpec, Sink, Sql, StopMode, TreeSink, UrlForm, choose,
    copy_online, initdb, prepare_copy, put_back,
};
use forklift::{Control, Environment, Result};

/// One cluster in a temporary folder of its own, with or without a running server. Stopped and removed when dropped.
pub struct Cluster {
    pub spec: ServerSpec,
    server: Option<Server>,
    folder: tempfile::TempDir,
}

pub fn environment() -> Environment {
    Environment::read()
}

fn spec(folder: &Path, settings: &[(&str, &str)]) -> ServerSpec {
    let installation: Installation = choose(&environment(), None).expect("these tests need Postgres 13 to 18");
    let run_as = RunAs::detect(&environment()).unwrap();
    let address = Address::new(&folder.join("s"), "x", false).unwrap();
    address.ensure().unwrap();
    let role = |name: &str| Role::random(name).unwrap();
    ServerSpec {
        installation,
        run_as,
        keeper: PathBuf::from(env!("CARGO_BIN_EXE_forklift-keeper")),
        data: folder.join("data"),
        run: folder.join("run"),
        address,
        credentials: Credentials { ours: role("forklift"), url: role("app"), database: "app".to_owned() },
        set_passwords: true,
        settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        bound_to_owner: true,
        patience: Duration::from_secs(60),
    }
}

impl Cluster {
    /// A new cluster whose server runs with these settings, with the database `app`.
    pub fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_with(settings, &InitOptions::default())
    }

    pub fn start_with(settings: &[(&str, &str)], options: &InitOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("fl").tempdir().unwrap();
        let spec = spec(folder.path(), settings);
        spec.run_as.make_folder(&spec.run).unwrap();
        initdb(&spec.installation, &spec.run_as, &spec.data, options, &Control::silent()).unwrap();
        let mut cluster = Self { spec, server: None, folder };
        cluster.start_server(|_| Ok(()));
        cluster.sql_in("postgres").run("CREATE DATABASE app").unwrap();
        cluster
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A session in the database `app`.
    pub fn sql(&self) -> Sql {
        self.sql_in("app")
    }

    pub fn sql_in(&self, database: &str) -> Sql {
        let mut sql = self.server().connect(database).unwrap();
        sql.run("SET search_path = public").unwrap();
        sql
    }

    /// The URL of a client in the database `app`, as our superuser.
    pub fn url(&self) -> String {
        self.spec.address.url(UrlForm::Socket, &self.spec.credentials.ours, "app").unwrap()
    }

    pub fn start_server(&mut self, prepare: impl FnOnce(&Server) -> Result<()>) {
        self.server = Some(Server::start(&self.spec, prepare, &Control::silent()).unwrap());
        self.spec.set_passwords = false;
    }

    pub fn stop_server(&mut self, mode: StopMode) {
        self.server.take().unwrap().stop(mode, Duration::from_secs(60), &Control::silent()).unwrap();
    }

    /// Copies the running server into a new cluster, whose server is not started.
    pub fn copy(&self) -> (Self, CopyReport) {
        let (cluster, report) = self.copy_through(|sink| copy_online(self.server(), sink, &Control::silent()));
        (cluster, report.unwrap())
    }

    pub fn copy_through<R>(&self, copy: impl FnOnce(&mut dyn Sink) -> R) -> (Self, R) {
        let folder = tempfile::Builder::new().prefix("fl").tempdir().unwrap();
        let mut spec = spec(folder.path(), &[("max_prepared_transactions", "10")]);
        spec.run_as.make_folder(&spec.run).unwrap();
        spec.credentials = self.spec.credentials.clone();
        spec.set_passwords = false;
        let result = copy(&mut TreeSink::new(&self.spec.data, &spec.data).unwrap());
        spec.run_as.give(&spec.data).unwrap();
        (Self { spec, server: None, folder }, result)
    }

    /// Makes it safe to start, starts it and puts sequences back. Gives how many.
    pub fn start_copy(&mut self, report: &CopyReport) -> u64 {
        prepare_copy(&self.spec.data, false).unwrap();
        let mut count = 0;
        self.start_server(|server| {
            count = put_back(server, &report.sequences)?;
            Ok(())
        });
        count
    }

    /// A client program of the installation with its connection in PG variables.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.spec.installation.program(name).unwrap());
        command
            .env("PGHOST", &self.spec.address.public)
            .env("PGUSER", &self.spec.credentials.ours.name)
            .env("PGPASSWORD", &self.spec.credentials.ours.password)
            .env("PGDATABASE", "app")
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(StopMode::Immediate, Duration::from_secs(30), &Control::silent()).ok();
        }
    }
}

/// A process of ours that does not outlive its test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits for a condition.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `work` in sessions beside `body`, until `body` has returned.
pub fn beside<R>(works: Vec<Box<dyn FnMut() + Send + '_>>, body: impl FnOnce() -> R) -> R {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also where the body panics.
        let _guard = Done(&done);
        for mut work in works {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        body()
    })
}

/// Asserts that nothing of an online copy is left in the server: no session, slot, lock, nor WAL kept aside.
pub fn assert_nothing_left(cluster: &Cluster) {
    eventually("a session, slot or lock of the copy is left", || {
        let mut sql = cluster.sql_in("template1");
        let left = sql.value(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forklift' AND pid <> pg_backend_pid()) \
             + (SELECT count(*) FROM pg_replication_slots) \
             + (SELECT count(*) FROM pg_locks WHERE relation = 'pg_tablespace'::regclass AND mode = 'ShareRowExclusiveLock')",
        );
        left.unwrap() == "0"
    });
    let names = std::fs::read_dir(cluster.folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with(".forklift")).collect();
    assert!(left.is_empty(), "{left:?}");
}
