//! Whether databases are the same, by marks alone: across a restore too, whose cluster is another one with the same rows.

use std::time::{Duration, Instant};

use super::Branch;
use super::capture::QUIET;
use super::facts::CapturedCluster;
use super::layout::{self, ClusterRecord};
use super::shared::named;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Mark, ServerStatus};
use crate::progress::Control;
use crate::store::Ref;
use crate::sys::lock::Mode;

/// How long sessions that were told to end are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Branch {
    /// Whether two checkpoints hold the same database: one half for both, halves of one cluster of this branch with equal marks, or the
    /// second's half of the current cluster, which a restore made of the first's. `false` in every doubt; where neither has a
    /// database, they do.
    ///
    /// # Errors
    /// `Corrupt` where the facts of a half cannot be read.
    pub fn same_database(&self, first: &Ref, second: &Ref) -> Result<bool> {
        let (one, other) = match (&first.cluster, &second.cluster) {
            (None, None) => return Ok(true),
            (Some(one), Some(other)) => (one, other),
            _ => return Ok(false),
        };
        let (captured, later) = (CapturedCluster::of(one)?, CapturedCluster::of(other)?);
        if one.root == other.root && captured.report.sequences == later.report.sequences {
            return Ok(true);
        }
        if later.branch != self.record.id {
            return Ok(false);
        }
        if captured.branch == later.branch && captured.cluster == later.cluster {
            return Ok(captured.mark.same(&later.mark));
        }
        let Some(record) = self.cluster_record(&later.cluster) else { return Ok(false) };
        let marks = [&record.started, &record.mark];
        Ok(record.made_of == Some(one.root) && marks.into_iter().flatten().any(|mark| mark.same(&later.mark)))
    }

    /// Whether a restore made the current cluster of this checkpoint's half, and nothing was written since. The branch's lock is held.
    pub(super) fn is_as_made(&self, cluster: &str, reference: &Ref) -> Result<bool> {
        let Some(record) = self.cluster_record(cluster) else { return Ok(false) };
        if record.made_of.is_none() || record.made_of != reference.cluster.as_ref().map(|half| half.root) {
            return Ok(false);
        }
        match (self.status()?, record.started) {
            (ServerStatus::Stopped, _) => {
                let now = postgres::mark_stopped(&self.data()?)?;
                Ok(record.mark.is_some_and(|mark| mark.same(&now)))
            }
            (ServerStatus::Running { .. }, Some(started)) => match self.attach()? {
                Some(server) => Ok(started.same(&postgres::mark_running(&server, Some(&started))?)),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// Shuts clients out of a held branch whose server ran (or not) as `ran` says, ends their sessions, and tells whether its database
    /// is what `reference` holds: nobody can change it from then on. [`Branch::release`] and a start let them in again.
    ///
    /// # Errors
    /// As [`Branch::unchanged_since`]; `Busy` where a session does not end.
    pub(crate) fn shut_out(&self, reference: &Ref, ran: bool) -> Result<bool> {
        named(&self.record.name, self.shut_out_all(reference, ran))
    }

    fn shut_out_all(&self, reference: &Ref, ran: bool) -> Result<bool> {
        let _lock = self.lock(Mode::Exclusive, &Control::silent())?;
        if !ran {
            return self.compare_locked(reference);
        }
        let Some(server) = self.attach()? else { return Ok(false) };
        server.address().hide()?;
        std::thread::sleep(QUIET);
        server.end_clients()?;
        let begin = Instant::now();
        while server.writers()? > 0 {
            if begin.elapsed() > PATIENCE {
                return Err(Error::new(ErrorKind::Busy, "a session of its database does not end").hint("end it, then try again"));
            }
            std::thread::sleep(QUIET);
        }
        self.compare_locked(reference)
    }

    /// Starts the server after a restore, and keeps its mark as it is before anybody can connect: so that it is known later whether
    /// anything was written since.
    ///
    /// # Errors
    /// As [`Branch::start`].
    pub(crate) fn start_marked(&self, control: &Control) -> Result<()> {
        named(&self.record.name, self.start_and_mark(control))
    }

    fn start_and_mark(&self, control: &Control) -> Result<()> {
        self.refuse_held()?;
        let _lock = self.lock(Mode::Exclusive, control)?;
        self.refuse_held()?;
        self.sweep_locked()?;
        let mut taken: Option<Mark> = None;
        let take = |server: &postgres::Server| {
            taken = postgres::mark_running(server, None).ok();
            Ok(())
        };
        self.start_locked(false, take, control)?;
        let cluster = self.read_current()?;
        if let (Some(mark), Some(mut record)) = (taken, self.cluster_record(&cluster)) {
            record.started = Some(mark);
            layout::save(&self.folder.cluster(&cluster).record(), &record)?;
        }
        Ok(())
    }

    /// What is known of a cluster, where it is there still.
    fn cluster_record(&self, cluster: &str) -> Option<ClusterRecord> {
        if !super::materialise::is_cluster_id(cluster) {
            return None;
        }
        layout::load(&self.folder.cluster(cluster).record()).ok()
    }
}
