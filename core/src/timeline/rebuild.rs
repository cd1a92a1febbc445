//! The log from the refs.
//!
//! A ref of a turn carries, in its facts, every record since the ref before it. So the records of all refs together are the log, but
//! for what came after the last one. Records of refs that were forgotten are in the log alone.

use std::collections::BTreeMap;

use serde_json::Value;

use super::log::TimelineLog;
use super::record::{Record, What};
use crate::error::Result;
use crate::store::Ref;
use crate::sys::fs::Syncs;

/// The member of a ref's facts that holds its records.
pub const FACT: &str = "timeline";

/// What a rebuild did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Rebuilt {
    /// Records that came back from refs.
    pub recovered: u64,
    /// Runs of numbers that neither the log nor a ref has.
    pub missing: Vec<(u64, u64)>,
    /// The damaged log, which is kept.
    #[serde(serialize_with = "crate::report::optional_path")]
    pub kept: Option<std::path::PathBuf>,
}

/// The records that a ref carries; none for one that is no turn's, or whose records another forklift wrote.
#[must_use]
pub fn records_of(reference: &Ref) -> Vec<Record> {
    let Some(Value::Array(records)) = reference.facts.get(FACT) else { return Vec::new() };
    records.iter().filter_map(|record| serde_json::from_value(record.clone()).ok()).collect()
}

impl TimelineLog {
    /// For the facts of a ref, under [`FACT`]: the records that no ref carries yet, and then `record`.
    ///
    /// # Errors
    /// `InvalidArgument` where one has no JSON form.
    pub fn carried(&self, record: &Record) -> Result<Value> {
        let records: Vec<&Record> = self.timeline().pending().chain([record]).collect();
        serde_json::to_value(&records).map_err(|error| {
            crate::Error::new(crate::ErrorKind::InvalidArgument, format!("a record of the timeline cannot be kept: {error}"))
        })
    }

    /// Adds what happened, together with the ref that makes it durable: `publish` gets the facts for it.
    ///
    /// # Errors
    /// What `publish` fails with, and then nothing was added; as [`TimelineLog::append`] where the ref exists and the log could not be
    /// written: the next writer takes the record from the ref.
    pub fn append_with<T>(&mut self, what: What, checkpoint: &str, publish: impl FnOnce(Value) -> Result<T>) -> Result<T> {
        let record = self.next(what);
        let facts = self.carried(&record)?;
        self.announce(Some(checkpoint));
        match publish(facts) {
            Ok(published) => {
                self.append_record(record, None)?;
                self.announce(None);
                Ok(published)
            }
            Err(error) => {
                self.announce(None);
                Err(error)
            }
        }
    }
}

/// Takes the records of these refs into the log, where it does not have them. Without damage they are added at its end; else the log
/// is written anew of all good records, and the damaged one is kept.
///
/// # Errors
/// `NoSpace`, `Io`; the log is then as it was.
pub fn rebuild(log: &mut TimelineLog, refs: &[Ref], syncs: &Syncs) -> Result<Rebuilt> {
    let last = log.timeline().last_number();
    let mut found: BTreeMap<u64, Record> = BTreeMap::new();
    for record in refs.iter().flat_map(records_of) {
        found.entry(record.n).or_insert(record);
    }
    let damaged = !log.damage().is_none();
    if !damaged {
        found.retain(|n, _| *n > last);
        let recovered = found.len() as u64;
        let missing = gaps(found.keys().copied(), last);
        for record in found.into_values() {
            log.append_record(record, None)?;
        }
        return Ok(Rebuilt { recovered, missing, kept: None });
    }
    let mut records = log.records()?;
    let known = records.len();
    for (n, record) in found {
        records.entry(n).or_insert(record);
    }
    let recovered = (records.len() - known) as u64;
    let missing = gaps(records.keys().copied(), 0);
    let kept = log.replace(records, syncs)?;
    Ok(Rebuilt { recovered, missing, kept })
}

/// The runs of numbers that are left out after `before`.
pub(super) fn gaps(numbers: impl Iterator<Item = u64>, before: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut last = before;
    for n in numbers {
        if n > last + 1 {
            gaps.push((last + 1, n - 1));
        }
        last = n;
    }
    gaps
}
