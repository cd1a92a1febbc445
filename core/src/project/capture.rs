//! Capturing files and database at one instant.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::checkpoints::is_id;
use super::lock::HolderKind;
use super::pairing::{Pair, PairRequest, millis};
use super::{Project, failpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::files::StatCache;
use crate::progress::Control;
use crate::report::Reads;
use crate::store::{Ref, RefKind};
use crate::sys::lock::{Lock, Mode};

const MAX_NAME: usize = 255;
const PUBLISH_PATIENCE: Duration = Duration::from_secs(60);

/// How to capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// `auto`, `online` or `stopped`.
    #[cfg(feature = "postgres")]
    pub mode: crate::branch::CaptureMode,
}

/// What was captured; the JSON shape of every surface.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CaptureReport {
    /// Checkpoint id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `files`, `unchanged`, `online`, `stopped`.
    pub mode: String,
    /// Milliseconds in which no client could reach the server.
    pub downtime_ms: u64,
    /// Milliseconds in all.
    pub total_ms: u64,
    /// Milliseconds by part.
    #[serde(serialize_with = "crate::report::parts")]
    pub parts_ms: Vec<(String, u64)>,
    /// Bytes read from files and cluster.
    pub bytes_read: u64,
    /// Bytes that the store did not have.
    pub bytes_new: u64,
    /// Bytes written to the store.
    pub bytes_stored: u64,
    /// fsyncs.
    pub fsyncs: u64,
    /// Files whose content was read, of the worktree and of the cluster.
    pub files_opened: u64,
    /// The same by half, with the reasons.
    pub reads: ReadsByHalf,
    /// What of the worktree is in it.
    pub coverage: crate::files::Coverage,
    /// Files moved during capture, unstable files, unlogged tables, prepared transactions.
    pub warnings: Vec<String>,
}

/// What was read of each half, over all attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReadsByHalf {
    /// Of the worktree.
    pub files: Reads,
    /// Of the cluster, where there is one.
    pub database: Option<Reads>,
}

impl ReadsByHalf {
    pub(super) fn bytes_read(&self) -> u64 {
        self.files.bytes_read + self.database.map_or(0, |reads| reads.bytes_read)
    }

    pub(super) fn files_opened(&self) -> u64 {
        self.files.files_opened + self.database.map_or(0, |reads| reads.files_opened)
    }
}

impl Project {
    /// Captures under `name`, which must be new in the project. The checkpoint is durable when this returns.
    ///
    /// # Errors
    /// `InvalidArgument` for the name, `AlreadyExists`, `Busy`, `RecoveryNeeded`, `Cancelled`, `NoSpace`, `ReadOnly`; no
    /// checkpoint exists then.
    pub fn capture(&self, name: &str, options: &CaptureOptions, control: &Control) -> Result<CaptureReport> {
        let start = Instant::now();
        check_name(name)?;
        self.check_root()?;
        let _holder = self.hold(HolderKind::Capture, &format!("capture {name}"), control)?;
        let (refs, _) = self.refs()?;
        check_new(name, &refs)?;
        let scope = self.scope()?;
        let database = self.database()?;
        let session = self.store.session(control)?;
        let mut cache = StatCache::load(&self.folder.stat_cache());
        let request = PairRequest {
            scope: &scope,
            database: database.as_ref(),
            mode: mode_of(options),
            previous: refs.iter().rev().find(|reference| reference.cluster.is_some()),
            check_moves: true,
        };
        let pair = request.take(&session, &mut cache, control)?;
        failpoint::pass(&self.environment, "capture-paired")?;
        self.check_root()?;
        control.check()?;
        let reference = self.reference(RefKind::Capture, crate::sys::id::sortable()?, Some(name), &pair, pair.facts())?;
        let publish = Lock::wait(&self.folder.publish_lock(), Mode::Exclusive, PUBLISH_PATIENCE, control)?;
        check_new(name, &self.refs()?.0)?;
        let stored = session.commit(&reference)?;
        drop(publish);
        let mut warnings = [self.notices(), &pair.warnings].concat();
        self.save_cache(&cache, &mut warnings);
        Ok(CaptureReport {
            id: reference.id,
            name: name.to_owned(),
            mode: pair.mode(),
            downtime_ms: pair.downtime_ms,
            total_ms: millis(start),
            parts_ms: crate::report::add_up(pair.parts_ms),
            bytes_read: pair.bytes_read,
            bytes_new: stored.bytes_new,
            bytes_stored: stored.bytes_stored,
            fsyncs: stored.fsyncs,
            files_opened: pair.files_opened,
            reads: pair.reads,
            coverage: pair.files.coverage,
            warnings,
        })
    }

    /// The ref of a pair.
    pub(super) fn reference(&self, kind: RefKind, id: String, name: Option<&str>, pair: &Pair, facts: serde_json::Value) -> Result<Ref> {
        Ok(Ref {
            id,
            name: name.map(str::to_owned),
            created_ms: crate::sys::id::now_ms(),
            kind,
            project: Some(self.record.id.clone()),
            branch: self.record.branch.clone(),
            session: None,
            turn: None,
            tool: None,
            files: Some(pair.files.half.clone()),
            cluster: pair.cluster.as_ref().map(|cluster| cluster.half.clone()),
            facts,
            boot_id: crate::sys::process::boot_id()?,
        })
    }
}

#[cfg(feature = "postgres")]
fn mode_of(options: &CaptureOptions) -> super::database::CaptureMode {
    options.mode
}

#[cfg(not(feature = "postgres"))]
fn mode_of(_: &CaptureOptions) -> super::database::CaptureMode {
    super::database::CaptureMode
}

fn check_name(name: &str) -> Result<()> {
    let wrong = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 255 bytes"
    } else if name.contains('/') {
        "has a `/`"
    } else if name.chars().any(char::is_control) {
        "has a control character"
    } else if name.starts_with('-') {
        "starts with `-`"
    } else if name.trim() != name {
        "starts or ends with white space"
    } else if is_id(name) {
        "looks like the id of a checkpoint"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, format!("the checkpoint name {name:?} {wrong}"))
        .hint("use up to 255 bytes without `/` and control characters, such as before-migration"))
}

fn check_new(name: &str, refs: &[Ref]) -> Result<()> {
    match refs.iter().find(|reference| reference.name.as_deref() == Some(name)) {
        None => Ok(()),
        Some(reference) => Err(Error::new(ErrorKind::AlreadyExists, format!("a checkpoint is called {name} already: {}", reference.id))
            .with("checkpoint", &reference.id)
            .hint("use another name, or forget that one with `forklift project forget`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_told_apart_or_shown_are_refused() {
        for name in ["", "a/b", "a\nb", "\u{7f}", "-x", " x", "x ", "01jdq2w5v8zt9yk3m4n6p7r8s0", &"x".repeat(256)] {
            assert_eq!(check_name(name).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name:?}");
        }
        for name in ["a", "before migration", "日本", "..", &"x".repeat(255)] {
            check_name(name).unwrap();
        }
    }
}
