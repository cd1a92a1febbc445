//! From the records to windows, turns and events.

use std::collections::{HashMap, VecDeque};

use super::record::{Record, Rewind, What};
use super::window::{Event, EventKind, RewindId, Turn, Window, WindowId, WindowState};
use super::{CheckpointId, Edited};
use crate::error::{Error, ErrorKind, Result};

/// How many records a ref carries at most, so that they outlive the log.
const CARRIED: usize = 1000;

/// What the log says, as it was when it was read.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    windows: Vec<Window>,
    place: HashMap<WindowId, usize>,
    open: Vec<usize>,
    events: Vec<Event>,
    pending: VecDeque<Record>,
    last: Option<(u64, String)>,
    checkpoint: Option<CheckpointId>,
    /// The last record that named one.
    named: Option<u64>,
    newest: Option<CheckpointId>,
}

impl Timeline {
    /// Of records in order of their numbers.
    #[must_use]
    pub fn of(records: impl IntoIterator<Item = Record>) -> Self {
        let mut timeline = Self::default();
        for record in records {
            timeline.add(record);
        }
        timeline
    }

    /// Every window, in the order in which they opened.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// One window.
    #[must_use]
    pub fn window(&self, id: &str) -> Option<&Window> {
        self.windows.get(*self.place.get(id)?)
    }

    /// The windows that are open, in the order in which they opened.
    pub fn open_windows(&self) -> impl Iterator<Item = &Window> {
        self.open.iter().filter_map(|place| self.windows.get(*place))
    }

