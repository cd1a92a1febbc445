//! Safe mode: what keeps a fork's server, and every program that its SQL starts, within the fork.
//!
//! Read in this order: this file (the layers and what is said of them), `filter` (system calls), `paths` (files). The keeper
//! applies the layers between fork and exec; `sys::cage` and `sys::identity` make the calls.

mod filter;
mod paths;

use std::path::PathBuf;

use super::RunAs;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::cage::{self, Cage};

/// How a branch is kept from reaching outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafeMode {
    /// It is not.
    #[default]
    Off,
    /// By system call filter and Landlock, both; a start is refused where the machine lacks one.
    Strict,
    /// By what the machine has, which may be nothing.
    BestEffort,
}

/// What a server is started with.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Containment {
    /// A filter refuses system calls that reach outside.
    pub filter: bool,
    /// Files, signals and abstract sockets outside are refused, as far as this version of Landlock goes.
    pub landlock: Option<i32>,
    /// A network and an IPC namespace of its own.
    pub namespaces: bool,
    /// Folders of which nothing but the server's own is readable, wherever they lie: the store.
    pub closed: Vec<PathBuf>,
}

/// One layer in a report.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Layer {
    /// `seccomp`, `landlock`, `namespaces`.
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// What it is, or why it is not.
    pub detail: String,
}

/// Which layers hold, and what stays open.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SafeReport {
    /// All layers.
    pub layers: Vec<Layer>,
    /// Ways out that none of the layers closes on this machine, each as `what: why`.
    pub open: Vec<String>,
}

/// First version of Landlock that keeps signals and abstract sockets in (Linux 6.12).
const SCOPES: i32 = 6;
/// First version of Landlock that refuses to truncate (Linux 6.2).
const TRUNCATION: i32 = 3;

/// Finds out, by trying, which layers this machine has for servers of `run_as`; no namespaces where `FORKLIFT_NO_USER_NAMESPACE` is set.
#[must_use]
pub fn layers(run_as: &RunAs, environment: &Environment) -> SafeReport {
    let layer = |name: &str, found: std::result::Result<String, String>| Layer {
        name: name.to_owned(),
        holds: found.is_ok(),
        detail: found.unwrap_or_else(|why| why),
    };
    let abi = cage::landlock_abi();
    let landlock = match &abi {
        Ok(abi) => Ok(format!("version {abi}")),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Err("switched off at the boot of this kernel".to_owned()),
        Err(error) => Err(format!("this kernel or container does not have it: {error}")),
    };
    let namespaces = if environment.get("FORKLIFT_NO_USER_NAMESPACE").is_some() {
        Err("switched off by FORKLIFT_NO_USER_NAMESPACE".to_owned())
    } else {
        run_as.switch().apart().attempt().map(|()| "network and IPC".to_owned()).map_err(|error| format!("refused: {error}"))
    };
    let mut report = SafeReport {
        layers: vec![layer("seccomp", filter::available()), layer("landlock", landlock), layer("namespaces", namespaces)],
        open: Vec::new(),
    };
    report.open = open(&report.containment(abi.ok()));
    report
}

impl SafeReport {
    /// What a server of `mode` is started with; `None` for `Off`.
    ///
    /// # Errors
    /// `Unsupported` for `Strict` where a layer that it needs is missing, naming it.
    pub fn decide(&self, mode: SafeMode) -> Result<Option<Containment>> {
        if mode == SafeMode::Off {
            return Ok(None);
        }
        let missing: Vec<String> = self
            .layers
            .iter()
            .filter(|layer| !layer.holds && layer.name != "namespaces")
            .map(|layer| format!("{} ({})", layer.name, layer.detail))
            .collect();
        if mode == SafeMode::Strict && !missing.is_empty() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a safe fork cannot be contained here: there is no {}", missing.join(" and no ")),
            )
            .with("missing", missing.join(", "))
            .hint("use Linux 5.13 or newer with Landlock and seccomp, or take what there is with --safe=best-effort"));
        }
        Ok(Some(self.containment(cage::landlock_abi().ok())))
    }

    fn containment(&self, abi: Option<i32>) -> Containment {
        let holds = |name: &str| self.layers.iter().any(|layer| layer.name == name && layer.holds);
        Containment {
            filter: holds("seccomp"),
            landlock: abi.filter(|_| holds("landlock")),
            namespaces: holds("namespaces"),
            closed: Vec::new(),
        }
    }
}

/// What stays open, by name.
fn open(with: &Containment) -> Vec<String> {
    let abi = with.landlock.unwrap_or(0);
    let mut open = Vec::new();
    let mut say = |when: bool, text: &str| {
        if when {
            open.push(text.to_owned());
        }
    };
    say(abi == 0, "files: nothing keeps it from those that its user may read or write");
    say((1..TRUNCATION).contains(&abi), "truncate: files of its user outside can be emptied below Linux 6.2");
    say(abi < SCOPES, "signals: processes of its user outside can be signalled below Linux 6.12");
    say(!with.filter, "sockets: Unix sockets outside can be reached");
    say(!with.filter && !with.namespaces, "network: other hosts can be reached");
    say(!with.namespaces, "System V memory and semaphores: those of its user outside can be reached");
    open
}

/// Builds what the keeper applies. `own` are the folders it may write, `read` those it may only read.
pub(super) fn cage(with: &Containment, places: &paths::Places<'_>) -> Result<Cage> {
    let filter = if with.filter { Some(filter::compile()?.into()) } else { None };
    let ruleset = if with.landlock.is_some() { Some(paths::ruleset(places, &with.closed)?.into()) } else { None };
    Ok(Cage { ruleset, filter })
}

pub(super) use paths::Places;

#[cfg(test)]
mod tests;
