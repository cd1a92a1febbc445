//! Capturing a branch's cluster into a store session.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::facts::{self, CapturedCluster};
use super::layout::{self, ClusterRecord};
use super::lifecycle::show;
use super::shared::{PATIENCE, named};
use super::storing::Storing;
use super::{Branch, space};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ClusterFacts, CopyReport, Mark, Server, ServerStatus, StopMode, StoredCluster};
use crate::progress::Control;
use crate::report::Reads;
use crate::store::{Half, Ref, Session};
use crate::sys::lock::Mode;

/// How long after its socket was taken away a server's clients are counted: a connect that had begun is seen then.
pub(super) const QUIET: Duration = Duration::from_millis(5);

/// How to take the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMode {
    /// A stopped server as it is; a running one without clients by a short stop; one with clients online.
    #[default]
    Auto,
    /// Online, or as it is where the server is stopped.
    Online,
    /// By a clean stop, which cuts clients; keeps unlogged tables.
    Stopped,
}

/// A captured cluster.
#[derive(Debug, Clone)]
pub struct ClusterCapture {
    /// For the ref; its facts hold versions, sequences and mark.
    pub half: Half,
    /// `unchanged` (the half of `previous` is reused), `online` or `stopped`.
    pub mode: String,
    /// How long no client could reach the server, in milliseconds.
    pub downtime_ms: u64,
    /// Milliseconds by part.
    pub parts_ms: Vec<(String, u64)>,
    /// Bytes read from the cluster: those of `reads`.
    pub bytes_read: u64,
    /// Its files that were read, and why.
    pub reads: Reads,
    /// What went wrong and did no harm.
    pub warnings: Vec<String>,
    /// Unlogged tables that come up empty after a restore.
    pub unlogged: Vec<String>,
    /// Prepared transactions in it.
    pub prepared: Vec<String>,
}

/// What one way of copying gave.
struct Taken {
    stored: StoredCluster,
    report: CopyReport,
    mark: Mark,
    downtime_ms: u64,
    parts_ms: Vec<(String, u64)>,
}

impl Branch {
    /// Captures the current cluster into `session`. Where `previous` is a checkpoint of this branch's current cluster whose mark still
    /// holds, its half is reused at no cost, unless it left out rows of unlogged tables. A server that was running runs afterwards, also after a failure.
    ///
    /// # Errors
    /// `Capture` (not consistent, or `wal_level = minimal` online), `ServerStart` where the server does not run again (its data
    /// is untouched), `ServerStop`, `NoSpace`, `Cancelled`. Nothing of the capture is visible then.
    pub fn capture(&self, session: &Session, mode: CaptureMode, previous: Option<&Ref>, control: &Control) -> Result<ClusterCapture> {
        named(&self.record.name, self.take(session, mode, previous, control))
    }

    /// Whether what is committed in the current cluster is exactly what `reference` holds, by its mark; `false` in every doubt. A
    /// client's open transaction does not show. Nothing is started or stopped.
    ///
    /// # Errors
    /// `Busy` while another command works on the branch, `Sql`, `Io`.
    pub fn unchanged_since(&self, reference: &Ref) -> Result<bool> {
        named(&self.record.name, self.compare(reference))
    }

    fn compare(&self, reference: &Ref) -> Result<bool> {
        let _lock = self.lock(Mode::Exclusive, &Control::silent())?;
        self.compare_locked(reference)
    }

