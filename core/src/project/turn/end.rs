//! Closing a window.

use std::time::Instant;

use super::super::Project;
use super::super::lock::HolderKind;
use super::super::pairing::millis;
use super::begin::{closing, not_open, stale};
use super::edge::EdgeOf;
use super::options::{TurnEnd, TurnReport, check_names};
use crate::error::Result;
use crate::progress::Control;
use crate::timeline::{CheckpointId, End, Timeline, What, Window, WindowState};

impl Project {
    /// Closes a window: the files after are captured, and are durable when this returns. Where nothing changed the last checkpoint is
    /// named again: no fsync, no new ref. A window that is closed already is given back as it is.
    ///
    /// # Errors
    /// `NotFound` where the turn has no such window, `InvalidArgument`, `Busy`, `RecoveryNeeded`, `NoSpace`, `ReadOnly`, `Cancelled`:
    /// the window stays open then, and can be ended again.
    pub fn turn_end(&self, options: &TurnEnd, control: &Control) -> Result<TurnReport> {
        let started = Instant::now();
        check_names(&options.session, &options.turn, options.tool.as_deref(), options.call.as_deref())?;
        self.check_root()?;
        let _holder = self.hold(HolderKind::Capture, &format!("turn end {}", options.turn), control)?;
        let mut report = TurnReport::of(self.notices().to_vec());
        let mut log = self.timeline_log_end(&mut report.warnings, control)?;
        let window = match find(log.timeline(), options) {
            Some(window) => window.clone(),
            // It may have been closed long ago.
            None => match find(&self.timeline()?.0, options) {
                Some(window) => window.clone(),
                None => return Err(not_open(&options.session, &options.turn, log.timeline())),
            },
        };
        if !window.is_open() {
            if window.state == WindowState::Interrupted {
                report
                    .warnings
                    .push("the window was closed as interrupted before this end came: what changed since then is nobody's".to_owned());
            }
            report.checkpoint.clone_from(&window.end);
            report.window = window;
            report.repeated = true;
            report.total_ms = millis(started);
            return Ok(report);
        }
        let mut stale = stale(log.timeline(), "", None);
        stale.retain(|id| *id != window.id);
        let tool = window.tool.as_deref();
        let of = EdgeOf { session: &options.session, turn: &options.turn, tool, data: options.data };
        let edge = self.take_edge(&log, &of, &mut report, control)?;
        let state = if options.failed { WindowState::Failed } else { WindowState::Ended };
        let records = |checkpoint: &CheckpointId| {
            let mut records = vec![What::End(End { window: window.id.clone(), end: checkpoint.clone(), state })];
            records.extend(closing(&stale, checkpoint));
            records
        };
        self.log_edge(&mut log, edge, records, &mut report)?;
        report.interrupted = stale;
        report.window = log.timeline().window(&window.id).cloned().unwrap_or(window);
        report.total_ms = millis(started);
        Ok(report)
    }
}

/// The open window that is meant, else the last closed one.
fn find<'a>(timeline: &'a Timeline, options: &TurnEnd) -> Option<&'a Window> {
    let meant = |window: &&Window| {
        window.session == options.session
            && window.turn == options.turn
            && !window.instant
            && options.call.as_ref().is_none_or(|call| window.call.as_ref() == Some(call))
            && options.tool.as_ref().is_none_or(|tool| window.tool.as_ref() == Some(tool))
    };
    let closed = || timeline.windows().iter().rev().find(|window| meant(window));
    // Of windows that cannot be told apart any does: those of one turn share what changed.
    timeline.open_windows().find(meant).or_else(closed)
}
