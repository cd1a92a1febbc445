//! The name of a foreign cluster's bootstrap superuser.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::super::{Installation, RunAs};
use super::{find, stop};
use crate::error::{Error, ErrorKind, Result};

/// Asks the catalog with the single-user backend, which needs no password. The cluster must be stopped and our own copy: it
/// is opened for writing.
///
/// # Errors
/// `Busy` where it runs; `ServerStart` with what the backend said.
pub fn bootstrap_superuser(installation: &Installation, run_as: &RunAs, data: &Path) -> Result<String> {
    let found = find::look(Path::new("/nonexistent"), data)?;
    if let Some(pid) = found.postmaster.map(|postmaster| postmaster.pid).or(found.pids.first().copied()) {
        return Err(stop::foreign(data, pid));
    }
    run_as.check(installation, data)?;
    let mut command = run_as.command(installation, "postgres")?;
    // A copied configuration may name the data folder of its source, which would win over -D.
    let own = format!("data_directory={}", data.display());
    command.args(["--single", "-D"]).arg(data).args(["-c", &own, "-c", "archive_mode=off", "-c", "logging_collector=off", "template1"]);
    let failed = |source: std::io::Error| Error::io("run the single-user backend on", data, source);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // In hexadecimal, as the backend quotes nothing. A backend that has ended says why on its other pipe.
        drop(input.write_all(b"SELECT encode(convert_to(rolname::text, 'UTF8'), 'hex') AS name FROM pg_authid WHERE oid = 10;\n"));
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = text.lines().find_map(|line| unhex(line.split_once("name = \"")?.1.split_once('"')?.0));
    name.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("nothing").to_owned();
        Error::new(ErrorKind::ServerStart, format!("the single-user backend did not name the superuser of {}: {said}", data.display()))
            .with("path", data.display())
    })
}

fn unhex(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok().filter(|name| !name.is_empty())
}