    /// Edits that were told, and rewinds, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Every rewind and redo, in order.
    pub fn rewinds(&self) -> impl DoubleEndedIterator<Item = &Rewind> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Rewound(rewind) => Some(rewind),
            EventKind::Edited(_) => None,
        })
    }

    /// The same with the numbers of their records.
    pub(super) fn numbered_rewinds(&self) -> impl Iterator<Item = (u64, &Rewind)> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Rewound(rewind) => Some((event.n, rewind)),
            EventKind::Edited(_) => None,
        })
    }

    /// Every edit that was told, with the number of its record.
    pub fn edits(&self) -> impl Iterator<Item = (u64, &Edited)> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Edited(edited) => Some((event.n, edited)),
            EventKind::Rewound(_) => None,
        })
    }

    /// The sessions, in the order in which they began.
    #[must_use]
    pub fn sessions(&self) -> Vec<&str> {
        let mut seen = std::collections::HashSet::new();
        self.windows.iter().map(|window| &*window.session).filter(|session| seen.insert(*session)).collect()
    }

    /// The turns of one session, in the order in which they began.
    #[must_use]
    pub fn turns(&self, session: &str) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::new();
        let mut place: HashMap<&str, usize> = HashMap::new();
        for window in self.windows.iter().filter(|window| window.session == session) {
            match place.get(&*window.turn).and_then(|place| turns.get_mut(*place)) {
                Some(turn) => turn.take(window),
                None => {
                    place.insert(&window.turn, turns.len());
                    turns.push(Turn::of(window, turns.len() as u64 + 1));
                }
            }
        }
        turns
    }

    /// One turn: by its name, else by the only name in the session that begins so, else by its place (`#3`).
    ///
    /// # Errors
    /// `NotFound` names the sessions, or the last turns, that there are; `InvalidArgument` where several names begin so.
    pub fn turn(&self, session: &str, turn: &str) -> Result<Turn> {
        let turns = self.turns(session);
        if turns.is_empty() {
            return Err(self.no_session(session));
        }
        if let Some(found) = turns.iter().find(|found| found.turn == turn) {
            return Ok(found.clone());
        }
        let number = turn.strip_prefix('#').and_then(|number| number.parse::<u64>().ok());
        if let Some(found) = turns.iter().find(|found| Some(found.number) == number) {
            return Ok(found.clone());
        }
        let near: Vec<&Turn> = turns.iter().filter(|found| !turn.is_empty() && found.turn.starts_with(turn)).collect();
        let names = |turns: &mut dyn Iterator<Item = &Turn>| turns.map(|turn| turn.turn.clone()).collect::<Vec<_>>().join(", ");
        match near.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(Error::new(ErrorKind::NotFound, format!("session {session} has no turn {turn}"))
                .with("session", session)
                .with("turn", turn)
                .hint(format!("its last turns are {}", names(&mut turns.iter().rev().take(5))))),
            several => {
                Err(Error::new(ErrorKind::InvalidArgument, format!("{} turns of session {session} begin with {turn}", several.len()))
                    .with("turn", turn)
                    .hint(format!("name one of {}", names(&mut several.iter().copied().take(5)))))
            }
        }
    }

    /// The newest rewind of the session that no redo has undone: what a redo would undo.
    #[must_use]
    pub fn last_rewind(&self, session: &str) -> Option<&Rewind> {
        let undone: Vec<&RewindId> = self.rewinds().filter_map(|rewind| rewind.undoes.as_ref()).collect();
        self.rewinds().rev().find(|rewind| rewind.session == session && rewind.undoes.is_none() && !undone.contains(&&rewind.id))
    }

    /// The checkpoint of the last edge of any session.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&CheckpointId> {
        self.checkpoint.as_ref()
    }

    /// The checkpoint that sorts last of all that are named: a new one must sort after it.
    #[must_use]
    pub fn newest_checkpoint(&self) -> Option<&CheckpointId> {
        self.newest.as_ref()
    }

    /// The last records that no ref carries.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Record> {
        self.pending.iter()
    }

    /// Number of the first record that a writer has to know: what is open, what no ref carries, and what named the last checkpoint.
    pub(super) fn needed(&self) -> u64 {
        let open = self.open_windows().map(|window| window.opened).min();
        let pending = self.pending.front().map(|record| record.n.saturating_sub(1));
        open.into_iter().chain(pending).chain(self.named).min().unwrap_or(self.last_number()).max(1)
    }

    /// Number of the last record, 0 where there is none.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last.as_ref().map_or(0, |(n, _)| *n)
    }

    /// The boot in which the last record was written.
    #[must_use]
    pub fn last_boot(&self) -> Option<&str> {
        self.last.as_ref().map(|(_, boot)| &**boot)
    }

    /// Whether anything names this checkpoint.
    #[must_use]
    pub fn needs(&self, checkpoint: &str) -> bool {
        let window = |window: &Window| window.start.as_deref() == Some(checkpoint) || window.end.as_deref() == Some(checkpoint);
        self.windows.iter().any(window) || self.rewinds().any(|rewind| rewind.before == checkpoint || rewind.after == checkpoint)
    }

    /// Takes one more record.
    pub(super) fn add(&mut self, record: Record) {
        let (n, at_ms) = (record.n, record.at_ms);
        self.last = Some((n, record.boot.clone()));
        let carried = self.note_checkpoints(n, &record.what);
        match &record.what {
            What::Begin(begin) => self.begin(n, at_ms, &record.boot, begin),
            What::Captured(captured) => {
                if let Some(place) = self.place.get(&captured.window).copied()
                    && let Some(window) = self.windows.get_mut(place)
                {
                    window.start = Some(captured.start.clone());
                    if window.instant && window.is_open() {
                        self.close(n, at_ms, &captured.window.clone(), &captured.start.clone(), WindowState::Ended);
                    }
                }
            }
            What::End(end) => self.close(n, at_ms, &end.window, &end.end, end.state),
            What::Edited(edited) => self.events.push(Event { n, at_ms, kind: EventKind::Edited(edited.clone()) }),
            What::Rewound(rewind) => self.rewind(n, at_ms, rewind),
        }
        self.pending.push_back(record);
        if carried {
            self.pending.clear();
        } else if self.pending.len() > CARRIED {
            self.pending.pop_front();
        }
    }

    /// Whether the record came with a new checkpoint, whose ref then carries all records up to it.
    fn note_checkpoints(&mut self, n: u64, what: &What) -> bool {
        let (edge, others): (Option<&CheckpointId>, [Option<&CheckpointId>; 2]) = match what {
            What::Begin(begin) => (begin.start.as_ref(), [None, None]),
            What::Captured(captured) => (Some(&captured.start), [None, None]),
            What::End(end) => (Some(&end.end), [None, None]),
            What::Rewound(rewind) => (None, [Some(&rewind.before), Some(&rewind.after)]),
            What::Edited(_) => (None, [None, None]),
        };
        let carried = edge.is_some_and(|edge| self.newest.as_ref().is_none_or(|newest| edge > newest));
        for checkpoint in edge.into_iter().chain(others.into_iter().flatten()) {
            if self.newest.as_ref().is_none_or(|newest| checkpoint > newest) {
                self.newest = Some(checkpoint.clone());
            }
        }
        if let Some(edge) = edge.or(others[1]) {
            self.checkpoint = Some(edge.clone());
            self.named = Some(n);
        }
        carried
    }

    fn begin(&mut self, n: u64, at_ms: u64, boot: &str, begin: &super::Begin) {
        if self.place.contains_key(&begin.window) {
            return;
        }
        let closed = begin.instant && begin.start.is_some();
        let place = self.windows.len();
        let mut overlaps = false;
        if !begin.instant {
            for other in &self.open {
                if let Some(other) = self.windows.get_mut(*other).filter(|other| other.session != begin.session && !other.instant) {
                    other.overlaps_other_session = true;
                    overlaps = true;
                }
            }
        }
        self.windows.push(Window {
            id: begin.window.clone(),
            session: begin.session.clone(),
            turn: begin.turn.clone(),
            tool: begin.tool.clone(),
            call: begin.call.clone(),
            start: begin.start.clone(),
            end: begin.start.clone().filter(|_| closed),
            state: if closed { WindowState::Ended } else { WindowState::Open },
            instant: begin.instant,
            owner: begin.owner.clone(),
            boot: boot.to_owned(),
            began_ms: at_ms,
            ended_ms: closed.then_some(at_ms),
            opened: n,
            closed: closed.then_some(n),
            overlaps_other_session: overlaps,
            rewound: None,
        });
        self.place.insert(begin.window.clone(), place);
        if !closed {
            self.open.push(place);
        }
    }

    fn close(&mut self, n: u64, at_ms: u64, window: &str, end: &str, state: WindowState) {
        let Some(place) = self.place.get(window).copied() else { return };
        let Some(window) = self.windows.get_mut(place).filter(|window| window.is_open()) else { return };
        window.end = Some(end.to_owned());
        window.state = if state == WindowState::Open { WindowState::Ended } else { state };
        window.ended_ms = Some(at_ms);
        window.closed = Some(n);
        self.open.retain(|other| *other != place);
    }

    fn rewind(&mut self, n: u64, at_ms: u64, rewind: &Rewind) {
        let mark = rewind.undoes.is_none().then(|| rewind.id.clone());
        for window in &rewind.windows {
            if let Some(window) = self.place.get(window).and_then(|place| self.windows.get_mut(*place)) {
                window.rewound.clone_from(&mark);
            }
        }
        self.events.push(Event { n, at_ms, kind: EventKind::Rewound(rewind.clone()) });
    }

    fn no_session(&self, session: &str) -> Error {
        let sessions = self.sessions();
        let known: Vec<&str> = sessions.iter().rev().take(5).copied().collect();
        let hint = if known.is_empty() {
            "no turn was begun in this project yet: `forklift project turn begin` does".to_owned()
        } else {
            format!("the last sessions are {}", known.join(", "))
        };
        Error::new(ErrorKind::NotFound, format!("this project has no session {session}")).with("session", session).hint(hint)
    }
}

