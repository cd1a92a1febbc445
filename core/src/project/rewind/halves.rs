//! What becomes of the database: decided by marks alone, so that every doubt counts as a change.

use serde::{Deserialize, Serialize};

use super::asked::DatabaseChoice;
use super::history::Past;
use crate::error::Result;
use crate::project::database::Database;

/// What makes a mark another one besides rows.
const SERVER: &str = "or the server was started or stopped";

/// What becomes of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseFate {
    /// The project has none, or the turns did not capture it.
    None,
    /// It is as it was: nothing is done to it.
    Unchanged,
    /// It becomes what it was.
    Replace,
    /// It stays although it may differ: a partial rewind, of the files alone.
    Keep,
}

/// What is planned for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Half {
    pub(super) fate: DatabaseFate,
    /// What others changed, or may have changed.
    pub(super) conflicts: Vec<String>,
}

impl Half {
    pub(super) fn of(past: &Past, database: Option<&Database>, choice: DatabaseChoice, only_paths: bool) -> Result<Self> {
        let plain = |fate| Ok(Self { fate, conflicts: Vec::new() });
        let Some(database) = database else { return plain(DatabaseFate::None) };
        let edges = || past.steps.iter().flat_map(|step| [&step.before, &step.after]).chain([&past.target]);
        if edges().all(|edge| edge.cluster.is_none()) {
            return plain(DatabaseFate::None);
        }
        if past.target.cluster.is_some() && database.is_unchanged_since(&past.target)? {
            return plain(DatabaseFate::Unchanged);
        }
        if choice == DatabaseChoice::Keep || only_paths {
            return plain(DatabaseFate::Keep);
        }
        let conflicts = Self::conflicts(past, database)?;
        if past.target.cluster.is_none() {
            let conflicts = vec!["the checkpoint to go back to has no database".to_owned()];
            return Ok(Self { fate: DatabaseFate::Replace, conflicts });
        }
        let conflicts = if choice == DatabaseChoice::Discard { Vec::new() } else { conflicts };
        Ok(Self { fate: DatabaseFate::Replace, conflicts })
    }

    fn conflicts(past: &Past, database: &Database) -> Result<Vec<String>> {
        let mut conflicts = Vec::new();
        let mut last = (&past.target, "the checkpoint to go back to".to_owned());
        for step in &past.steps {
            if !database.is_same(last.0, &step.before)? {
                conflicts.push(format!("rows may have been changed by somebody else between {} and {}, {SERVER}", last.1, step.name));
            }
            if step.shared && !database.is_same(&step.before, &step.after)? {
                conflicts.push(format!("another session was at work during {}, and rows may have changed, {SERVER}", step.name));
            }
            last = (&step.after, step.name.clone());
        }
        if !database.is_unchanged_since(last.0)? {
            conflicts.push(format!("rows may have been changed by somebody else after {}, {SERVER}", last.1));
        }
        Ok(conflicts)
    }
}
