//! Running a program that is not a server: a seed command, pg_dump and its like.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;

/// How long a cancelled program may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How much of the standard error is told.
const TAIL: usize = 4000;

/// Runs the program to its end, its standard error in the file `log` (which must not exist yet) and its standard output in
/// `output`, or nowhere. Where it is cancelled its whole process group is ended. `Command` says how it ended and what it wrote last.
pub(super) fn run(what: &str, command: &mut Command, log: &Path, output: Option<File>, control: &Control) -> Result<()> {
    let stderr = sys::fs::create_new(log, 0o600)?;
    command.process_group(0).stdin(Stdio::null()).stdout(output.map_or_else(Stdio::null, Stdio::from)).stderr(stderr);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|source| {
        let error = Error::new(ErrorKind::Command, format!("{what} could not be run: {program}: {source}"));
        error.hint("check that the program exists and can be executed").because(source)
    })?;
    let status = wait(&mut child, control)?;
    if status.success() {
        return Ok(());
    }
    let tail = tail(log);
    let last = tail.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it wrote nothing to its standard error").to_owned();
    Err(Error::new(ErrorKind::Command, format!("{what} {}: {last}", ending(status))).with("program", program).with("stderr", tail))
}

/// What it wrote last to its standard error.
pub(super) fn tail(log: &Path) -> String {
    let bytes = sys::fs::read(log).unwrap_or_default();
    let start = bytes.len().saturating_sub(TAIL);
    String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned()
}

fn wait(child: &mut Child, control: &Control) -> Result<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    let waiting = |source: std::io::Error| Error::new(ErrorKind::Io, format!("wait for a program: {source}")).because(source);
    loop {
        if let Some(status) = child.try_wait().map_err(waiting)? {
            return Ok(status);
        }
        if let Err(cancelled) = control.check() {
            end(child).map_err(waiting)?;
            return Err(cancelled);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Ends the process group: asked first, then killed. The group's leader is not reaped before, so that its number is still ours.
fn end(child: &mut Child) -> std::io::Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal: Signal| {
        // No such process: all of them have ended.
        if let Some(group) = group {
            let sent = kill_process_group(group, signal);
            drop(sent);
        }
    };
    signal(Signal::TERM);
    let start = Instant::now();
    while start.elapsed() < GRACE && !is_zombie(child.id()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(Signal::KILL);
    child.wait().map(drop)
}

/// Whether the process has ended but was not waited for; also where that cannot be found out.
fn is_zombie(pid: u32) -> bool {
    let stat = sys::fs::read(Path::new(&format!("/proc/{pid}/stat"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    text.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()).is_none_or(|state| state == 'Z')
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "did not end well".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failure_names_the_exit_code_and_the_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let error = run("the seed", &mut shell("echo first >&2; echo last words >&2; exit 3"), &log, None, &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Command);
        assert_eq!(error.message(), "the seed ended with exit code 3: last words");
    }

    #[test]
    fn cancelling_ends_the_whole_process_group() {
        let folder = tempfile::tempdir().unwrap();
        let (log, pid) = (folder.path().join("log"), folder.path().join("pid"));
        let token = CancelToken::new();
        let control = Control::new(token.clone(), None);
        let script = format!("trap '' TERM; (trap '' TERM; echo $$ > {0}.part; mv {0}.part {0}; while :; do sleep 0.05; done) & wait; while :; do sleep 0.05; done", pid.display());
        let script = script.replace("$$", "$(exec sh -c 'echo $PPID')");
        let running = std::thread::spawn(move || run("the seed", &mut shell(&script), &log, None, &control));
        while !pid.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        token.cancel();
        assert_eq!(running.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        let child: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        while !is_zombie(child) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
