//! Dying or failing on purpose at one step, so that tests can try every one.
//!
//! `FORKLIFT_FAILPOINT=<step>:kill` ends this process with SIGKILL there, `<step>:fail` (or only `<step>`) makes the step
//! fail. Always compiled, so that what is tested is what is shipped; without the variable it costs one look-up in a map.

use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};

/// Every step, in the order a setup, a capture, a restore and a roll-back pass them.
pub const FAILPOINTS: &[&str] = &[
    "setup-intent-written",
    "setup-branch-forked",
    "setup-record-written",
    "setup-configuration-written",
    "setup-identity-written",
    "capture-paired",
    "turn-paired",
    "turn-published",
    "turn-logged",
    "journal-written",
    "cluster-prepared",
    "files-staged",
    "prepared",
    "app-stopped",
    "stopping",
    "branch-held",
    "branch-closed",
    "server-stopped",
    "safety-captured",
    "rewind-planned",
    "rewind-staged",
    "selected",
    "branch-selected",
    "files-installed",
    "rewind-recorded",
    "installed",
    "branch-released",
    "server-started",
    "journal-removed",
    "cleaned",
    "rollback-started",
    "rollback-cluster-discarded",
    "rollback-safety-removed",
    "rollback-rewind-removed",
    "rollback-branch-released",
    "rollback-server-started",
];

/// Passes one step.
pub(super) fn pass(environment: &Environment, step: &'static str) -> Result<()> {
    debug_assert!(FAILPOINTS.contains(&step), "{step} is not listed");
    let Some((name, action)) = environment.text("FORKLIFT_FAILPOINT").map(|text| text.split_once(':').unwrap_or((text, "fail"))) else {
        return Ok(());
    };
    if name != step {
        return Ok(());
    }
    if action == "kill" {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .map_err(|errno| Error::new(ErrorKind::Io, format!("failpoint {step}: kill: {errno}")))?;
    }
    Err(Error::new(ErrorKind::Io, format!("failpoint {step}")))
}
