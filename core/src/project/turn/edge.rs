//! One edge of a window: what is there now, as the last checkpoint where nothing moved since, else as a new one.

use std::time::Instant;

use super::super::database::TURN_MODE;
use super::super::pairing::{Pair, PairRequest, millis};
use super::super::{Project, failpoint};
use super::{TurnData, TurnReport};
use crate::error::{ErrorKind, Result};
use crate::files::StatCache;
use crate::progress::Control;
use crate::store::{Ref, RefKind, Session};
use crate::timeline::{CheckpointId, FACT, TimelineLog, What};

/// For which window an edge is taken: what its ref says.
pub(super) struct EdgeOf<'a> {
    pub(super) session: &'a str,
    pub(super) turn: &'a str,
    pub(super) tool: Option<&'a str>,
    pub(super) data: TurnData,
}

/// A captured edge that is not in the timeline yet.
pub(super) struct Edge {
    id: CheckpointId,
    /// The store's session and the ref, where it is a new checkpoint.
    new: Option<(Session, Ref)>,
}

impl Project {
    /// Captures, with the timeline's log held: so checkpoints are in the order of the log.
    pub(super) fn take_edge(&self, log: &TimelineLog, of: &EdgeOf<'_>, report: &mut TurnReport, control: &Control) -> Result<Edge> {
        let start = Instant::now();
        let scope = self.scope()?;
        let database = if of.data == TurnData::Never { None } else { self.database()? };
        let last = self.last_edge(log)?;
        let session = self.store.session(control)?;
        let mut cache = StatCache::load(&self.folder.stat_cache());
        let request =
            PairRequest { scope: &scope, database: database.as_ref(), mode: TURN_MODE, previous: last.as_ref(), check_moves: true };
        let pair = request.take(&session, &mut cache, control)?;
        failpoint::pass(&self.environment, "turn-paired")?;
        self.check_root()?;
        control.check()?;
        report.warnings.extend(pair.warnings.iter().cloned());
        self.save_cache(&cache, &mut report.warnings);
        report.bytes_read += pair.bytes_read;
        report.files_opened += pair.files_opened;
        report.parts_ms.extend(pair.parts_ms.iter().cloned());
        report.parts_ms.push(("capture".to_owned(), millis(start)));
        if let Some(last) = last.filter(|last| is_same(last, &pair)) {
            "unchanged".clone_into(&mut report.mode);
            return Ok(Edge { id: last.id, new: None });
        }
        report.mode = pair.mode();
        let id = log.next_checkpoint()?;
        let mut reference = self.reference(RefKind::Capture, id.clone(), None, &pair, pair.facts())?;
        reference.session = Some(of.session.to_owned());
        reference.turn = Some(of.turn.to_owned());
        reference.tool = of.tool.map(str::to_owned);
        Ok(Edge { id, new: Some((session, reference)) })
    }

    /// Puts what happened at an edge into the timeline: the first record with the edge's ref, where it has a new one.
    pub(super) fn log_edge(
        &self,
        log: &mut TimelineLog,
        edge: Edge,
        what: impl FnOnce(&CheckpointId) -> Vec<What>,
        report: &mut TurnReport,
    ) -> Result<()> {
        let start = Instant::now();
        let Edge { id, new } = edge;
        let mut records = what(&id).into_iter();
        if let Some((session, mut reference)) = new
            && let Some(first) = records.next()
        {
            let stored = log.append_with(first, &id, |facts| {
                if let serde_json::Value::Object(all) = &mut reference.facts {
                    all.insert(FACT.to_owned(), facts);
                }
                let stored = session.commit(&reference)?;
                failpoint::pass(&self.environment, "turn-published")?;
                Ok(stored)
            })?;
            report.new_checkpoint = true;
            report.bytes_new += stored.bytes_new;
            report.bytes_stored += stored.bytes_stored;
            report.fsyncs += stored.fsyncs;
            failpoint::pass(&self.environment, "turn-logged")?;
        }
        for record in records {
            log.append(record)?;
        }
        report.checkpoint = Some(id);
        report.parts_ms.push(("publish".to_owned(), millis(start)));
        Ok(())
    }

    /// The checkpoint that an edge may repeat, and whose mark the database is compared with.
    fn last_edge(&self, log: &TimelineLog) -> Result<Option<Ref>> {
        let Some(last) = log.timeline().last_checkpoint() else {
            // The first edge of a project with a database need not read it again after a capture by name.
            return Ok(if self.record.branch.is_some() { self.refs()?.0.pop() } else { None });
        };
        match self.store.find_ref(last) {
            Ok(reference) => Ok(Some(reference)),
            // It was forgotten, or is damaged: then this edge is a new one.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::UnsupportedFormat) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a checkpoint holds just what was captured, under the same scope.
fn is_same(last: &Ref, pair: &Pair) -> bool {
    let files = last.files.as_ref().is_some_and(|half| half.root == pair.files.half.root && half.facts == pair.files.half.facts);
    let cluster = match (&last.cluster, &pair.cluster) {
        (None, None) => true,
        (Some(half), Some(cluster)) => cluster.mode == "unchanged" && half.root == cluster.half.root,
        _ => false,
    };
    // A pair that is of no one instant is not what another edge may stand on.
    let warnings = serde_json::json!(pair.warnings);
    files && cluster && !pair.moved() && last.facts.get("warnings") == Some(&warnings)
}
