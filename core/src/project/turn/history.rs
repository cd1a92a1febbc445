//! What there was: sessions, turns, windows, and which paths changed in them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::super::Project;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, Change, ChangeKind};
use crate::progress::Control;
use crate::store::{Reader, Ref};
use crate::timeline::{CheckpointId, Damage, Timeline, Turn, Window};

/// One window as `log` gives it.
#[derive(Debug, Clone, Serialize)]
pub struct WindowInfo {
    /// The window.
    #[serde(flatten)]
    pub window: Window,
    /// Paths that changed in it; absent while it is open, and where a checkpoint is gone.
    pub changed: Option<u64>,
    /// The database was written; absent as above, and where it was not captured.
    pub database_changed: Option<bool>,
    /// Its checkpoints that were forgotten.
    pub forgotten: Vec<CheckpointId>,
}

/// One turn as `log` gives it.
#[derive(Debug, Clone, Serialize)]
pub struct TurnInfo {
    /// The turn.
    #[serde(flatten)]
    pub turn: Turn,
    /// Paths that changed in any of its windows.
    pub changed: u64,
    /// A checkpoint of it was forgotten: it cannot be taken back whole.
    pub forgotten: bool,
    /// Its windows.
    pub calls: Vec<WindowInfo>,
}

/// One turn with what changed in it.
#[derive(Debug, Clone, Serialize)]
pub struct TurnDetails {
    /// The turn.
    #[serde(flatten)]
    pub info: TurnInfo,
    /// Paths in order.
    pub paths: Vec<TurnPath>,
}

/// One path that changed in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnPath {
    /// Relative path, escaped as everywhere.
    pub path: String,
    /// How, over all windows of the turn.
    pub kind: ChangeKind,
    /// The tools in whose windows it changed.
    pub tools: Vec<String>,
    /// Others who may have changed it meanwhile: authors who said so, and `another session`.
    pub shared_with: Vec<String>,
}

/// Paths that changed in a window.
type Changes = Vec<Change>;

/// Refs and differences, each looked up once.
struct Look<'p> {
    project: &'p Project,
    reader: Reader,
    refs: HashMap<CheckpointId, Option<Ref>>,
}

impl Project {
    /// The turns of a session, or of all of them, newest first, and what is wrong with the timeline's log.
    ///
    /// # Errors
    /// `NotFound` for a session that there is not; `Corrupt` where a manifest cannot be read; `UnsupportedFormat`, `Io`.
    pub fn turns(&self, session: Option<&str>, control: &Control) -> Result<(Vec<TurnInfo>, Damage)> {
        let (timeline, damage) = self.timeline()?;
        let sessions = match session {
            Some(session) => {
                // For its error.
                if timeline.turns(session).is_empty() {
                    timeline.turn(session, "")?;
                }
                vec![session]
            }
            None => timeline.sessions(),
        };
        let mut look = Look::new(self, control)?;
        let mut turns = Vec::new();
        for turn in sessions.into_iter().flat_map(|session| timeline.turns(session)) {
            control.check()?;
            turns.push(look.turn(&timeline, turn)?.0);
        }
        turns.sort_by_key(|info| std::cmp::Reverse(info.calls.first().map(|call| call.window.opened)));
        Ok((turns, damage))
    }

    /// One turn with the paths that changed in it. Without a session, of the only one that has such a turn.
    ///
    /// # Errors
    /// As [`Timeline::turn`]; `InvalidArgument` where several sessions have it; `Corrupt` where a manifest cannot be read.
    pub fn show_turn(&self, session: Option<&str>, turn: &str, control: &Control) -> Result<TurnDetails> {
        let (timeline, _) = self.timeline()?;
        let turn = match session {
            Some(session) => timeline.turn(session, turn)?,
            None => only(&timeline, turn)?,
        };
        let (info, changes) = Look::new(self, control)?.turn(&timeline, turn)?;
        let mut paths: BTreeMap<Vec<u8>, Merged> = BTreeMap::new();
        for (call, changes) in info.calls.iter().zip(changes) {
            for change in changes {
                paths.entry(change.path).or_default().add(change.kind, &call.window);
            }
        }
        let paths = paths.into_iter().filter_map(|(path, merged)| merged.told(&timeline, &path)).collect();
        Ok(TurnDetails { info, paths })
    }
}

impl<'p> Look<'p> {
    fn new(project: &'p Project, control: &Control) -> Result<Self> {
        Ok(Self { project, reader: project.store.reader(control)?, refs: HashMap::new() })
    }

    fn turn(&mut self, timeline: &Timeline, turn: Turn) -> Result<(TurnInfo, Vec<Changes>)> {
        let (mut calls, mut all) = (Vec::new(), Vec::new());
        for window in turn.windows.iter().filter_map(|id| timeline.window(id)) {
            let (info, changes) = self.window(window)?;
            calls.push(info);
            all.push(changes);
        }
        let paths: std::collections::HashSet<&[u8]> = all.iter().flatten().map(|change| &*change.path).collect();
        let changed = u64::try_from(paths.len()).unwrap_or(u64::MAX);
        let forgotten = calls.iter().any(|call| !call.forgotten.is_empty());
        Ok((TurnInfo { turn, changed, forgotten, calls }, all))
    }

