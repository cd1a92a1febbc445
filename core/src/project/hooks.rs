//! The commands that stop and start a long-running app around a restore.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use super::Project;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

const TAIL: usize = 2000;

impl Project {
    /// Runs the stop hook: whether the app ran and was stopped.
    pub(super) fn run_stop_hook(&self, command: &[String]) -> Result<bool> {
        let (status, tail) = self.run_hook("stop", command)?;
        match status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed("stop", command, status, &tail).hint("exit code 0 says that the app was stopped, 1 that it did not run")),
        }
    }

    /// Runs the start hook.
    pub(super) fn run_start_hook(&self, command: &[String]) -> Result<()> {
        let (status, tail) = self.run_hook("start", command)?;
        if status.success() { Ok(()) } else { Err(failed("start", command, status, &tail).hint("start the app yourself")) }
    }

    /// Output goes to a file: an app that the hook leaves running may keep its streams open for ever.
    fn run_hook(&self, hook: &str, command: &[String]) -> Result<(ExitStatus, String)> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Error::new(ErrorKind::Config, format!("the {hook} hook is empty")))?;
        let path = self.folder.hook_log(hook);
        fs::remove_file(&path)?;
        let log = fs::create_new(&path, 0o600)?;
        let errors = log.try_clone().map_err(|source| Error::io("open", &path, source))?;
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&self.root)
            .env("FORKLIFT_HOOK", hook)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .status()
            .map_err(|source| {
                Error::new(ErrorKind::Command, format!("the {hook} hook {program} cannot be run: {source}")).because(source)
            })?;
        Ok((status, tail(&path)))
    }
}

fn tail(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).trim().replace('\n', " | ");
    let cut = text.len().saturating_sub(TAIL);
    text.char_indices().find(|(index, _)| *index >= cut).and_then(|(index, _)| text.get(index..)).unwrap_or_default().to_owned()
}

fn failed(hook: &str, command: &[String], status: ExitStatus, tail: &str) -> Error {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    let said = if tail.is_empty() { String::new() } else { format!(": {tail}") };
    Error::new(ErrorKind::Command, format!("the {hook} hook `{}` ended with {how}{said}", command.join(" ")))
}
