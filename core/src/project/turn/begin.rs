//! Opening a window, and waiting for one that was opened in the background.

use std::time::Instant;

use super::super::Project;
use super::super::lock::HolderKind;
use super::super::pairing::millis;
use super::background;
use super::edge::EdgeOf;
use super::options::{TurnData, TurnOptions, TurnReport, WaitReport, check_names};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::timeline::{Begin, Captured, CheckpointId, End, Owner, Timeline, What, Window, WindowId, WindowState};

impl Project {
    /// Opens a window: what changes from now on, until it is ended, is this turn's. Returns when the files before are captured, with
    /// `background` at once. Where nothing moved since the last edge that checkpoint is named again: no fsync, no new ref.
    ///
    /// Windows of other turns of the session, and those whose owner is dead, are closed as interrupted. A begin with the `call` of an
    /// open window of that turn is the same window. While there is something to close, `background` waits all the same.
    ///
    /// # Errors
    /// `InvalidArgument` for a name, `NotFound` for an owner that does not live, `Busy` while a restore is under way,
    /// `RecoveryNeeded`, `NoSpace`, `ReadOnly`, `Cancelled`: no window is open then.
    pub fn turn_begin(&self, options: &TurnOptions, control: &Control) -> Result<TurnReport> {
        let started = Instant::now();
        check_names(&options.session, &options.turn, options.tool.as_deref(), options.call.as_deref())?;
        // A window that is opened inside a managed command ends with that, where nothing else was said.
        let owner = options.owner.or_else(|| self.inside().map(|command| command.pid)).map(Owner::of).transpose()?;
        self.check_root()?;
        let _holder = self.hold(HolderKind::Capture, &format!("turn begin {}", options.turn), control)?;
        let mut report = TurnReport::of(self.notices().to_vec());
        let mut log = self.timeline_log_end(&mut report.warnings, control)?;
        if let Some(window) = told_before(log.timeline(), options) {
            report.window = window.clone();
            report.checkpoint.clone_from(&window.start);
            report.repeated = true;
            report.total_ms = millis(started);
            return Ok(report);
        }
        let stale = stale(log.timeline(), &options.session, Some(&options.turn));
        let window = crate::sys::id::sortable()?;
        let begin = |start: Option<CheckpointId>| {
            What::Begin(Begin {
                window: window.clone(),
                session: options.session.clone(),
                turn: options.turn.clone(),
                tool: options.tool.clone(),
                call: options.call.clone(),
                owner: owner.clone(),
                start,
                instant: options.instant,
            })
        };
        if options.background && stale.is_empty() {
            match background::start(self, options) {
                Ok(true) => {
                    log.append(begin(None))?;
                    "background".clone_into(&mut report.mode);
                    return Ok(finished(report, log.timeline(), &window, started));
                }
                Ok(false) => {}
                Err(error) => report.warnings.push(format!("captured before the begin returned, and not in the background: {error}")),
            }
        }
        let of = EdgeOf { session: &options.session, turn: &options.turn, tool: options.tool.as_deref(), data: options.data };
        let edge = self.take_edge(&log, &of, &mut report, control)?;
        let waiting = waiting(log.timeline(), &stale);
        let records = |checkpoint: &CheckpointId| {
            let mut records = closing(&stale, checkpoint);
            records.extend(waiting.iter().map(|window| captured(window, checkpoint)));
            records.push(begin(Some(checkpoint.clone())));
            records
        };
        self.log_edge(&mut log, edge, records, &mut report)?;
        report.interrupted = stale;
        Ok(finished(report, log.timeline(), &window, started))
    }

    /// Returns when every window of the session that was opened in the background has its start: nothing that the agent does may begin
    /// before. Captures itself where the background has not.
    ///
    /// # Errors
    /// As [`Project::turn_begin`]; a session that has no window is fine.
    pub fn turn_wait(&self, session: &str, data: TurnData, control: &Control) -> Result<WaitReport> {
        let started = Instant::now();
        self.check_root()?;
        let _holder = self.hold(HolderKind::Capture, &format!("turn wait {session}"), control)?;
        let mut report = TurnReport::of(Vec::new());
        let mut log = self.timeline_log_end(&mut report.warnings, control)?;
        let first = log.timeline().open_windows().find(|window| window.session == session && window.start.is_none()).cloned();
        let mut captured_now = Vec::new();
        if let Some(window) = first {
            let of = EdgeOf { session, turn: &window.turn, tool: window.tool.as_deref(), data };
            let edge = self.take_edge(&log, &of, &mut report, control)?;
            captured_now = waiting(log.timeline(), &[]);
            let records = |checkpoint: &CheckpointId| captured_now.iter().map(|window| captured(window, checkpoint)).collect();
            self.log_edge(&mut log, edge, records, &mut report)?;
        }
        Ok(WaitReport { captured: captured_now, total_ms: millis(started), warnings: report.warnings })
    }

