//! One start, from the checks before it to the public socket.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::keeper::{Channel, Line, Programs, Start};
use super::super::lock_file::{self, LockFile};
use super::super::record::Record;
use super::super::{ControlFile, copy_settings};
use super::find::{self, Found};
use super::{Server, ServerSpec, passwords, stop};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys;
use crate::sys::lock::{Lock, Mode};
use crate::sys::process::{self, Identity};

/// A log that is longer than this is put aside at a start.
const LOG_LIMIT: u64 = 4 << 20;

/// How long processes that a killed postmaster left behind may take to end.
const CHILDREN: Duration = Duration::from_secs(20);

/// How long a keeper may take to end after a start that failed.
const CLEAN_UP: Duration = Duration::from_secs(30);

pub(super) fn start(spec: &ServerSpec, prepare: impl FnOnce(&Server) -> Result<()>, control: &Control) -> Result<Server> {
    control.check()?;
    check_cluster(spec)?;
    spec.run_as.make_folder(&spec.run)?;
    let lock = match Lock::attempt(&spec.run.join("keeper.lock"), Mode::Exclusive)? {
        Some(lock) => lock,
        None => return Err(held(spec)?),
    };
    clear(spec, control)?;
    make_address(spec)?;
    spec.run_as.check_folders(&spec.installation, &[&spec.data, &spec.run, &spec.address.private])?;
    passwords::write_access(&spec.run, &spec.run_as, spec.set_passwords)?;
    let log = open_log(&spec.run)?;
    control.report("start server", 0, 1, Unit::Items);
    let channel = Channel::open(&spec.keeper, order(spec)?, &log, &lock)?;
    // The keeper holds the lock from here on.
    drop(lock);
    let server = bring_up(spec, channel, prepare, control);
    if server.is_err() {
        // The channel is closed: the keeper stops the server if there is one, and ends.
        let begin = Instant::now();
        while begin.elapsed() < CLEAN_UP && Lock::attempt(&spec.run.join("keeper.lock"), Mode::Exclusive)?.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    control.report("start server", 1, 1, Unit::Items);
    server
}

pub(super) fn check(spec: &ServerSpec) -> Result<()> {
    check_cluster(spec)?;
    copy_settings(&spec.data, spec.installation.version)?;
    ControlFile::read(&spec.data)?;
    if !spec.keeper.is_file() {
        return Err(Error::new(ErrorKind::NotFound, format!("{} is not there", spec.keeper.display())).with("path", spec.keeper.display()));
    }
    spec.run_as.check_folders(&spec.installation, &[&spec.data, &spec.run, &spec.address.private])
}

fn bring_up(spec: &ServerSpec, mut channel: Channel, prepare: impl FnOnce(&Server) -> Result<()>, control: &Control) -> Result<Server> {
    let postmaster = match channel.line(None, control)? {
        Line::Started(postmaster) => postmaster,
        other => return Err(unexpected(spec, other)),
    };
    match channel.line(None, control)? {
        Line::Ready => {}
        other => return Err(unexpected(spec, other)),
    }
    let keeper =
        Record::read(&spec.run)?.filter(|record| record.postmaster == postmaster).map(|record| record.keeper).ok_or_else(|| {
            Error::new(ErrorKind::ServerStart, format!("the server of {} ended as soon as it was ready", spec.data.display()))
        })?;
    if spec.set_passwords {
        passwords::set(&spec.address, &spec.credentials, &spec.run, &spec.run_as)?;
    } else {
        passwords::ensure_ours(postmaster, &spec.address, &spec.credentials, &spec.run, &spec.run_as)?;
    }
    let mut server = Server {
        data: spec.data.clone(),
        run: spec.run.clone(),
        address: spec.address.clone(),
        credentials: spec.credentials.clone(),
        postmaster,
        keeper,
        channel: None,
    };
    prepare(&server)?;
    control.check()?;
    channel.publish()?;
    match channel.line(Some(CLEAN_UP), &control.uncancellable())? {
        Line::Published => {}
        other => return Err(unexpected(spec, other)),
    }
    server.channel = spec.bound_to_owner.then_some(channel);
    Ok(server)
}

fn order(spec: &ServerSpec) -> Result<Start> {
    Ok(Start {
        programs: Programs::from(&spec.installation),
        run_as: spec.run_as.clone(),
        contain: spec.contain.clone(),
        limits: spec.limits,
        data: spec.data.clone(),
        run: spec.run.clone(),
        address: spec.address.clone(),
        // A copy has its tablespaces as real folders.
        settings: [copy_settings(&spec.data, spec.installation.version)?, spec.settings.clone()].concat(),
        system_identifier: ControlFile::read(&spec.data)?.system_identifier,
        patience_ms: u64::try_from(spec.patience.as_millis()).unwrap_or(u64::MAX),
        owner: if spec.bound_to_owner { Some(Identity::own()?) } else { None },
    })
}

fn check_cluster(spec: &ServerSpec) -> Result<()> {
    for path in [&spec.data, &spec.run, &spec.keeper] {
        if !path.is_absolute() {
            return Err(
                Error::new(ErrorKind::InvalidArgument, format!("{} is not an absolute path", path.display())).with("path", path.display())
            );
        }
    }
    let version = spec.installation.version;
    match lock_file::major_of(&spec.data) {
        Some(major) if major == version.major => Ok(()),
        Some(major) => Err(Error::new(
            ErrorKind::PostgresMismatch,
            format!(
                "the cluster {} was made by Postgres {major}, and {} is Postgres {}",
                spec.data.display(),
                spec.installation.bin.display(),
                version.major
            ),
        )
        .hint(format!("name an installation of Postgres {major} with --postgres"))),
        None => Err(Error::new(ErrorKind::NotFound, format!("{} is not a Postgres cluster: it has no PG_VERSION", spec.data.display()))
            .with("path", spec.data.display())),
    }
}

/// Somebody holds this run folder: a keeper, or another start.
fn held(spec: &ServerSpec) -> Result<Error> {
    let found = find::look(&spec.run, &spec.data)?;
    let pid = found.postmaster.or_else(|| Record::read(&spec.run).ok().flatten().map(|record| record.keeper)).map(|identity| identity.pid);
    let who = pid.map_or_else(|| "another start".to_owned(), |pid| format!("process {pid}"));
    let error =
        Error::new(ErrorKind::Busy, format!("the cluster {} is in use by {who}", spec.data.display())).with("path", spec.data.display());
    let error = match pid {
        Some(pid) => error.with("pid", pid),
        None => error,
    };
    Ok(error.hint("use the running server, or stop it first"))
}

/// Makes sure that nobody has the cluster, and that no leftover of a dead server keeps Postgres from starting.
fn clear(spec: &ServerSpec, control: &Control) -> Result<()> {
    let begin = Instant::now();
    loop {
        match find::look(&spec.run, &spec.data)? {
            Found { pids, .. } if pids.is_empty() => break,
            Found { postmaster: Some(postmaster), ours: false, .. } => return Err(stop::foreign(&spec.data, postmaster.pid)),
            // Its keeper is gone, or the lock would be held.
            Found { postmaster: Some(_), .. } => stop::end_orphan(&spec.run, &spec.data, &spec.address, CHILDREN)?,
            // What a killed postmaster left behind ends by itself; to start beside it would ruin the cluster.
            Found { pids, .. } if begin.elapsed() >= CHILDREN => return Err(stop::stuck(&spec.data, &pids)),
            Found { .. } => std::thread::sleep(Duration::from_millis(5)),
        }
        control.check()?;
    }
    clear_pid_file(&spec.data)?;
    clear_socket_lock(spec)?;
    spec.address.hide()?;
    Record::remove(&spec.run)
}

/// Postgres refuses to start while the pid in `postmaster.pid` answers, even if it is now a stranger's. Nobody works in the
/// folder (seen before), so such a file is removed once nobody has its shared memory either; all others are left to Postgres.
fn clear_pid_file(data: &Path) -> Result<()> {
    let Some(lock) = LockFile::of_cluster(data)? else { return Ok(()) };
    if !process::answers(lock.pid) {
        return Ok(());
    }
    if lock.shared_memory.is_some_and(process::shared_memory_attached) {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("the shared memory of {} is still in use by a process that cannot be seen", data.display()),
        )
        .with("path", data.display())
        .hint("find the process with `ipcs -mp`, and end it"));
    }
    sys::fs::remove_file(&data.join("postmaster.pid"))
}

