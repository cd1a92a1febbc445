//! `.forklift.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// How `run` and `url` name the server by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionForm {
    /// Unix socket.
    #[default]
    Socket,
    /// TCP on the loopback address.
    Tcp,
}

/// The file, format 1. Unknown keys are refused by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// 1.
    pub format: u32,
    /// Selected paths; absent: the whole worktree by its ignore rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<PathBuf>>,
    /// Patterns left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Variable that gets the URL; `DATABASE_URL`.
    #[serde(default = "default_connection_env")]
    pub connection_env: String,
    /// Socket or TCP.
    #[serde(default)]
    pub connection: ConnectionForm,
    /// Named commands: program and arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, Vec<String>>,
    /// Commands that stop and start a long-running app around a restore.
    #[serde(default, skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// Whether there is a database; absent: decided by `setup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<bool>,
}

/// The stop and start hooks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// Program and arguments; its exit code 0 says that the app ran and was stopped, 1 that it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// Program and arguments; run only if `stop` said that the app ran and the operation succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Vec<String>>,
}

impl Hooks {
    fn is_empty(&self) -> bool {
        self.stop.is_none() && self.start.is_none()
    }
}

fn default_connection_env() -> String {
    "DATABASE_URL".to_owned()
}

impl Configuration {
    /// Reads and checks `.forklift.json` in `root`. `Config` names the key, path or format that is wrong.
    pub fn load(root: &Path) -> Result<Self> {
        let _ = root;
        todo!()
    }
    /// What `setup` writes for this folder (TCP where package.json names postgres.js or Prisma).
    pub fn propose(root: &Path, database: bool) -> Result<Self> {
        let _ = (root, database);
        todo!()
    }
}
