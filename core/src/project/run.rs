//! Running a command with the project's database.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::Project;
use super::configuration::Configuration;
use super::database::Database;
use super::lock::{Holder, HolderKind, TOKEN_VARIABLE};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs;
use crate::sys::lock::{Lock, Mode};

/// Variables of libpq that would lead the child elsewhere.
const MISLEADING: &[&str] = &["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGPASSFILE", "PGSSLMODE", "PGTARGETSESSIONATTRS"];
/// How often a cancelled token is noticed.
const LOOK: Duration = Duration::from_millis(50);
/// How long the start or stop of the server by another `run` is waited for.
const SERVER_PATIENCE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Program and arguments; a single word that names one of the configuration's `commands` runs that.
    pub command: Vec<OsString>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// Exit code, where it exited.
    pub code: Option<i32>,
    /// Signal, where it was killed by one.
    pub signal: Option<i32>,
}

impl Project {
    /// Starts the server where there is one, runs the command with the URL in `connection_env`, PGHOST, PGPORT, PGUSER,
    /// PGPASSWORD, PGDATABASE and a token that lets its own forklift calls pass the command lock, which is held shared meanwhile.
    /// Standard streams are inherited. A named command runs in the worktree's root, any other in the folder that the project was
    /// opened from. A server that a `run` started is stopped when the last `run` ends. A cancelled token sends the child
    /// SIGTERM; it is waited for in any case. Ctrl-C reaches the child from the terminal: a host that only waits should not cancel for it.
    ///
    /// # Errors
    /// `RecoveryNeeded` while a journal is pending, `Busy` while a restore is under way, `InvalidArgument` for an empty command,
    /// `NotFound` or `Permission` for a program that cannot be run, `ServerStart`. How the child ended is no error.
    pub fn run(&self, options: &RunOptions, control: &Control) -> Result<RunOutcome> {
        control.check()?;
        self.check_root()?;
        let configuration = self.configuration()?;
        let (command, folder) = self.command_of(options, &configuration)?;
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let holder = self.hold(HolderKind::Run, &words.join(" "), control)?;
        let database = self.database()?;
        let mut variables = vec![(TOKEN_VARIABLE.to_owned(), holder.token().to_owned())];
        if let Some(database) = &database {
            self.start_for_run(database, &holder, control)?;
        }
        let ran = self.run_child(database.as_ref(), &configuration, &command, &folder, &mut variables, control);
        let stopped = database.as_ref().map_or(Ok(()), |database| self.stop_after_run(database, &holder, &control.uncancellable()));
        drop(holder);
        let outcome = ran?;
        stopped?;
        Ok(outcome)
    }

    fn run_child(
        &self,
        database: Option<&Database>,
        configuration: &Configuration,
        command: &[OsString],
        folder: &PathBuf,
        variables: &mut Vec<(String, String)>,
        control: &Control,
    ) -> Result<RunOutcome> {
        if let Some(database) = database {
            variables.extend(database.variables(configuration.connection, &configuration.connection_env)?);
        }
        let (program, arguments) = command.split_first().ok_or_else(no_command)?;
        let mut child = Command::new(program);
        child.args(arguments).current_dir(folder);
        if database.is_some() {
            for name in MISLEADING {
                child.env_remove(name);
            }
        }
        child.envs(variables.iter().map(|(name, value)| (name, value)));
        let child = child.spawn().map_err(|source| cannot_run(program, &self.environment.path(), source))?;
        wait(child, control)
    }

    fn command_of(&self, options: &RunOptions, configuration: &Configuration) -> Result<(Vec<OsString>, PathBuf)> {
        if let [word] = options.command.as_slice()
            && let Some(named) = word.to_str().and_then(|word| configuration.commands.get(word))
        {
            return Ok((named.iter().map(OsString::from).collect(), self.root.clone()));
        }
        if options.command.first().is_none_or(|program| program.is_empty()) {
            let names: Vec<_> = configuration.commands.keys().map(String::as_str).collect();
            let error = no_command();
            return Err(if names.is_empty() { error } else { error.hint(format!("name a program, or one of {}", names.join(", "))) });
        }
        Ok((options.command.clone(), self.opened.clone()))
    }

    /// One run at a time looks at the server; the marker says that it is there only for runs.
    fn start_for_run(&self, database: &Database, holder: &Holder, control: &Control) -> Result<()> {
        let _turn = Lock::wait(&self.folder.server_lock(), Mode::Exclusive, SERVER_PATIENCE, control)?;
        let marker = self.folder.server_marker();
        let running = database.is_running()?;
        if !running || !self.is_used_by_others(holder)? {
            // Left by a run that was killed: a server that runs now may be anybody's, and stays.
            fs::remove_file(&marker)?;
        }
        if running {
            return Ok(());
        }
        drop(fs::create_new(&marker, 0o600)?);
        database.start(control).inspect_err(|_| drop(fs::remove_file(&marker)))
    }

    /// Whether another managed command is at work.
    fn is_used_by_others(&self, holder: &Holder) -> Result<bool> {
        Ok(self.holders(false)?.into_iter().any(|other| other.kind == HolderKind::Run && other.token != holder.token()))
    }

    fn stop_after_run(&self, database: &Database, holder: &Holder, control: &Control) -> Result<()> {
        // A restore that the command left behind in the background owns the server now.
        let Ok(_shared) = self.beside_others(SERVER_PATIENCE, control) else { return Ok(()) };
        let _turn = Lock::wait(&self.folder.server_lock(), Mode::Exclusive, SERVER_PATIENCE, control)?;
        let marker = self.folder.server_marker();
        if self.is_used_by_others(holder)? || !marker.exists() || self.journal()?.is_some() {
            return Ok(());
        }
        database.stop(control)?;
        fs::remove_file(&marker)
    }
}

/// Waits for the child; a cancelled token sends it SIGTERM once. The child is reaped only when nobody may signal it any more.
fn wait(mut child: Child, control: &Control) -> Result<RunOutcome> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut over = ended.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut sent = false;
            while !*over {
                if control.cancel().is_cancelled() && !sent {
                    sent = true;
                    // It may have ended already: then it is a zombie that takes no signal.
                    let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::TERM));
                }
                over = ended.1.wait_timeout(over, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        if let Some(pid) = pid {
            while let Err(rustix::io::Errno::INTR) =
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
        }
        *ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ended.1.notify_all();
    });
    let status =
        child.wait().map_err(|source| Error::new(ErrorKind::Io, format!("wait for process {}: {source}", child.id())).because(source))?;
    Ok(RunOutcome { code: status.code(), signal: status.signal() })
}

fn no_command() -> Error {
    Error::new(ErrorKind::InvalidArgument, "no command to run").hint("name a program and its arguments after --")
}

/// A folder of PATH that may not be searched makes the system say "permission denied" for a program that is nowhere.
fn cannot_run(program: &OsString, path: &[PathBuf], source: std::io::Error) -> Error {
    let name = program.display();
    let bare = PathBuf::from(program).components().count() == 1 && !program.as_encoded_bytes().contains(&b'/');
    let nowhere = bare && !path.iter().any(|folder| folder.join(program).exists());
    let error = match source.kind() {
        std::io::ErrorKind::PermissionDenied if !nowhere => {
            Error::new(ErrorKind::Permission, format!("the program {name} cannot be executed")).hint("check its mode")
        }
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::NotFound, format!("the program {name} was not found"))
                .hint("check its name, PATH, and `commands` in .forklift.json")
        }
        _ => Error::new(ErrorKind::Command, format!("the program {name} cannot be run: {source}")),
    };
    error.with("program", name).because(source)
}