/// The same for the lock beside the socket; one that a living postmaster holds is somebody else's.
fn clear_socket_lock(spec: &ServerSpec) -> Result<()> {
    let path = spec.address.private_lock();
    if let Some(lock) = LockFile::read(&path)? {
        let alive = process::runs(lock.pid, "postgres") && LockFile::of_cluster(&lock.data)?.is_some_and(|other| other.pid == lock.pid);
        if alive && Identity::of(lock.pid).is_some() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("the address of this branch is in use by process {}, the server of {}", lock.pid, lock.data.display()),
            )
            .with("pid", lock.pid)
            .hint("stop that server first"));
        }
    }
    sys::fs::remove_file(&path)?;
    sys::fs::remove_file(&spec.address.private_socket())
}

fn make_address(spec: &ServerSpec) -> Result<()> {
    spec.run_as.open_parents(&spec.address.private)?;
    spec.address.ensure()?;
    spec.run_as.give(&spec.address.private)
}

fn open_log(run: &Path) -> Result<File> {
    let path = run.join("log");
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_LIMIT) {
        let old = run.join("log.1");
        rustix::fs::rename(&path, &old).map_err(|errno| Error::io("rename to", &old, errno))?;
    }
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).append(true).create(true).mode(0o600).open(&path).map_err(|source| Error::io("open", &path, source))
}

fn unexpected(spec: &ServerSpec, line: Line) -> Error {
    let Line::Failed(refusal) = line else {
        return Error::new(ErrorKind::Internal, format!("the keeper of {} said something out of turn: {line:?}", spec.data.display()));
    };
    let kind = if refusal.busy { ErrorKind::Busy } else { ErrorKind::ServerStart };
    let error = Error::new(kind, refusal.message).with("path", spec.data.display());
    let error = if refusal.tail.is_empty() { error } else { error.with("log", refusal.tail) };
    match refusal.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