    fn window(&mut self, window: &Window) -> Result<(WindowInfo, Changes)> {
        let mut forgotten: Vec<CheckpointId> = Vec::new();
        for id in window.start.iter().chain(&window.end) {
            if self.find(id)?.is_none() && !forgotten.contains(id) {
                forgotten.push(id.clone());
            }
        }
        let mut info = WindowInfo { window: window.clone(), changed: None, database_changed: None, forgotten };
        let (Some(start), Some(end)) = (&window.start, &window.end) else { return Ok((info, Changes::new())) };
        if start == end {
            info.changed = Some(0);
            info.database_changed = self.find(end)?.filter(|end| end.cluster.is_some()).map(|_| false);
            return Ok((info, Changes::new()));
        }
        let (Some(start), Some(end)) = (self.find(start)?, self.find(end)?) else { return Ok((info, Changes::new())) };
        let changes = match (&start.files, &end.files) {
            (Some(start), Some(end)) => {
                let (first, second) = self.reader.apart(&start.root, &end.root)?;
                files::diff(first.into_iter().map(Ok), second.into_iter().map(Ok))?
            }
            _ => Changes::new(),
        };
        info.changed = Some(u64::try_from(changes.len()).unwrap_or(u64::MAX));
        info.database_changed = match (&start.cluster, &end.cluster) {
            (Some(start), Some(end)) => Some(start.root != end.root),
            _ => None,
        };
        Ok((info, changes))
    }

    fn find(&mut self, id: &str) -> Result<Option<Ref>> {
        if let Some(known) = self.refs.get(id) {
            return Ok(known.clone());
        }
        let found = match self.project.store.find_ref(id) {
            Ok(reference) => Some(reference),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::UnsupportedFormat) => None,
            Err(error) => return Err(error),
        };
        self.refs.insert(id.to_owned(), found.clone());
        Ok(found)
    }
}

/// What became of one path in the windows of a turn.
#[derive(Default)]
struct Merged {
    kind: Option<ChangeKind>,
    seen: bool,
    tools: Vec<String>,
    others: bool,
    windows: Vec<(u64, u64)>,
}

impl Merged {
    fn add(&mut self, kind: ChangeKind, window: &Window) {
        self.kind = if self.seen { together(self.kind, kind) } else { Some(kind) };
        self.seen = true;
        let tool = window.tool.clone().unwrap_or_else(|| "turn".to_owned());
        if !self.tools.contains(&tool) {
            self.tools.push(tool);
        }
        self.others |= window.overlaps_other_session;
        self.windows.push((window.opened, window.closed.unwrap_or(u64::MAX)));
    }

    fn told(self, timeline: &Timeline, path: &[u8]) -> Option<TurnPath> {
        let meanwhile = |n: u64| self.windows.iter().any(|(opened, closed)| (*opened..=*closed).contains(&n));
        let mut shared_with: Vec<String> = Vec::new();
        for (_, edited) in timeline.edits().filter(|(n, edited)| meanwhile(*n) && edited.covers(path)) {
            if !shared_with.contains(&edited.author) {
                shared_with.push(edited.author.clone());
            }
        }
        if self.others {
            shared_with.push("another session".to_owned());
        }
        Some(TurnPath { path: crate::report::escape(path), kind: self.kind?, tools: self.tools, shared_with })
    }
}

/// Two changes of one path, one after the other; `None` where nothing is left of them.
fn together(first: Option<ChangeKind>, second: ChangeKind) -> Option<ChangeKind> {
    match (first, second) {
        (Some(ChangeKind::Added), ChangeKind::Removed) => None,
        (Some(ChangeKind::Added), _) => Some(ChangeKind::Added),
        (Some(ChangeKind::Removed), ChangeKind::Added) => Some(ChangeKind::Modified),
        (Some(first), ChangeKind::Metadata) => Some(first),
        (_, second) => Some(second),
    }
}

pub(super) fn only(timeline: &Timeline, turn: &str) -> Result<Turn> {
    let sessions = timeline.sessions();
    let with: Vec<&str> =
        sessions.iter().copied().filter(|session| timeline.turns(session).iter().any(|found| found.turn == turn)).collect();
    match (with.as_slice(), sessions.as_slice()) {
        ([one], _) => timeline.turn(one, turn),
        ([], [one]) => timeline.turn(one, turn),
        ([], _) => {
            let found: Vec<Turn> = sessions.iter().filter_map(|session| timeline.turn(session, turn).ok()).collect();
            match <[Turn; 1]>::try_from(found) {
                Ok([one]) => Ok(one),
                Err(found) if found.is_empty() => Err(Error::new(ErrorKind::NotFound, format!("no turn is called {turn}"))
                    .with("turn", turn)
                    .hint("`forklift project log --turns` lists them")),
                Err(found) => Err(several(turn, found.iter().map(|turn| &*turn.session))),
            }
        }
        (with, _) => Err(several(turn, with.iter().copied())),
    }
}

fn several<'a>(turn: &str, sessions: impl Iterator<Item = &'a str>) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("several sessions have a turn {turn}"))
        .with("turn", turn)
        .hint(format!("say which with --session: {}", sessions.take(5).collect::<Vec<_>>().join(", ")))
}
