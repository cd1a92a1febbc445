//! Servers to copy from and to, for the tests of copies, sequences and marks.

mod churn;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use forklift::postgres::{CopyReport, InitOptions, Server, Sink, Sql, StopMode, TreeSink, copy_online, initdb, prepare_copy, put_back};
use forklift::{Control, Result};

use crate::support::{Cluster, PATIENCE, wait_for};
pub(crate) use churn::{assert_consistent, churn};

/// A cluster with or without a running server.
pub(crate) struct Source {
    pub(crate) cluster: Cluster,
    server: Option<Server>,
}

impl Source {
    /// A new cluster whose server runs with these settings, with the database `app`.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_cluster(Cluster::new(), settings)
    }

    /// The same made with these options.
    pub(crate) fn start_with(settings: &[(&str, &str)], options: &InitOptions) -> Self {
        let cluster = Cluster::new();
        std::fs::remove_dir_all(&cluster.spec.data).unwrap();
        initdb(&cluster.spec.installation, &cluster.spec.run_as, &cluster.spec.data, options, &Control::silent()).unwrap();
        Self::start_cluster(cluster, settings)
    }

    fn start_cluster(mut cluster: Cluster, settings: &[(&str, &str)]) -> Self {
        cluster.spec.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut source = Self { cluster, server: None };
        source.start_server(|_| Ok(()));
        source
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.cluster.spec.data
    }

    /// A session in the database `app`.
    pub(crate) fn sql(&self) -> Sql {
        self.sql_in("app")
    }

    pub(crate) fn sql_in(&self, database: &str) -> Sql {
        let mut sql = self.server().connect(database).unwrap();
        sql.run("SET search_path = public").unwrap();
        sql
    }

    pub(crate) fn value(&self, statement: &str) -> String {
        self.sql().value(statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    pub(crate) fn start_server(&mut self, prepare: impl FnOnce(&Server) -> Result<()>) {
        self.server = Some(Server::start(&self.cluster.spec, prepare, &Control::silent()).unwrap());
        self.cluster.spec.set_passwords = false;
    }

    pub(crate) fn stop_server(&mut self, mode: StopMode) {
        self.server.take().unwrap().stop(mode, PATIENCE, &Control::silent()).unwrap();
    }

    /// Copies the running server into a new cluster, whose server is not started.
    pub(crate) fn copy(&self) -> (Self, CopyReport) {
        let (copy, report) = self.copy_through(|sink| copy_online(self.server(), sink, &Control::silent()));
        (copy, report.unwrap())
    }

    /// The same with a call of the test's own.
    pub(crate) fn copy_through<R>(&self, call: impl FnOnce(&mut dyn Sink) -> R) -> (Self, R) {
        let mut cluster = Cluster::new();
        std::fs::remove_dir_all(&cluster.spec.data).unwrap();
        cluster.spec.credentials = self.cluster.spec.credentials.clone();
        cluster.spec.set_passwords = false;
        cluster.spec.settings.push(("max_prepared_transactions".to_owned(), "10".to_owned()));
        let result = call(&mut TreeSink::new(self.data(), &cluster.spec.data).unwrap());
        cluster.spec.run_as.give(&cluster.spec.data).unwrap();
        (Self { cluster, server: None }, result)
    }

    /// Makes a copy safe to start, starts it and puts sequences back. Gives how many.
    pub(crate) fn start_copy(&mut self, report: &CopyReport) -> u64 {
        prepare_copy(self.data(), false).unwrap();
        let mut count = 0;
        self.start_server(|server| {
            count = put_back(server, &report.sequences)?;
            Ok(())
        });
        count
    }

    /// A client program of the installation, as our superuser.
    pub(crate) fn program(&self, name: &str) -> Command {
        let spec = &self.cluster.spec;
        let mut command = Command::new(spec.installation.program(name).unwrap());
        command
            .env("PGHOST", &spec.address.public)
            .env("PGUSER", &spec.credentials.ours.name)
            .env("PGPASSWORD", &spec.credentials.ours.password)
            .env("PGDATABASE", "app")
            .stdin(Stdio::null());
        command
    }
}

/// A process of ours that does not outlive its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs `work` in sessions beside `body`, until `body` has returned.
pub(crate) fn beside<R>(works: Vec<Box<dyn FnMut() + Send + '_>>, body: impl FnOnce() -> R) -> R {
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
pub(crate) fn assert_nothing_left(source: &Source) {
    wait_for("sessions, slots and locks of the copy to go", || {
        let mut sql = source.sql_in("template1");
        let left = sql.value(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forklift' AND pid <> pg_backend_pid()) \
             + (SELECT count(*) FROM pg_replication_slots) \
             + (SELECT count(*) FROM pg_locks WHERE relation = 'pg_tablespace'::regclass AND mode = 'ShareRowExclusiveLock')",
        );
        left.unwrap() == "0"
    });
    let names = std::fs::read_dir(source.cluster.root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with(".forklift")).collect();
    assert!(left.is_empty(), "{left:?}");
}
