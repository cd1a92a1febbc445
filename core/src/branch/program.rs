//! Running a program that is not a server: a seed command, pg_dump and its like.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::layout::ANONYMOUS;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;

/// How long a cancelled program may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How much of the standard error is told.
const TAIL: u64 = 4000;

/// What a program reads and writes besides its standard error, which is kept for the message.
#[derive(Default)]
pub(super) struct Streams<'a> {
    /// Read from its start; nothing where absent.
    pub(super) input: Option<&'a File>,
    /// Nowhere where absent.
    pub(super) output: Option<&'a File>,
}

/// A file without a name in `folder`: gone with the last handle, also after a crash.
pub(super) fn anonymous(folder: &Path) -> Result<File> {
    let path = folder.join(format!("{ANONYMOUS}{}", sys::id::sortable()?));
    let file = sys::fs::create_new(&path, 0o600)?;
    sys::fs::remove_file(&path)?;
    Ok(file)
}

/// Runs the program to its end and gives the end of its standard error, which goes to a nameless file in `folder`. Where it
/// is cancelled its whole process group is ended. `Command` says how it ended and what it wrote last.
pub(super) fn run(what: &str, command: &mut Command, folder: &Path, streams: &Streams<'_>, control: &Control) -> Result<String> {
    control.check()?;
    let log = anonymous(folder)?;
    let duplicate = |file: &File| file.try_clone().map(Stdio::from).map_err(|source| Error::io("open again a file in", folder, source));
    let input = match streams.input {
        Some(mut file) => {
            file.rewind().map_err(|source| Error::io("rewind a file in", folder, source))?;
            duplicate(file)?
        }
        None => Stdio::null(),
    };
    let output = streams.output.map_or_else(|| Ok(Stdio::null()), duplicate)?;
    command.process_group(0).stdin(input).stdout(output).stderr(duplicate(&log)?);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|source| {
        let error = Error::new(ErrorKind::Command, format!("{what} could not be run: {program}: {source}"));
        error.hint("check that the program exists and can be executed").because(source)
    })?;
    let status = wait(&mut child, control)?;
    let tail = tail(&log);
    if status.success() {
        return Ok(tail);
    }
    let last =
        tail.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it wrote nothing to its standard error").to_owned();
    Err(Error::new(ErrorKind::Command, format!("{what} {}: {last}", ending(status))).with("program", program).with("stderr", tail))
}

/// The whole content of such a file.
pub(super) fn content(mut file: &File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|source| Error::new(ErrorKind::Io, format!("read a program's output: {source}")).because(source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(log: &File) -> String {
    let length = log.metadata().map_or(0, |metadata| metadata.len());
    let start = length.saturating_sub(TAIL);
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or_default()];
    match log.read_exact_at(&mut bytes, start) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
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
            let _ = kill_process_group(group, signal);
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
        let mut command = shell("echo first >&2; echo last words >&2; exit 3");
        let error = run("the seed", &mut command, folder.path(), &Streams::default(), &Control::silent()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Command);
        assert_eq!(error.message(), "the seed ended with exit code 3: last words");
    }

    #[test]
    fn cancelling_ends_the_whole_process_group() {
        let folder = tempfile::tempdir().unwrap();
        let (logs, pid) = (folder.path().to_owned(), folder.path().join("pid"));
        let token = CancelToken::new();
        let control = Control::new(token.clone(), None);
        let script = format!(
            "trap '' TERM; (trap '' TERM; echo $$ > {0}.part; mv {0}.part {0}; while :; do sleep 0.05; done) & wait; while :; do sleep 0.05; done",
            pid.display()
        );
        let script = script.replace("$$", "$(exec sh -c 'echo $PPID')");
        let running = std::thread::spawn(move || run("the seed", &mut shell(&script), &logs, &Streams::default(), &control));
        while !pid.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        token.cancel();
        assert_eq!(running.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        let child: u32 = String::from_utf8(sys::fs::read(&pid).unwrap()).unwrap().trim().parse().unwrap();
        while !is_zombie(child) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
