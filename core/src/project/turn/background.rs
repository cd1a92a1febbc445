//! Capturing the start of a window beside the host: another process of ours does what [`Project::turn_wait`] does.
//!
//! Nobody depends on that process: whoever waits, or opens or closes another window, captures what it has not.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::super::{Project, ProjectOptions};
use super::options::{TurnData, TurnOptions};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;

/// The variable that tells the program what to do.
const TASK: &str = "FORKLIFT_TASK";

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    #[serde(with = "super::super::paths")]
    root: PathBuf,
    #[serde(with = "super::super::paths")]
    store: PathBuf,
    session: String,
    data: TurnData,
}

/// Starts the process; `false` in a build that has no program for it. The host gets no signal of its end, and no descriptor is left open.
pub(super) fn start(project: &Project, options: &TurnOptions) -> Result<bool> {
    let Some(program) = program(&project.environment)? else { return Ok(false) };
    let task =
        Task { root: project.root.clone(), store: project.store.path().to_owned(), session: options.session.clone(), data: options.data };
    let task =
        serde_json::to_string(&task).map_err(|error| Error::new(ErrorKind::Internal, format!("the task cannot be written: {error}")))?;
    let null = crate::sys::fs::open_null()?;
    let mut variables: Vec<(&str, &OsStr)> = project.environment.variables().filter(|(name, _)| *name != TASK).collect();
    variables.push((TASK, OsStr::new(&task)));
    crate::sys::spawn::detached(program.as_os_str(), &variables, &[null.as_fd(), null.as_fd(), null.as_fd()])
        .map_err(|source| Error::io("execute", &program, source))?;
    Ok(true)
}

/// Body of the program that captures in the background: does the task that `environment` names; `None` where it names none.
#[must_use]
pub fn background_task(environment: &Environment) -> Option<ExitCode> {
    let task = environment.text(TASK)?;
    let done = serde_json::from_str::<Task>(task).ok().and_then(|task| {
        let options = ProjectOptions { store: Some(task.store) };
        let project = Project::open(&task.root, &options, environment).ok()?;
        project.turn_wait(&task.session, task.data, &Control::silent()).ok()
    });
    // Whoever waits meets the same failure and tells it.
    Some(if done.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(feature = "postgres")]
fn program(environment: &Environment) -> Result<Option<PathBuf>> {
    crate::postgres::keeper::locate(environment).map(Some)
}

#[cfg(not(feature = "postgres"))]
#[allow(clippy::unnecessary_wraps, reason = "the same face as the one with the program")]
fn program(_: &Environment) -> Result<Option<PathBuf>> {
    Ok(None)
}