    /// Closes the windows whose owner is dead, of every session, as interrupted with what is there now, and gives their ids. Every begin
    /// and end does so too.
    ///
    /// # Errors
    /// As [`Project::turn_begin`].
    pub fn close_abandoned(&self, control: &Control) -> Result<Vec<WindowId>> {
        self.check_root()?;
        let _holder = self.hold(HolderKind::Capture, "close abandoned turns", control)?;
        self.close_abandoned_alone(control)
    }

    /// The same for a caller that works in the project already.
    pub(in crate::project) fn close_abandoned_alone(&self, control: &Control) -> Result<Vec<WindowId>> {
        let mut report = TurnReport::of(Vec::new());
        let mut log = self.timeline_log(&mut report.warnings, control)?;
        let stale = stale(log.timeline(), "", None);
        let Some(first) = stale.first().and_then(|id| log.timeline().window(id)).cloned() else { return Ok(stale) };
        let of = EdgeOf { session: &first.session, turn: &first.turn, tool: first.tool.as_deref(), data: TurnData::Auto };
        let edge = self.take_edge(&log, &of, &mut report, control)?;
        self.log_edge(&mut log, edge, |checkpoint| closing(&stale, checkpoint), &mut report)?;
        Ok(stale)
    }
}

/// Windows that nobody will end: of other turns of the session, and those of dead owners.
pub(super) fn stale(timeline: &Timeline, session: &str, turn: Option<&str>) -> Vec<WindowId> {
    let over = |window: &&Window| window.is_abandoned() || (window.session == session && turn.is_some_and(|turn| window.turn != turn));
    timeline.open_windows().filter(over).map(|window| window.id.clone()).collect()
}

/// Windows whose start is captured in the background, and is what is captured now as well.
fn waiting(timeline: &Timeline, but: &[WindowId]) -> Vec<WindowId> {
    timeline.open_windows().filter(|window| window.start.is_none() && !but.contains(&window.id)).map(|window| window.id.clone()).collect()
}

pub(super) fn closing(stale: &[WindowId], checkpoint: &CheckpointId) -> Vec<What> {
    let end = |window: &WindowId| What::End(End { window: window.clone(), end: checkpoint.clone(), state: WindowState::Interrupted });
    stale.iter().map(end).collect()
}

fn captured(window: &WindowId, checkpoint: &CheckpointId) -> What {
    What::Captured(Captured { window: window.clone(), start: checkpoint.clone() })
}

fn told_before<'a>(timeline: &'a Timeline, options: &TurnOptions) -> Option<&'a Window> {
    let call = options.call.as_deref()?;
    timeline
        .open_windows()
        .find(|window| window.session == options.session && window.turn == options.turn && window.call.as_deref() == Some(call))
}

fn finished(mut report: TurnReport, timeline: &Timeline, window: &str, started: Instant) -> TurnReport {
    if let Some(window) = timeline.window(window) {
        report.window = window.clone();
    }
    report.total_ms = millis(started);
    report
}

/// No window answers to what an end says.
pub(super) fn not_open(session: &str, turn: &str, timeline: &Timeline) -> Error {
    let open: Vec<String> = timeline.open_windows().filter(|window| window.session == session).map(|window| window.turn.clone()).collect();
    let hint = if open.is_empty() {
        "a window is opened by `forklift project turn begin`".to_owned()
    } else {
        format!("of that session there is an open window of {}", open.join(", "))
    };
    Error::new(ErrorKind::NotFound, format!("no window of turn {turn} of session {session} is open"))
        .with("session", session)
        .with("turn", turn)
        .hint(hint)
}
