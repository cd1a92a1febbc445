//! Finding Postgres on the machine.

use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::Result;

/// `major.minor` as `postgres --version` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// 13 to 18.
    pub major: u32,
    /// Minor release.
    pub minor: u32,
}

/// Where an installation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Named by the caller (`--postgres`, `FORKLIFT_POSTGRES`).
    Explicit,
    /// By `pg_config` or `postgres` on PATH.
    Path,
    /// In a distribution's folder, such as `/usr/lib/postgresql/15/bin`.
    Distribution,
    /// Homebrew.
    Homebrew,
    /// Put into the data folder by `forklift postgres install`.
    Bundled,
}

/// One usable installation: `postgres`, `initdb` and `pg_controldata` are there and answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Folder of the programs.
    pub bin: PathBuf,
    /// Folder of the shared libraries that the programs need on `LD_LIBRARY_PATH`, where they are not found without.
    pub library_path: Option<PathBuf>,
    /// Folder that holds `extension/*.control`.
    pub share: PathBuf,
    /// Version of `postgres`.
    pub version: Version,
    /// Where it was found.
    pub origin: Origin,
}

/// An extension that an installation offers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Extension {
    /// Name for CREATE EXTENSION.
    pub name: String,
    /// Its default version, where the control file says one.
    pub version: Option<String>,
}

impl Installation {
    /// Examines the programs in `bin` by running them. `PostgresNotFound` says which program is missing or does not answer; `PostgresMismatch` where the version is not 13 to 18.
    pub fn at(bin: &Path, origin: Origin) -> Result<Self> { let _ = (bin, origin); todo!() }
    /// Path of one program; client programs (`pg_dump`, `psql`) may be absent: `PostgresNotFound` with what to install.
    pub fn program(&self, name: &str) -> Result<PathBuf> { let _ = name; todo!() }
    /// Extensions it offers, sorted by name.
    pub fn extensions(&self) -> Result<Vec<Extension>> { todo!() }
}

/// Every usable installation, best first: explicit, PATH, distribution (newest first), Homebrew, bundled. Those that are there but do not work come in the second list with the reason.
pub fn find(environment: &Environment) -> (Vec<Installation>, Vec<(PathBuf, crate::Error)>) { let _ = environment; todo!() }

/// The best installation, of this major version where one is given. `PostgresNotFound` lists what was looked at and names `forklift postgres install`.
pub fn choose(environment: &Environment, major: Option<u32>) -> Result<Installation> { let _ = (environment, major); todo!() }
