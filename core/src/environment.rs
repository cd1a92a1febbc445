//! What forklift reads from the process environment, in this one place and only when a surface asks.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};

/// A copy of the environment variables forklift looks at.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: HashMap<String, OsString>,
}

/// Every variable that changes what forklift does.
const READ: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_DATA_HOME",
    "FORKLIFT_DATA",
    "FORKLIFT_STORE",
    "FORKLIFT_POSTGRES",
    "FORKLIFT_KEEPER",
    "FORKLIFT_NO_USER_NAMESPACE",
    "FORKLIFT_ACCOUNT",
    "FORKLIFT_NO_EXTENTS",
    "FORKLIFT_RUN_TOKEN",
    "FORKLIFT_FAILPOINT",
    "FORKLIFT_TASK",
];

impl Environment {
    /// Reads the variables of this process.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn read() -> Self {
        let variables = READ.iter().filter_map(|name| std::env::var_os(name).map(|value| ((*name).to_owned(), value))).collect();
        Self { variables }
    }

    /// An environment with just these variables: for hosts that configure forklift themselves, and for tests.
    #[must_use]
    pub fn of<K: Into<String>, V: Into<OsString>>(variables: impl IntoIterator<Item = (K, V)>) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The same environment with this variable set, as by an option that stands for it.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// All of them, in no order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &std::ffi::OsStr)> {
        self.variables.iter().map(|(name, value)| (&**name, value.as_os_str()))
    }

    /// One variable, where it is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// One variable as text, where it is set, not empty and UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| value.to_str())
    }

    /// The folders of `PATH`, in order.
    #[must_use]
    pub fn path(&self) -> Vec<PathBuf> {
        self.get("PATH").map(|path| std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect()).unwrap_or_default()
    }

    /// Where forklift keeps its data when no store is named: `FORKLIFT_DATA`, else `/var/lib/forklift` for root (other accounts must be able to
    /// reach it, which they cannot below root's home), else `$XDG_DATA_HOME/forklift` or `~/.local/share/forklift`.
    ///
    /// # Errors
    /// `InvalidArgument` where neither `XDG_DATA_HOME` nor `HOME` is an absolute path.
    pub fn data_folder(&self) -> Result<PathBuf> {
        if let Some(path) = self.get("FORKLIFT_DATA").map(PathBuf::from).filter(|path| path.is_absolute()) {
            return Ok(path);
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/forklift"));
        }
        let absolute = |name: &str| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_DATA_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
            .map(|base| base.join("forklift"))
            .ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, "neither XDG_DATA_HOME nor HOME is an absolute path")
                    .hint("name a store with --store or FORKLIFT_STORE")
            })
    }

    /// The store used where nothing else names one: `FORKLIFT_STORE`, else `store` in the data folder.
    ///
    /// # Errors
    /// As [`Environment::data_folder`].
    pub fn store_path(&self) -> Result<PathBuf> {
        match self.get("FORKLIFT_STORE") {
            Some(path) => std::path::absolute(path).map_err(|source| Error::io("resolve", std::path::Path::new(path), source)),
            None => Ok(self.data_folder()?.join("store")),
        }
    }
}
