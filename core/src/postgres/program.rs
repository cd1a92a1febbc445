//! Running a helper program to its end: bounded, cancellable, with its output.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;

/// How a program ended and what it wrote.
pub(super) struct Outcome {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Outcome {
    /// The end of what it wrote to stderr (else stdout), on one line.
    pub(super) fn tail(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let tail = lines.get(lines.len().saturating_sub(4)..).unwrap_or_default().join("; ");
        let from = tail.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
        tail.get(from..).unwrap_or_default().to_owned()
    }
}

/// Runs `command` to its end with stdin closed, in a process group of its own, which is killed on cancel or after `patience`.
///
/// # Errors
/// What starting it gave (`NotFound`, `Permission`, `Io`), `Cancelled`, `Timeout`. A failure of the program itself is in the outcome.
pub(super) fn run(command: &mut Command, patience: Duration, control: &Control) -> Result<Outcome> {
    control.check()?;
    let program = Path::new(command.get_program()).to_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
    let mut child = child.map_err(|source| Error::io("run", &program, source))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| drain(stdout));
        let stderr = scope.spawn(|| drain(stderr));
        let ended = wait(&mut child, &program, patience, control);
        if ended.is_err() {
            end_group(&mut child);
        }
        let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
        Ok(Outcome { status: ended?, stdout, stderr })
    })
}

fn wait(child: &mut Child, program: &Path, patience: Duration, control: &Control) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().map_err(|source| Error::io("wait for", program, source))? {
            return Ok(status);
        }
        control.check()?;
        if start.elapsed() > patience {
            return Err(Error::new(ErrorKind::Timeout, format!("{} did not end within {} s", program.display(), patience.as_secs()))
                .with("path", program.display()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills the child, which is not reaped yet and so still owns its pid, with everything it started.
fn end_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // The group is gone where the child never made it.
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap_or_default();
    }
    drop(child.kill());
    drop(child.wait());
}

fn drain(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // A broken pipe ends the output; what came before it is still worth showing.
        drop(pipe.read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
