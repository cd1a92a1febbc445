//! The keeper: parent of one server. Its program is `forklift-keeper`; this module is both sides of the pipe.
//!
//! Read in this order: `protocol` (orders and lines), `launch` (the library's side), `serve` (the program's loop),
//! `postmaster` (command line, readiness, progress of recovery), `limits` (how long it runs), `relay` (TCP).

mod launch;
mod limits;
mod postmaster;
mod protocol;
mod relay;
mod serve;

use std::path::PathBuf;

use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};

pub(super) use launch::Channel;
pub(super) use protocol::{Line, Programs, Start};

/// Name of the program.
const PROGRAM: &str = "forklift-keeper";

/// Body of the program `forklift-keeper`: reads its orders from standard input, a socket. Gives the exit code: 0 when the
/// server has ended, 2 when it was not started by the library, 3 when the server could not be started.
#[must_use]
pub fn main() -> std::process::ExitCode {
    serve::serve()
}

/// Finds the program: `FORKLIFT_KEEPER`, beside this program, in a `libexec/forklift` beside it, on PATH.
///
/// # Errors
/// `NotFound` naming the places that were looked at.
pub fn locate(environment: &Environment) -> Result<PathBuf> {
    if let Some(path) = environment.get("FORKLIFT_KEEPER").map(PathBuf::from) {
        return if path.is_absolute() && is_program(&path) {
            Ok(path)
        } else {
            Err(Error::new(
                ErrorKind::NotFound,
                format!("{} (FORKLIFT_KEEPER) is not an executable file with an absolute path", path.display()),
            )
            .with("path", path.display()))
        };
    }
    let mut places = Vec::new();
    for folder in
        [std::env::current_exe().ok(), crate::sys::library::path()].into_iter().flatten().filter_map(|path| Some(path.parent()?.to_owned()))
    {
        places.push(folder.join(PROGRAM));
        places.push(folder.join("libexec/forklift").join(PROGRAM));
        places.extend(folder.parent().map(|parent| parent.join("libexec/forklift").join(PROGRAM)));
    }
    places.extend(environment.path().into_iter().map(|folder| folder.join(PROGRAM)));
    if let Some(found) = places.iter().find(|place| is_program(place)) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = places.iter().take(6).map(|place| place.display().to_string()).collect();
    Err(Error::new(ErrorKind::NotFound, format!("the program {PROGRAM} was not found (looked at {} and on PATH)", looked.join(", ")))
        .hint("install it beside the program or library, or name it in FORKLIFT_KEEPER"))
}

fn is_program(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
