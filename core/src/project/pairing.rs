//! Files and database at one instant, in one store session.

use std::time::Instant;

use super::Project;
use super::capture::ReadsByHalf;
use super::database::{CaptureMode, ClusterCapture, Database, warnings_of_capture};
use crate::error::Result;
use crate::files::{self, Captured, Scope, StatCache};
use crate::progress::Control;
use crate::store::{Ref, Session};

/// How often a pair is taken anew because files moved.
const ATTEMPTS: u32 = 3;

/// What a pair says whose halves are not of one instant.
const MOVED: &str = "files moved during capture";

/// Both halves.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) files: Captured,
    pub(super) cluster: Option<ClusterCapture>,
    pub(super) warnings: Vec<String>,
    pub(super) parts_ms: Vec<(String, u64)>,
    /// Over all attempts.
    pub(super) bytes_read: u64,
    pub(super) downtime_ms: u64,
    pub(super) files_opened: u64,
    pub(super) reads: ReadsByHalf,
}

/// How to take it.
pub(super) struct PairRequest<'a> {
    pub(super) scope: &'a Scope,
    pub(super) database: Option<&'a Database>,
    pub(super) mode: CaptureMode,
    pub(super) previous: Option<&'a Ref>,
    /// The pair is of one instant only if no file moved between its capture and the database's. Not for a stopped server,
    /// whose instant is all the time it is stopped.
    pub(super) check_moves: bool,
}

impl PairRequest<'_> {
    /// Takes the files, then the database, and both again while files moved meanwhile.
    pub(super) fn take(&self, session: &Session, cache: &mut StatCache, control: &Control) -> Result<Pair> {
        let (mut downtime_ms, mut reads) = (0, ReadsByHalf::default());
        let mut attempt = 1;
        loop {
            control.check()?;
            let start = Instant::now();
            let files = files::capture(self.scope, session, cache, control)?;
            let files_ms = millis(start);
            let cluster = self.database.map(|database| database.capture(session, self.mode, self.previous, control)).transpose()?;
            reads.files.add(&files.reads);
            if let Some(cluster) = &cluster {
                reads.database.get_or_insert_default().add(&cluster.reads);
            }
            downtime_ms += cluster.as_ref().map_or(0, |cluster| cluster.downtime_ms);
            let moved = self.check_moves && cluster.is_some() && files::moved_since(self.scope, &files, control)?;
            if moved && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            let mut warnings = warnings(&files, cluster.as_ref());
            if moved {
                warnings.push(MOVED.to_owned());
            }
            let mut parts_ms = vec![("files".to_owned(), files_ms)];
            parts_ms.extend(cluster.iter().flat_map(|cluster| cluster.parts_ms.clone()));
            let (bytes_read, files_opened) = (reads.bytes_read(), reads.files_opened());
            return Ok(Pair { files, cluster, warnings, parts_ms, bytes_read, downtime_ms, files_opened, reads });
        }
    }
}

impl Pair {
    /// How it was taken, for the ref and the report.
    pub(super) fn mode(&self) -> String {
        self.cluster.as_ref().map_or_else(|| "files".to_owned(), |cluster| cluster.mode.clone())
    }

    /// Whether its halves are not of one instant.
    pub(super) fn moved(&self) -> bool {
        self.warnings.iter().any(|warning| warning == MOVED)
    }

    /// What is kept with the pair.
    pub(super) fn facts(&self) -> serde_json::Value {
        serde_json::json!({
            "mode": self.mode(),
            "coverage": self.files.coverage,
            "downtime_ms": self.downtime_ms,
            "warnings": self.warnings,
        })
    }
}

impl Project {
    /// Keeps the stat cache; it is only a cache, so a failure is a warning.
    pub(super) fn save_cache(&self, cache: &StatCache, warnings: &mut Vec<String>) {
        if let Err(error) = cache.save(&self.folder.stat_cache()) {
            warnings.push(format!("the stat cache was not kept, the next capture reads every file: {error}"));
        }
    }
}

/// Milliseconds since `start`.
pub(super) fn millis(start: Instant) -> u64 {
    millis_between(start, Instant::now())
}

/// Milliseconds from `start` to `end`.
pub(super) fn millis_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}

fn warnings(files: &Captured, cluster: Option<&ClusterCapture>) -> Vec<String> {
    let mut warnings = Vec::new();
    if !files.unstable.is_empty() {
        let names: Vec<_> = files.unstable.iter().map(|path| path.display().to_string()).collect();
        warnings.push(format!("files that changed while they were read: {}", names.join(", ")));
    }
    warnings.extend(cluster.map(warnings_of_capture).unwrap_or_default());
    warnings
}
