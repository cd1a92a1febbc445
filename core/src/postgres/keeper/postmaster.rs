//! The keeper's child: command line, readiness, and whether a recovery advances.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::Signal;

use super::super::contain::{self, Places};
use super::super::lock_file::LockFile;
use super::protocol::{Refusal, Start};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::identity;
use crate::sys::process::{self, Handle, Identity};

/// How much of the log an error carries.
const TAIL: u64 = 4096;

/// The server's first process.
pub(super) struct Postmaster {
    child: Child,
    identity: Identity,
    log: File,
    log_start: u64,
}

impl Postmaster {
    /// Executes `postgres` as a child that dies with this thread; what it says goes to `log`.
    pub(super) fn spawn(start: &Start, log: File) -> Result<Self> {
        let log_start = log.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let installation = start.programs.installation();
        let switch = start.run_as.switch();
        let apart = start.contain.as_ref().is_some_and(|with| with.namespaces);
        let mut command = start.run_as.command_as(&if apart { switch.apart() } else { switch }, &installation, "postgres")?;
        command.arg("-D").arg(&start.data);
        for (name, value) in settings(start).into_iter().chain(start.settings.iter().map(|(name, value)| (name.clone(), value.into()))) {
            let mut setting = OsString::from(name);
            setting.push("=");
            setting.push(value);
            command.arg("-c").arg(setting);
        }
        let output = || log.try_clone().map(Stdio::from).map_err(|source| Error::io("duplicate", &start.run.join("log"), source));
        command.stdout(output()?).stderr(output()?);
        identity::dies_with_caller(&mut command);
        if let Some(with) = &start.contain {
            let places = Places { installation: &installation, data: &start.data, socket: &start.address.private, run: &start.run };
            contain::cage(with, &places)?.apply_to(&mut command);
        }
        let program = installation.bin.join("postgres");
        let child = command.spawn().map_err(|source| Error::io("execute", &program, source))?;
        // A child that has ended already is a zombie until it is waited for: its ticks are still there.
        let ticks = process::stat(child.id())
            .map(|stat| stat.ticks)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "/proc does not show the server").hint("mount /proc and try again"))?;
        let identity = Identity { pid: child.id(), ticks };
        Ok(Self { child, identity, log, log_start })
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Our own child, not yet waited for: its pid is its own. A server that has ended needs no signal.
        drop(Handle::open(self.identity).map(|handle| handle.signal(signal)));
    }

    /// Whether its pid file says so and its private socket takes a connection.
    pub(super) fn is_ready(&self, start: &Start) -> bool {
        let ready = LockFile::of_cluster(&start.data).ok().flatten().is_some_and(|file| file.pid == self.identity.pid && file.is_ready());
        ready && UnixStream::connect(start.address.private_socket()).is_ok()
    }

    /// A number that changes while the server gets on: its log, pg_control, and its processes' time, title and reads.
    pub(super) fn progress(&self, start: &Start) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.log.metadata().map(|metadata| metadata.len()).unwrap_or_default().hash(&mut hasher);
        if let Ok(control) = std::fs::metadata(start.data.join("global/pg_control")) {
            (control.mtime(), control.mtime_nsec()).hash(&mut hasher);
        }
        let mut pids = process::working_in(&start.data, "postgres").unwrap_or_default();
        pids.sort_unstable();
        for pid in pids {
            (pid, process::stat(pid).map(|stat| stat.cpu), process::arguments(pid), process::bytes_moved(pid)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// What this start has logged, for a failure.
    pub(super) fn refusal(&self, start: &Start, what: &str) -> Refusal {
        let tail = self.tail();
        let reason = tail
            .lines()
            .rev()
            .find_map(|line| ["FATAL: ", "PANIC: ", "ERROR: "].iter().find_map(|level| Some(line.split_once(level)?.1.trim())));
        let message = match reason.or_else(|| tail.lines().rev().find(|line| !line.trim().is_empty())) {
            Some(reason) => format!("the server of {} {what}: {reason}", start.data.display()),
            None => format!("the server of {} {what} and logged nothing", start.data.display()),
        };
        let busy = reason.is_some_and(|reason| reason.contains("lock file") && reason.contains("already exists"));
        Refusal { message, busy, hint: Some(format!("see {}", start.run.join("log").display())), tail }
    }

    fn tail(&self) -> String {
        let end = self.log.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let from = self.log_start.max(end.saturating_sub(TAIL));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
        let read = self.log.read_at(&mut bytes, from).unwrap_or(0);
        bytes.truncate(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What forklift sets for every server, on the command line only.
fn settings(start: &Start) -> Vec<(String, OsString)> {
    let mut settings: Vec<(&str, OsString)> = vec![
        ("listen_addresses", "".into()),
        ("unix_socket_directories", quoted_folder(start)),
        ("unix_socket_permissions", "0700".into()),
        ("unix_socket_group", "".into()),
        ("port", "5432".into()),
        ("hba_file", start.run.join("hba.conf").into()),
        ("ident_file", start.run.join("ident.conf").into()),
        ("external_pid_file", "".into()),
        ("ssl", "off".into()),
        ("logging_collector", "off".into()),
        ("log_destination", "stderr".into()),
        ("lc_messages", "C".into()),
    ];
    if start.programs.installation().version.major >= 14 {
        settings.push(("recovery_init_sync_method", "syncfs".into()));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The setting is a list: a comma or a quote in the folder would split it.
fn quoted_folder(start: &Start) -> OsString {
    let folder = start.address.private.to_string_lossy().replace('"', "\"\"");
    format!("\"{folder}\"").into()
}
