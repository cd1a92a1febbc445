//! Looking at checkpoints: log, show, diff.

use serde::Serialize;

use super::Project;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, Scope, StatCache};
use crate::progress::Control;
use crate::store::{Half, Ref, RefKind};

/// One checkpoint as `log` and `show` give it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// Id.
    pub id: String,
    /// Name.
    pub name: Option<String>,
    /// RFC 3339.
    pub created: String,
    /// `capture`, `turn` (an edge of a window) or `safety`.
    pub kind: String,
    /// Session, turn and tool of the window for whose edge it was made; others may stand on it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// See `session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// See `session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The files.
    pub files: Option<HalfSize>,
    /// The cluster.
    pub cluster: Option<HalfSize>,
    /// The facts kept with it: mode, coverage, versions, warnings.
    pub facts: serde_json::Value,
}

/// How large one half of a checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HalfSize {
    /// Names.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathChange {
    /// Relative path; a backslash as `\\`, bytes that are not UTF-8 and control characters as `\xNN`.
    pub path: String,
    /// How.
    pub kind: crate::files::ChangeKind,
}

impl Project {
    /// Checkpoints of this project, newest first; safety ones too. Also the names of refs that cannot be read.
    ///
    /// # Errors
    /// `Io` and its like.
    pub fn log(&self) -> Result<(Vec<CheckpointInfo>, Vec<String>)> {
        let (refs, unreadable) = self.refs()?;
        Ok((refs.iter().rev().map(CheckpointInfo::of).collect(), unreadable))
    }

    /// One checkpoint, by name or unique prefix of its id.
    ///
    /// # Errors
    /// `NotFound` names the nearest ones; `InvalidArgument` for an ambiguous prefix lists its matches.
    pub fn show(&self, checkpoint: &str) -> Result<CheckpointInfo> {
        self.resolve(checkpoint).map(|reference| CheckpointInfo::of(&reference))
    }

    /// Paths that differ from `first` to `second`, or to the disk where `second` is not given.
    ///
    /// # Errors
    /// As [`Project::show`]; `Corrupt` where a manifest cannot be read.
    pub fn diff(&self, first: &str, second: Option<&str>, control: &Control) -> Result<Vec<PathChange>> {
        let first = self.resolve(first)?;
        let changes = match second {
            None => self.changes_on_disk(&first, control)?,
            Some(second) => {
                let second = self.resolve(second)?;
                let reader = self.store.reader(control)?;
                files::diff(reader.manifest(&files_of(&first)?.root)?, reader.manifest(&files_of(&second)?.root)?)?
            }
        };
        Ok(changes.into_iter().map(|change| PathChange { path: crate::report::escape(&change.path), kind: change.kind }).collect())
    }

    /// From a checkpoint to the disk, as the checkpoint's own scope sees it.
    pub(super) fn changes_on_disk(&self, reference: &Ref, control: &Control) -> Result<Vec<files::Change>> {
        self.check_root()?;
        let half = files_of(reference)?;
        let scope = self.scope_in(half)?;
        let mut cache = StatCache::load(&self.folder.stat_cache());
        let disk = files::disk_entries(&scope, &mut cache, control)?;
        let reader = self.store.reader(control)?;
        files::diff(reader.manifest(&half.root)?, disk.into_iter().map(Ok))
    }

    /// The refs of this project, oldest first, and the names of refs that cannot be read.
    pub(super) fn refs(&self) -> Result<(Vec<Ref>, Vec<String>)> {
        let (mut refs, unreadable) = self.store.refs()?;
        refs.retain(|reference| reference.project.as_deref() == Some(&*self.record.id) && reference.kind != RefKind::Branch);
        Ok((refs, unreadable))
    }

