//! A real small Postgres cluster that is changed, stopped and captured, and started again from what was captured.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forklift::postgres::{InitOptions, Installation, RunAs, find, initdb, prepare_copy};
use forklift::store::{Drilled, Store, VerifyOptions};
use forklift::{Control, Environment, Error, ErrorKind};

use crate::tally::Failure;

/// The cluster that is captured, and what each of its states holds.
#[derive(Debug)]
pub struct Source {
    installation: Installation,
    pub data: PathBuf,
    /// Of one server at a time; near the top, since the path of a socket has 107 bytes.
    sockets: PathBuf,
    /// What the query gives in each state.
    states: BTreeMap<u64, String>,
}

/// What proves the content: every row counts, in its order.
const QUERY: &str =
    "select count(*) || ' ' || coalesce(md5(string_agg(id || ':' || stamp || ':' || note, ',' order by id)), '') from torture";

impl Source {
    /// In `folder`; `Err` says why there can be none here.
    pub fn new(folder: &Path) -> Result<Self, String> {
        let environment = Environment::read();
        let installation = find(&environment).0.into_iter().next().ok_or("no Postgres on this machine")?;
        let run_as = RunAs::detect(&environment).map_err(|error| error.to_string())?;
        if matches!(run_as, RunAs::Account { .. }) {
            return Err("root cannot make a user namespace here".to_owned());
        }
        let data = folder.join("cluster");
        let options = InitOptions { wal_segment_mib: Some(1), ..InitOptions::default() };
        initdb(&installation, &run_as, &data, &options, &Control::silent()).map_err(|error| format!("initdb: {error}"))?;
        let mut source = Self { installation, data, sockets: folder.join("s"), states: BTreeMap::new() };
        let mut server = Server::start(&source.installation, &source.data, &source.sockets)?;
        server.run("create table torture (id serial primary key, stamp int8, note text)")?;
        server.stop();
        source.advance()?;
        Ok(source)
    }

    /// Changes it and stops it again; gives the stamp of its new state.
    pub fn advance(&mut self) -> Result<u64, String> {
        let stamp = self.states.len() as u64 + 1;
        let mut server = Server::start(&self.installation, &self.data, &self.sockets)?;
        server.run(&format!(
            "insert into torture (stamp, note) select {stamp}, md5(g || '-{stamp}') from generate_series(1, 60) g;
             update torture set note = md5(note) where id % 7 = {stamp} % 7;
             delete from torture where id % 11 = {stamp} % 11 and stamp < {stamp}"
        ))?;
        let state = server.value(QUERY)?;
        server.stop();
        self.states.insert(stamp, state);
        Ok(stamp)
    }

    pub fn stamp(&self) -> u64 {
        self.states.len() as u64
    }

    /// Restores every cluster in the store and starts it; gives the ids of those that were.
    pub fn restore_and_start_all(&self, store: &Store, scratch: &Path) -> Result<Vec<String>, Failure> {
        let mut started = Vec::new();
        let options = VerifyOptions { scratch: Some(scratch.to_owned()), ..VerifyOptions::default() };
        let mut start = |drilled: &Drilled<'_>| -> forklift::Result<()> {
            let Some(data) = &drilled.cluster else { return Ok(()) };
            let id = &drilled.checkpoint.id;
            let stamp = drilled.checkpoint.facts.get("stamp").and_then(serde_json::Value::as_u64).unwrap_or_default();
            self.start(data, stamp).map_err(|why| Error::new(ErrorKind::ServerStart, format!("the cluster of {id}: {why}")))?;
            started.push(id.clone());
            Ok(())
        };
        let report =
            store.drill(&options, &mut start, &Control::silent()).map_err(|error| Failure::new(format!("the drill fails: {error}")))?;
        if !report.is_whole() {
            return Err(Failure::lost(
                report.findings.len().max(report.losses.len()),
                format!("the drill finds {:?} {:?}", report.findings, report.losses),
            ));
        }
        Ok(started)
    }

    fn start(&self, data: &Path, stamp: u64) -> Result<(), String> {
        let expected = self.states.get(&stamp).ok_or_else(|| format!("stamp {stamp} was never captured"))?;
        prepare_copy(data, false).map_err(|error| error.to_string())?;
        let mut server = Server::start(&self.installation, data, &self.sockets)?;
        let found = server.value(QUERY)?;
        // It can be written too.
        server.run("insert into torture (stamp, note) values (0, 'after')")?;
        server.stop();
        if found == *expected { Ok(()) } else { Err(format!("it holds {found} where {expected} was captured")) }
    }
}

/// A server that is stopped whatever happens.
struct Server {
    child: Child,
    client: Option<postgres::Client>,
    sockets: PathBuf,
}

impl Server {
    /// The log where it does not start.
    fn start(installation: &Installation, data: &Path, sockets: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(sockets).map_err(|error| error.to_string())?;
        let log_path = sockets.join("log");
        let log = std::fs::File::create(&log_path).map_err(|error| error.to_string())?;
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-user=65534", "--map-group=65534"]).arg(installation.bin.join("postgres"));
            command
        } else {
            Command::new(installation.bin.join("postgres"))
        };
        if let Some(path) = &installation.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        command.arg("-D").arg(data).arg("-k").arg(sockets).args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=8MB"]);
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let mut server = Self { child: command.spawn().map_err(|error| error.to_string())?, client: None, sockets: sockets.to_owned() };
        let begun = Instant::now();
        loop {
            let mut config = postgres::Config::new();
            config.host_path(&server.sockets).user("forklift").dbname("postgres");
            if let Ok(client) = config.connect(postgres::NoTls) {
                server.client = Some(client);
                return Ok(server);
            }
            let ended = server.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || begun.elapsed() > Duration::from_secs(60) {
                let log = std::fs::read(&log_path).unwrap_or_default();
                return Err(format!("the server does not start ({ended:?}): {}", String::from_utf8_lossy(&log)));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), String> {
        let client = self.client.as_mut().ok_or("not connected")?;
        client.batch_execute(sql).map_err(|error| format!("{sql}: {error:?}"))
    }

    fn value(&mut self, sql: &str) -> Result<String, String> {
        let client = self.client.as_mut().ok_or("not connected")?;
        let row = client.query_one(sql, &[]).map_err(|error| format!("{sql}: {error:?}"))?;
        row.try_get(0).map_err(|error| error.to_string())
    }

    /// Ends it cleanly.
    fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.client = None;
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let (Some(pid), Ok(None)) = (pid, self.child.try_wait()) {
            rustix::process::kill_process(pid, rustix::process::Signal::INT).ok();
        }
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.sockets).ok();
    }
}
