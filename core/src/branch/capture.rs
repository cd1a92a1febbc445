//! Capturing a branch's cluster into a store session.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::facts::{self, CapturedCluster};
use super::layout::{self, ClusterFolder, ClusterRecord, SCRATCH};
use super::lifecycle::show;
use super::shared::{PATIENCE, named};
use super::{Branch, space};
use crate::clone::Method;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ClusterCache, ClusterFacts, CopyReport, Mark, Server, ServerStatus, StopMode, StoreSink, TreeSink};
use crate::progress::Control;
use crate::store::{Half, Ref, Session};
use crate::sys;
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
    /// Bytes read from the cluster.
    pub bytes_read: u64,
    /// Unlogged tables that come up empty after a restore.
    pub unlogged: Vec<String>,
    /// Prepared transactions in it.
    pub prepared: Vec<String>,
}

/// What one way of copying gave.
struct Taken {
    half: Half,
    bytes_read: u64,
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
        let Taken { mut half, bytes_read, report, mark, downtime_ms, parts_ms } = taken;
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
            facts,
            report: report.clone(),
            mark,
        };
        half.facts = captured.to_value()?;
        Ok(ClusterCapture {
            bytes_read,
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
        let folder = self.folder.cluster(cluster);
        let (Stored { half, bytes_read }, report) = store_stopped(session, &folder.data(), Some(&folder), control)?;
        Ok(Taken { mark: report.mark.clone(), parts_ms: report.parts_ms.clone(), half, bytes_read, report, downtime_ms: 0 })
    }

    fn take_online(&self, session: &Session, server: &Server, cluster: &str, control: &Control) -> Result<Taken> {
        let folder = self.folder.cluster(cluster);
        let boot = sys::process::boot_id()?;
        let mut sink = StoreSink::new(session, ClusterCache::load(&folder.cache(), &boot));
        let report = postgres::copy_online(server, &mut sink, control)?;
        let bytes_read = sink.bytes_read();
        let (half, cache) = sink.finish()?;
        cache.save(&folder.cache(), &boot);
        Ok(Taken { mark: report.mark.clone(), parts_ms: report.parts_ms.clone(), half, bytes_read, report, downtime_ms: 0 })
    }

    /// Stops the server, copies, and starts it again whatever happened.
    fn take_by_stopping(&self, session: &Session, server: Server, cluster: &str, bound: bool, control: &Control) -> Result<Taken> {
        let folder = self.folder.cluster(cluster);
        let scratch = self.folder.path().join(format!("{SCRATCH}{}", sys::id::sortable()?));
        // While the server still runs: a full disk, and what would keep it from starting again, is seen before anybody is cut.
        let sink = match self.check_start().and_then(|()| TreeSink::new(&folder.data(), &scratch)) {
            Ok(sink) => sink,
            Err(error) => {
                show(&server)?;
                return Err(error);
            }
        };
        let clone = sink.method() == Method::Reflink;
        let scratch = Scratch(scratch);
        let begin = Instant::now();
        let stopped = server.stop(StopMode::Fast, PATIENCE, control);
        self.shared.unbind_server(&self.record.id);
        let stop_ms = elapsed_ms(begin);
        let copied = stopped.and_then(|()| {
            if clone {
                let mut sink = sink;
                postgres::copy_stopped(&folder.data(), &mut sink, control).map(|report| (None, report))
            } else {
                store_stopped(session, &folder.data(), Some(&folder), control).map(|(stored, report)| (Some(stored), report))
            }
        });
        let copy_ms = elapsed_ms(begin) - stop_ms;
        let mark = self.start_again(bound, copied.as_ref().err(), control)?;
        let downtime_ms = elapsed_ms(begin);
        let (stored, report) = copied?;
        let Stored { half, bytes_read } = match stored {
            Some(stored) => stored,
            None => store_stopped(session, &scratch.0, None, control)?.0,
        };
        let parts_ms = vec![
            ("stop".to_owned(), stop_ms),
            ("files".to_owned(), copy_ms),
            ("start".to_owned(), downtime_ms - copy_ms - stop_ms),
            ("store".to_owned(), elapsed_ms(begin) - downtime_ms),
        ];
        Ok(Taken { mark: mark.unwrap_or_else(|| report.mark.clone()), half, bytes_read, report, downtime_ms, parts_ms })
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

/// A clone for one capture, removed with the value; a killed process's is removed by the next command on the branch.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = sys::fs::remove_tree(&self.0);
        drop(removed);
    }
}

/// A cluster in a store session.
struct Stored {
    half: Half,
    bytes_read: u64,
}

/// Copies a stopped cluster into the session; with the cache of `cluster` where it is the cluster itself and no clone of it.
fn store_stopped(session: &Session, data: &Path, cluster: Option<&ClusterFolder>, control: &Control) -> Result<(Stored, CopyReport)> {
    let boot = sys::process::boot_id()?;
    let known = match cluster {
        Some(folder) => ClusterCache::load(&folder.cache(), &boot),
        None => ClusterCache::default(),
    };
    let mut sink = StoreSink::new(session, known);
    let report = postgres::copy_stopped(data, &mut sink, control)?;
    let bytes_read = sink.bytes_read();
    let (half, cache) = sink.finish()?;
    if let Some(folder) = cluster {
        cache.save(&folder.cache(), &boot);
    }
    Ok((Stored { half, bytes_read }, report))
}

fn unchanged(half: &Half, captured: &CapturedCluster) -> ClusterCapture {
    ClusterCapture {
        half: half.clone(),
        mode: "unchanged".to_owned(),
        downtime_ms: 0,
        parts_ms: Vec::new(),
        bytes_read: 0,
        unlogged: captured.report.unlogged.clone(),
        prepared: captured.report.prepared.clone(),
    }
}

pub(super) fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
