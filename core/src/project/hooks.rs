//! The commands that stop and start a long-running app around a restore.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use super::Project;
use super::run::MISLEADING;
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

    /// It is given what `run` gives of the database, whose server is not started for it. Output goes to files: an app that the hook leaves running may keep its streams open for ever.
    fn run_hook(&self, hook: &str, command: &[String]) -> Result<(ExitStatus, String)> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Error::new(ErrorKind::Config, format!("the {hook} hook is empty")))?;
        let (said, complained) = (self.folder.hook_log(hook), self.folder.hook_errors(hook));
        fs::remove_file(&said)?;
        fs::remove_file(&complained)?;
        let mut child = Command::new(program);
        child.args(arguments).current_dir(&self.root).stdin(Stdio::null());
        child.stdout(fs::create_new(&said, 0o600)?).stderr(fs::create_new(&complained, 0o600)?);
        if let Some(database) = self.database()? {
            // A .forklift.json that was broken since the hook was read keeps nobody from starting the app.
            let configuration = self.configuration().unwrap_or_default();
            for name in MISLEADING {
                child.env_remove(name);
            }
            child.envs(database.variables(configuration.connection, &configuration.connection_env)?);
        }
        let status = child.env("FORKLIFT_HOOK", hook).status().map_err(|source| {
            Error::new(ErrorKind::Command, format!("the {hook} hook {program} cannot be run: {source}")).because(source)
        })?;
        let complaint = tail(&complained);
        Ok((status, if complaint.is_empty() { tail(&said) } else { complaint }))
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