    /// By name, else by id, else by unique prefix of an id.
    pub(super) fn resolve(&self, checkpoint: &str) -> Result<Ref> {
        let (mut refs, unreadable) = self.refs()?;
        let exact = |reference: &Ref| reference.name.as_deref() == Some(checkpoint) || reference.id == checkpoint;
        if let Some(found) = refs.iter().rposition(exact) {
            return Ok(refs.swap_remove(found));
        }
        let prefix = checkpoint.to_ascii_lowercase();
        let matches: Vec<usize> = (0..)
            .zip(&refs)
            .filter(|(_, reference)| !prefix.is_empty() && reference.id.starts_with(&prefix))
            .map(|(index, _)| index)
            .collect();
        match matches.as_slice() {
            [one] => Ok(refs.swap_remove(*one)),
            [] => Err(not_found(checkpoint, &refs, &unreadable)),
            _ => {
                let ids: Vec<_> = matches.iter().take(SHOWN).filter_map(|index| refs.get(*index)).map(label).collect();
                let more = matches.len().saturating_sub(SHOWN);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("{checkpoint} begins the ids of several checkpoints: {}{more}", ids.join(", ")),
                )
                .hint("use more letters of the id, or the name"))
            }
        }
    }

    /// The scope under which a checkpoint's files were captured, with today's root.
    pub(super) fn scope_in(&self, half: &Half) -> Result<Scope> {
        let scope = Scope::from_facts(&half.facts, &self.root, vec![self.store.path().to_owned()])?;
        scope.check(self.home().as_deref())?;
        Ok(scope)
    }
}

impl CheckpointInfo {
    pub(super) fn of(reference: &Ref) -> Self {
        let size = |half: &Half| HalfSize { entries: half.entries, bytes: half.bytes };
        Self {
            id: reference.id.clone(),
            name: reference.name.clone(),
            created: crate::sys::id::rfc3339(reference.created_ms),
            kind: match reference.kind {
                RefKind::Capture if reference.session.is_some() => "turn",
                RefKind::Capture => "capture",
                RefKind::Safety => "safety",
                RefKind::Branch => "branch",
            }
            .to_owned(),
            session: reference.session.clone(),
            turn: reference.turn.clone(),
            tool: reference.tool.clone(),
            files: reference.files.as_ref().map(size),
            cluster: reference.cluster.as_ref().map(size),
            facts: told(&reference.facts),
        }
    }
}

/// What is worth telling: not the records that it carries for the timeline.
fn told(facts: &serde_json::Value) -> serde_json::Value {
    let mut facts = facts.clone();
    if let serde_json::Value::Object(all) = &mut facts {
        all.remove(crate::timeline::FACT);
    }
    facts
}

/// The files of a checkpoint.
pub(super) fn files_of(reference: &Ref) -> Result<&Half> {
    reference.files.as_ref().ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("the checkpoint {} has no files", reference.id)))
}

/// Whether this is the shape of an id: 26 letters and digits.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// How many of several checkpoints an error lists.
const SHOWN: usize = 5;

fn label(reference: &Ref) -> String {
    match &reference.name {
        Some(name) => format!("{} ({name})", reference.id),
        None => reference.id.clone(),
    }
}

fn not_found(wanted: &str, refs: &[Ref], unreadable: &[String]) -> Error {
    let mut near: Vec<(usize, &str)> =
        refs.iter().filter_map(|reference| reference.name.as_deref()).map(|name| (distance(wanted, name), name)).collect();
    near.sort_unstable();
    let near: Vec<_> = near.iter().take(3).map(|(_, name)| *name).collect();
    let mut message = format!("no checkpoint is called {wanted:?}, and no id begins so");
    if !unreadable.is_empty() {
        message = format!("{message}; refs that cannot be read: {}", unreadable.join(", "));
    }
    let error = Error::new(ErrorKind::NotFound, message).with("checkpoint", wanted);
    if near.is_empty() {
        return error.hint("this project has no named checkpoints; make one with `forklift project capture NAME`");
    }
    error.hint(format!("the nearest names are {}; `forklift project log` lists all", near.join(", ")))
}

/// Letters to change, add or remove to make one text of the other.
fn distance(first: &str, second: &str) -> usize {
    let mut row: Vec<usize> = (0..=second.chars().count()).collect();
    for (index, letter) in first.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        let mut next = vec![left];
        for (other, above) in second.chars().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(letter != other)).min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        for (first, second, expected) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "ab", 1), ("", "ab", 2), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(first, second), expected, "{first} {second}");
        }
    }
}