impl Turn {
    fn of(window: &Window, number: u64) -> Self {
        Self {
            session: window.session.clone(),
            turn: window.turn.clone(),
            number,
            state: window.state,
            began_ms: window.began_ms,
            ended_ms: window.ended_ms,
            start: window.start.clone(),
            end: window.end.clone(),
            windows: vec![window.id.clone()],
            overlaps_other_session: window.overlaps_other_session,
            rewound: window.rewound.clone(),
        }
    }

    fn take(&mut self, window: &Window) {
        let rank = |state: WindowState| match state {
            WindowState::Open => 3,
            WindowState::Interrupted => 2,
            WindowState::Failed => 1,
            WindowState::Ended => 0,
        };
        if rank(window.state) > rank(self.state) {
            self.state = window.state;
        }
        self.ended_ms = self.ended_ms.max(window.ended_ms);
        if self.start.is_none() {
            self.start.clone_from(&window.start);
        }
        if window.end.is_some() {
            self.end.clone_from(&window.end);
        }
        self.windows.push(window.id.clone());
        self.overlaps_other_session |= window.overlaps_other_session;
        if window.rewound.is_none() || self.rewound.is_none() {
            self.rewound = None;
        } else {
            self.rewound.clone_from(&window.rewound);
        }
    }
}
