//! What was acknowledged, and whether a store still has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use forklift::store::{Store, VerifyLevel, VerifyOptions};
use forklift::{Control, ErrorKind};

use crate::children::Ended;
use crate::operations;
use crate::tally::Failure;

/// Refs whose capture was acknowledged, and those whose removal was. What is in neither may be there or not, but whole.
#[derive(Debug, Default, Clone)]
pub struct Model {
    pub present: BTreeSet<String>,
    absent: BTreeSet<String>,
}

/// Which failures of workers are right.
#[derive(Debug, Clone, Copy)]
pub enum Right<'a> {
    /// None but those of other workers in the way.
    None,
    /// Those from this moment on, when the disk went away.
    Since(Instant),
    /// Those of these kinds.
    Kinds(&'a [ErrorKind]),
}

impl Model {
    /// Takes in what workers said; fails where one of them failed without a right to, or saw what must not be.
    pub fn learn(&mut self, ended: &[Ended], right: Right<'_>) -> Result<BTreeMap<String, u64>, Failure> {
        let (mut captured, mut begun, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = BTreeMap::new();
        let mut wrong = None;
        for worker in ended {
            if worker.status.code() == Some(101) {
                wrong.get_or_insert(Failure::new(format!("a worker panicked: {}", worker.errors)));
            }
            for line in &worker.lines {
                let mut words = line.text.splitn(4, ' ');
                let (verb, operation, id) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
                let rest = words.next().unwrap_or_default();
                match (verb, operation) {
                    (Some("BEGIN"), "remove") => begun.push(id),
                    (Some("ACK"), "remove") => removed.push(id),
                    (Some("ACK"), "capture" | "large" | "cluster") => captured.push(id),
                    (Some("FAIL"), _) => {
                        let kind = ErrorKind::ALL.iter().find(|kind| rest.split(' ').next() == Some(kind.name()));
                        let others = matches!(kind, Some(ErrorKind::Busy | ErrorKind::NotFound)) && operation != "open";
                        let allowed = match right {
                            Right::None => false,
                            Right::Since(at) => line.at >= at,
                            Right::Kinds(kinds) => kind.is_some_and(|kind| kinds.contains(kind)),
                        };
                        // What ended with `internal` has seen what must not be, unless the disk was away by then.
                        if !others && !allowed {
                            wrong.get_or_insert(Failure::new(format!("a worker failed: {}\n{}", line.text, worker.errors)));
                        }
                    }
                    _ => {}
                }
                if verb == Some("ACK") {
                    *done.entry(operation.to_owned()).or_insert(0) += 1;
                }
            }
        }
        self.present.extend(captured);
        for id in begun {
            self.present.remove(&id);
        }
        self.absent.extend(removed);
        wrong.map_or(Ok(done), Err)
    }

    /// Every acknowledged ref is there, no removed one, and all are whole, at full level and by their bytes. From now on what
    /// is there is what is expected.
    pub fn check(&mut self, path: &Path) -> Result<(), Failure> {
        let store = match Store::open(path) {
            // It may have been cut in the making.
            Err(error) if error.kind() == ErrorKind::NotFound && self.present.is_empty() => return Ok(()),
            Err(error) => return Err(Failure::lost(self.present.len(), format!("the store does not open: {error}"))),
            Ok(store) => store,
        };
        let (refs, bad) = store.refs().map_err(|error| Failure::new(format!("the refs cannot be listed: {error}")))?;
        if !bad.is_empty() {
            return Err(Failure::new(format!("refs that cannot be read: {bad:?}")));
        }
        let found: BTreeSet<String> = refs.into_iter().map(|found| found.id).collect();
        let lost: Vec<&String> = self.present.difference(&found).collect();
        if !lost.is_empty() {
            return Err(Failure::lost(lost.len(), format!("acknowledged refs are gone: {lost:?}")));
        }
        let back: Vec<&String> = self.absent.intersection(&found).collect();
        if !back.is_empty() {
            return Err(Failure::new(format!("refs that were removed came back: {back:?}")));
        }
        // Clusters are big: their bytes are for verify, and for the server that is started on them.
        for id in found.iter().filter(|id| !id.ends_with("-cluster")) {
            if let Err(error) = operations::check_ref(&store, id) {
                let lost = usize::from(self.present.contains(id));
                return Err(Failure::lost(lost, format!("checkpoint {id} (acknowledged: {}) does not restore: {error}", lost == 1)));
            }
        }
        let options = VerifyOptions { level: VerifyLevel::Full, ..VerifyOptions::default() };
        let report = store.verify(&options, &Control::silent()).map_err(|error| Failure::new(format!("verify fails: {error}")))?;
        if !report.is_whole() {
            return Err(Failure::new(format!("verify finds {:?} and losses {:?}", report.findings, report.losses)));
        }
        self.present = found;
        Ok(())
    }

    /// Removes a ref that has done its service.
    pub fn forget(&mut self, store: &Store, id: &str) -> Result<(), Failure> {
        self.present.remove(id);
        store.remove_ref(id).map_err(|error| Failure::new(format!("{id} cannot be removed: {error}")))?;
        self.absent.insert(id.to_owned());
        Ok(())
    }
}
