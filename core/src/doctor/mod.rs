//! What this machine can do for a store: every mechanism is tried, and nothing is changed.
//!
//! Read in this order: this file (the report), `place` (where things are tried), `clones`, `disk`, `kernel`, `servers`.

mod clones;
mod disk;
mod kernel;
mod place;
#[cfg(feature = "postgres")]
mod servers;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::environment::Environment;
use crate::error::Result;
use crate::progress::Control;
use crate::store::Store;
use place::Place;

/// What was found; its fields are the JSON of every surface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The store that was asked about.
    #[serde(serialize_with = "crate::report::path")]
    pub store: PathBuf,
    /// Whether there is a store yet.
    pub exists: bool,
    /// The folder in which things were tried: of the store, else its nearest parent that is there.
    #[serde(serialize_with = "crate::report::path")]
    pub examined: PathBuf,
    /// Whether this machine can run what the store needs.
    pub able: bool,
    /// What it lacks for that, a line each.
    pub lacking: Vec<String>,
    /// The one best choice of each.
    pub best: Best,
    /// Every mechanism.
    pub checks: Vec<Check>,
    /// Usable installations of Postgres, the best one first.
    pub postgres: Vec<Programs>,
}

/// What forklift takes on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Best {
    /// How clusters are cloned: `snapshot`, `reflink` or `copy`.
    pub clone: Option<String>,
    /// Folder of the Postgres programs.
    pub postgres: Option<String>,
    /// As whom servers run: `caller`, `user_namespace` or `account`.
    pub servers: Option<String>,
    /// What can keep a server from reaching out, the strongest set: names of checks.
    pub containment: Vec<String>,
}

/// Whether a mechanism is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It works.
    Available,
    /// It works, with a limit that matters.
    Limited,
    /// It does not.
    Unavailable,
    /// It could not be tried.
    Unknown,
}

/// One mechanism.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// `clone`, `disk`, `kernel` or `server`.
    pub group: &'static str,
    /// Which one; unique, and stable.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// A store cannot be used without it.
    pub required: bool,
    /// What was found: why it is not there, where it is not. One line.
    pub found: String,
    /// Numbers and names behind that.
    pub facts: BTreeMap<&'static str, Value>,
}

/// One installation of Postgres.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Programs {
    /// `15.18`.
    pub name: String,
    /// Where it was found, as in `postgres list`.
    pub origin: String,
    /// Folder of the programs.
    #[serde(serialize_with = "crate::report::path")]
    pub bin: PathBuf,
    /// Extensions that it offers, as `name` or `name version`.
    pub extensions: Vec<String>,
}

impl Check {
    fn new(group: &'static str, name: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { group, name, state, required: false, found: found.into(), facts: BTreeMap::new() }
    }

    /// A mechanism that is tried: what was found where it works, else why it does not.
    fn tried<T, E: ToString>(group: &'static str, name: &'static str, tried: Result<T, E>, found: impl FnOnce(&T) -> String) -> Self {
        match tried {
            Ok(value) => Self::new(group, name, State::Available, found(&value)),
            Err(error) => Self::new(group, name, State::Unavailable, error.to_string()),
        }
    }

    fn required(mut self) -> Self {
        self.required = true;
        self
    }

    fn fact(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.facts.insert(name, value.into());
        self
    }
}

/// Tries every mechanism for the store at `store`, which need not be there. Nothing is changed: what is written goes into a
/// folder of its own, which is removed. It is left only by a process that is killed, and removed by the next doctor there.
///
/// # Errors
/// `InvalidArgument` for a path that is not absolute, `Cancelled`. What does not work is in the report.
pub fn examine(store: &Path, environment: &Environment, control: &Control) -> Result<Report> {
    let place = Place::of(store)?;
    let opened = Store::open(store);
    let mut checks = Vec::new();
    control.check()?;
    let trials = clones::check(&place, &mut checks);
    control.check()?;
    disk::check(&place, &mut checks);
    if let Some(check) = disk::format(opened.as_ref().err()) {
        checks.push(check);
    }
    control.check()?;
    kernel::check(&place, &mut checks);
    control.check()?;
    let mut best = Best { clone: trials, postgres: None, servers: None, containment: kernel::containment(&checks) };
    #[cfg(feature = "postgres")]
    let postgres = servers::check(&place, opened.as_ref().ok(), environment, &mut best, &mut checks);
    #[cfg(not(feature = "postgres"))]
    let postgres = {
        let _ = (environment, &mut best);
        Vec::new()
    };
    let lacking: Vec<String> = checks
        .iter()
        .filter(|check| check.required && matches!(check.state, State::Unavailable | State::Unknown))
        .map(|check| format!("{}: {}", check.name, check.found))
        .collect();
    Ok(Report {
        store: store.to_owned(),
        exists: opened.is_ok(),
        examined: place.folder.clone(),
        able: lacking.is_empty(),
        lacking,
        best,
        checks,
        postgres,
    })
}
