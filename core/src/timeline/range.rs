//! What a rewind has to look at: the states between which a session changed something, in order.
//!
//! From the end of one span to the start of the next, and from the last one's end to the disk, nothing is the session's: a path that
//! differs there was changed by somebody else in between. Where the two are the same checkpoint, nothing was.

use serde::Serialize;

use super::record::Edited;
use super::view::Timeline;
use super::window::{CheckpointId, RewindId, Window, WindowId, WindowState};
use crate::error::{Error, ErrorKind, Result};

/// From where on a session is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeStart<'a> {
    /// From the beginning of this turn.
    Before(&'a str),
    /// From what this turn left.
    After(&'a str),
}

/// What a span is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// Windows of the session, as many as overlapped.
    Windows,
    /// A rewind of the session, or a redo.
    Rewind(RewindId),
}

/// A time in which what changed is the session's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// What it is.
    pub kind: SpanKind,
    /// Turns that its windows belong to.
    pub turns: Vec<String>,
    /// Its windows.
    pub windows: Vec<WindowId>,
    /// The files before.
    pub start: CheckpointId,
    /// The files after.
    pub end: CheckpointId,
    /// `false` where a window of another session was open at the same time: what changed is then nobody's.
    pub ours: bool,
    /// A window of it was closed by others than its tool: somebody else may have edited before that was noticed.
    pub interrupted: bool,
}

/// A part of a session up to now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    /// Session.
    pub session: String,
    /// Spans in order; empty where nothing is to be taken back. The first one's start is what a rewind goes back to.
    pub spans: Vec<Span>,
    /// Turns that are taken back, in order.
    pub turns: Vec<String>,
    /// All their windows, also those that are rewound already.
    pub windows: Vec<WindowId>,
    /// What others said they edited since the first span began, in order.
    pub edits: Vec<Edited>,
    /// Windows of the session that have no start, since their capture was broken off: what they changed is nobody's.
    pub unknown: Vec<WindowId>,
}

impl Range {
    /// What a rewind goes back to.
    #[must_use]
    pub fn target(&self) -> Option<&CheckpointId> {
        self.spans.first().map(|span| &span.start)
    }

    /// What the session left last.
    #[must_use]
    pub fn base(&self) -> Option<&CheckpointId> {
        self.spans.last().map(|span| &span.end)
    }
}

impl Timeline {
    /// The spans of `session` from the beginning of a turn, or from what it left, up to now.
    ///
    /// # Errors
    /// `NotFound` and `InvalidArgument` as [`Timeline::turn`]; `Busy` names a window of the session that is open.
    pub fn range(&self, session: &str, start: RangeStart<'_>) -> Result<Range> {
        let turn = match start {
            RangeStart::Before(turn) | RangeStart::After(turn) => self.turn(session, turn)?,
        };
        if let Some(open) = self.open_windows().find(|window| window.session == session) {
            return Err(busy(open));
        }
        let of_turn = || self.windows().iter().filter(|window| window.session == session && window.turn == turn.turn);
        let from = match start {
            RangeStart::Before(_) => of_turn().map(|window| window.opened).min(),
            RangeStart::After(_) => of_turn().filter_map(|window| window.closed).max().map(|closed| closed + 1),
        };
        let from = from.unwrap_or(u64::MAX);
        let windows: Vec<&Window> = self.windows().iter().filter(|window| window.session == session && window.opened >= from).collect();
        let mut turns: Vec<String> = Vec::new();
        for window in &windows {
            if !turns.contains(&window.turn) {
                turns.push(window.turn.clone());
            }
        }
        Ok(Range {
            session: session.to_owned(),
            spans: self.spans(session, &windows, from),
            turns,
            windows: windows.iter().map(|window| window.id.clone()).collect(),
            edits: self.edits().filter(|(n, _)| *n >= from).map(|(_, edited)| edited.clone()).collect(),
            unknown: windows.iter().filter(|window| window.start.is_none()).map(|window| window.id.clone()).collect(),
        })
    }

    fn spans(&self, session: &str, windows: &[&Window], from: u64) -> Vec<Span> {
        // Number of the record at which a span was over, beside it.
        let mut spans: Vec<(u64, u64, Span)> = Vec::new();
        for window in windows {
            let (Some(start), Some(end), Some(closed)) = (&window.start, &window.end, window.closed) else { continue };
            let interrupted = window.state == WindowState::Interrupted;
            if let Some((_, over, span)) = spans.last_mut().filter(|(_, over, _)| window.opened < *over) {
                if closed > *over {
                    *over = closed;
                    span.end.clone_from(end);
                }
                span.ours &= !window.overlaps_other_session;
                span.interrupted |= interrupted;
                span.windows.push(window.id.clone());
                if !span.turns.contains(&window.turn) {
                    span.turns.push(window.turn.clone());
                }
                continue;
            }
            let span = Span {
                kind: SpanKind::Windows,
                turns: vec![window.turn.clone()],
                windows: vec![window.id.clone()],
                start: start.clone(),
                end: end.clone(),
                ours: !window.overlaps_other_session,
                interrupted,
            };
            spans.push((window.opened, closed, span));
        }
        for (n, rewind) in self.numbered_rewinds().filter(|(n, rewind)| *n >= from && rewind.session == session) {
            let span = Span {
                kind: SpanKind::Rewind(rewind.id.clone()),
                turns: rewind.turns.clone(),
                windows: Vec::new(),
                start: rewind.before.clone(),
                end: rewind.after.clone(),
                ours: true,
                interrupted: false,
            };
            spans.push((n, n, span));
        }
        spans.sort_by_key(|(opened, _, _)| *opened);
        spans.into_iter().map(|(_, _, span)| span).collect()
    }
}

fn busy(window: &Window) -> Error {
    let tool = window.tool.as_deref().map(|tool| format!(" ({tool})")).unwrap_or_default();
    Error::new(ErrorKind::Busy, format!("turn {} of session {} is open{tool}", window.turn, window.session))
        .with("session", &window.session)
        .with("turn", &window.turn)
        .with("window", &window.id)
        .hint("end it with `forklift project turn end`, or wait for its tool")
}