    /// As [`Branch::unchanged_since`], with the branch's lock held.
    pub(super) fn compare_locked(&self, reference: &Ref) -> Result<bool> {
        let cluster = self.read_current()?;
        let Some((_, captured)) = self.comparable(reference, &cluster) else { return self.is_as_made(&cluster, reference) };
        let mark = match self.status()? {
            ServerStatus::Stopped => postgres::mark_stopped(&self.data()?)?,
            ServerStatus::Running { .. } => match self.attach()? {
                Some(server) => postgres::mark_running(&server, Some(&captured.mark))?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        };
        Ok(captured.mark.same(&mark))
    }

    fn take(&self, session: &Session, mode: CaptureMode, previous: Option<&Ref>, control: &Control) -> Result<ClusterCapture> {
        let _lock = self.lock(Mode::Exclusive, control)?;
        self.sweep_locked()?;
        let cluster = self.read_current()?;
        let status = self.settled_status(control)?;
        let server = self.attach()?;
        if let Some(server) = server.as_ref().filter(|_| !self.folder.hold().exists()) {
            show(server)?;
        }
        let ran = !matches!(status, ServerStatus::Stopped);
        let bound = self.shared.is_bound(&self.record.id);
        // Not one whose unlogged tables are empty: those of the cluster hold rows that its mark says nothing about.
        let previous =
            previous.and_then(|reference| self.comparable(reference, &cluster)).filter(|(_, captured)| captured.report.unlogged.is_empty());
        if server.is_none() {
            self.recover_locked(control)?;
        }
        if let Some((half, captured)) = &previous {
            let mark = match &server {
                Some(server) => postgres::mark_running(server, Some(&captured.mark))?,
                None => postgres::mark_stopped(&self.data()?)?,
            };
            // A transaction that is open now, also one without an id in the snapshot, is in no copy either: what is committed is the
            // same. One that was open at the last capture and has ended since moves the snapshot; a prepared one is in the mark by name.
            if captured.mark.same(&mark) {
                if ran && server.is_none() {
                    self.start_again(bound, None, control)?;
                }
                return Ok(unchanged(half, captured));
            }
        }
        if server.is_some() {
            space::for_capture(&self.data()?)?;
        }
        let mut record: ClusterRecord = layout::load(&self.folder.cluster(&cluster).record())?;
        let facts = self.describe(server.as_ref(), &mut record)?;
        let taken = match server {
            None => {
                let taken = self.take_stopped(session, &cluster, control);
                if ran {
                    // It had lost its keeper, and was stopped for that.
                    self.start_again(bound, taken.as_ref().err(), control)?;
                }
                taken?
            }
            Some(server) => match mode {
                CaptureMode::Stopped => self.take_by_stopping(session, server, &cluster, bound, control)?,
                CaptureMode::Auto if Self::has_no_clients(&server, control)? => {
                    self.take_by_stopping(session, server, &cluster, bound, control)?
                }
                CaptureMode::Auto | CaptureMode::Online => self.take_online(session, &server, &cluster, control)?,
            },
        };
        self.finish_capture(&cluster, facts, taken)
    }

    fn finish_capture(&self, cluster: &str, facts: ClusterFacts, taken: Taken) -> Result<ClusterCapture> {
        let Taken { stored, report, mark, downtime_ms, parts_ms } = taken;
        let StoredCluster { mut half, cache, reads, warnings } = stored;
        self.keep_for_next(cluster, &cache)?;
        let root_mode = half.facts.get("root_mode").and_then(serde_json::Value::as_u64).and_then(|mode| u32::try_from(mode).ok());
        let credentials = self.credentials()?;
        let captured = CapturedCluster {
            root_mode: root_mode.unwrap_or(0o700),
            branch: self.record.id.clone(),
            cluster: cluster.to_owned(),
            superuser: credentials.ours.name,
            user: credentials.url.name,
            database: credentials.database,
            fork: self.record.fork,
            safe: self.record.safe,
            facts,
            report: report.clone(),
            mark,
        };
        half.facts = captured.to_value()?;
        Ok(ClusterCapture {
            bytes_read: reads.bytes_read,
            reads,
            warnings,
            half,
            mode: report.mode,
            downtime_ms,
            parts_ms,
            unlogged: report.unlogged,
            prepared: report.prepared,
        })
    }

    /// The cluster half of a checkpoint whose mark can be compared with what is there now.
    pub(super) fn comparable(&self, reference: &Ref, cluster: &str) -> Option<(Half, CapturedCluster)> {
        let half = reference.cluster.clone()?;
        let captured = CapturedCluster::of(&half).ok()?;
        (captured.branch == self.record.id && captured.cluster == cluster).then_some((half, captured))
    }

    /// Versions from the files; locales and extensions by SQL where the server runs, else as they were last read.
    fn describe(&self, server: Option<&Server>, record: &mut ClusterRecord) -> Result<ClusterFacts> {
        let installation = self.shared.installation(&self.record.postgres, self.record.version)?;
        let folder = self.folder.cluster(&record.id);
        let mut facts = ClusterFacts::of_files(&folder.data(), &installation)?;
        match (server, &record.facts) {
            (Some(server), _) => facts::ask(server, &mut facts)?,
            (None, Some(known)) => {
                facts.locales = known.locales.clone();
                facts.extensions = known.extensions.clone();
            }
            (None, None) => {}
        }
        let known = |facts: &ClusterFacts| (facts.locales.clone(), facts.extensions.clone());
        if server.is_some() && record.facts.as_ref().map(known) != Some(known(&facts)) {
            record.facts = Some(facts.clone());
            layout::save(&folder.record(), record)?;
        }
        Ok(facts)
    }

    /// Takes the public socket away and looks whether anybody is connected; whoever is gets the socket back at once.
    fn has_no_clients(server: &Server, control: &Control) -> Result<bool> {
        control.check()?;
        server.address().hide()?;
        std::thread::sleep(QUIET);
        let clients = server.clients();
        if !matches!(clients, Ok(0)) {
            server.address().publish()?;
        }
        Ok(clients? == 0)
    }

    fn take_stopped(&self, session: &Session, cluster: &str, control: &Control) -> Result<Taken> {
        let mut sink = self.sink(session, cluster)?;
        let report = postgres::copy_stopped(&self.folder.cluster(cluster).data(), sink.as_sink(), control)?;
        let parts_ms = report.parts_ms.clone();
        Self::stored(sink, report, parts_ms, control)
    }

    fn take_online(&self, session: &Session, server: &Server, cluster: &str, control: &Control) -> Result<Taken> {
        let mut sink = self.sink(session, cluster)?;
        let report = postgres::copy_online(server, sink.as_sink(), control)?;
        let parts_ms = report.parts_ms.clone();
        Self::stored(sink, report, parts_ms, control)
    }

    /// What a copy that is over has left for after it.
    fn stored(sink: Storing<'_>, report: CopyReport, mut parts_ms: Vec<(String, u64)>, control: &Control) -> Result<Taken> {
        let begin = Instant::now();
        let stored = sink.store(control)?;
        parts_ms.push(("store".to_owned(), elapsed_ms(begin)));
        Ok(Taken { mark: report.mark.clone(), stored, report, downtime_ms: 0, parts_ms })
    }

    /// Stops the server, copies, and starts it again whatever happened; where the copy is a clone, it is read after that.
    fn take_by_stopping(&self, session: &Session, server: Server, cluster: &str, bound: bool, control: &Control) -> Result<Taken> {
        // While the server still runs: a full disk, and what would keep it from starting again, is seen before anybody is cut.
        let mut sink = match self.check_start().and_then(|()| self.sink(session, cluster)) {
            Ok(sink) => sink,
            Err(error) => {
                show(&server)?;
                return Err(error);
            }
        };
        let begin = Instant::now();
        let stopped = server.stop(StopMode::Fast, PATIENCE, control);
        self.shared.unbind_server(&self.record.id);
        let stop_ms = elapsed_ms(begin);
        let copied = stopped.and_then(|()| postgres::copy_stopped(&self.folder.cluster(cluster).data(), sink.as_sink(), control));
        let copy_ms = elapsed_ms(begin) - stop_ms;
        let mark = self.start_again(bound, copied.as_ref().err(), control)?;
        let downtime_ms = elapsed_ms(begin);
        let parts_ms = [("stop", stop_ms), ("files", copy_ms), ("start", downtime_ms - copy_ms - stop_ms)];
        let taken = Self::stored(sink, copied?, parts_ms.map(|(part, ms)| (part.to_owned(), ms)).to_vec(), control)?;
        Ok(Taken { mark: mark.unwrap_or_else(|| taken.mark.clone()), downtime_ms, ..taken })
    }

    /// Starts a server that ran before, and takes its mark before anybody can connect. A failure says both what went wrong
    /// before and that the server does not run.
    fn start_again(&self, bound: bool, failed: Option<&Error>, control: &Control) -> Result<Option<Mark>> {
        let mut mark = None;
        let prepare = |server: &Server| {
            mark = postgres::mark_running(server, None).ok();
            Ok(())
        };
        self.start_locked(bound, prepare, &control.uncancellable()).map_err(|error| {
            let before = failed.map(|failed| format!(" (after: {failed})")).unwrap_or_default();
            Error::new(
                ErrorKind::ServerStart,
                format!("the server of branch {} was stopped for a capture and does not run again: {error}{before}", self.record.name),
            )
            .with("branch", &self.record.name)
            .hint(format!("its data is untouched; `forklift branch start {}` starts it", self.record.name))
            .because(error)
        })?;
        Ok(mark)
    }
}

fn unchanged(half: &Half, captured: &CapturedCluster) -> ClusterCapture {
    ClusterCapture {
        half: half.clone(),
        mode: "unchanged".to_owned(),
        downtime_ms: 0,
        parts_ms: Vec::new(),
        bytes_read: 0,
        reads: Reads::default(),
        warnings: Vec::new(),
        unlogged: captured.report.unlogged.clone(),
        prepared: captured.report.prepared.clone(),
    }
}

pub(super) fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
