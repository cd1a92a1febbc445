//! As whom servers run: Postgres refuses root.

use std::path::Path;
use std::process::Command;

use super::Installation;
use crate::environment::Environment;
use crate::error::Result;

/// As whom the programs of Postgres run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// As the caller, who is not root.
    Caller,
    /// As root in a user namespace that maps root to this uid, which has a passwd entry; nothing is chowned.
    UserNamespace {
        /// The uid inside.
        uid: u32,
        /// The gid inside.
        gid: u32,
    },
    /// Under an unprivileged account that owns the branch folders: where namespaces are refused.
    Account {
        /// Name of the account.
        name: String,
        /// Its uid.
        uid: u32,
        /// Its gid.
        gid: u32,
    },
}

impl RunAs {
    /// Finds out, by trying: not root, else a user namespace (unless `FORKLIFT_NO_USER_NAMESPACE` is set), else an account
    /// (`FORKLIFT_ACCOUNT`, `postgres`, `nobody`), else one clear `Unsupported`.
    pub fn detect(environment: &Environment) -> Result<Self> { let _ = environment; todo!() }
    /// Checks that programs of `installation` can be executed and `folder` reached by it; the message names the path or uid that cannot.
    pub fn check(&self, installation: &Installation, folder: &Path) -> Result<()> { let _ = (installation, folder); todo!() }
    /// A command that runs `program` of `installation` so, with a clean environment (PATH, a valid locale, LD_LIBRARY_PATH, TZ), stdin closed.
    pub fn command(&self, installation: &Installation, program: &str) -> Result<Command> { let _ = (installation, program); todo!() }
    /// Makes a folder (mode 0700) that belongs to it, with what its parents need to be passed through by it.
    pub fn make_folder(&self, path: &Path) -> Result<()> { let _ = path; todo!() }
    /// Gives a whole tree to it; nothing to do unless it is an account.
    pub fn give(&self, path: &Path) -> Result<()> { let _ = path; todo!() }
}
