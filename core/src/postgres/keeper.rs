//! The keeper: parent of one server. Its program is `forklift-keeper`; this module is both sides of the pipe.

use crate::environment::Environment;
use crate::error::Result;

/// Body of the program `forklift-keeper`: reads its orders from standard input. Gives the exit code.
#[must_use]
pub fn main() -> std::process::ExitCode { todo!() }

/// Finds the program: `FORKLIFT_KEEPER`, beside this program or library, in a `libexec/forklift` beside it, on PATH.
pub fn locate(environment: &Environment) -> Result<std::path::PathBuf> { let _ = environment; todo!() }
