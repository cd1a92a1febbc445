//! Copying a cleanly stopped cluster.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::in_use::{list, pids_in};
use super::layout::walk;
use super::prepared::prepared_transactions;
use super::wal::needed_segments;
use super::{ControlFile, CopyReport, Sink, SourceFile, mark_stopped};
use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs;

/// Copies a cluster that pg_control calls shut down and in which no server process works: all files but temporary ones, of
/// WAL only what it needs, tablespaces as real folders below `pg_tblspc/<oid>`, pg_control last. Rows of unlogged tables and
/// replication slots are kept. Nothing is written to `data`.
///
/// # Errors
/// `Capture` where it is not stopped, was started meanwhile, or holds an interrupted backup; `Corrupt` where WAL is missing; `Cancelled`, and what the sink gives.
pub fn copy_stopped(data: &Path, sink: &mut dyn Sink, control: &Control) -> Result<CopyReport> {
    let (facts, bytes) = check_stopped(data)?;
    let mark = mark_stopped(data)?;
    let prepared = prepared_transactions(data, facts.catalog_version)?;

    let start = Instant::now();
    let layout = walk(data, false)?;
    for (path, mode) in &layout.folders {
        sink.folder(path, *mode)?;
    }
    sink.files(&layout.files, control)?;
    let files_ms = elapsed_ms(start);

    let start = Instant::now();
    sink.files(&wal_files(data, &facts)?, control)?;
    let wal_ms = elapsed_ms(start);

    control.check()?;
    let (_, bytes_now) = check_stopped(data)?;
    if bytes_now != bytes {
        return Err(not_stopped(data, "was started and stopped while it was copied"));
    }
    let path = data.join("global/pg_control");
    let mode = std::fs::metadata(&path).map_err(|source| Error::io("examine", &path, source))?.permissions().mode();
    sink.bytes(Path::new("global/pg_control"), mode & 0o7777, &bytes)?;
    Ok(CopyReport {
        mode: "stopped".to_owned(),
        mark,
        sequences: Vec::new(),
        unlogged: Vec::new(),
        prepared,
        parts_ms: vec![("files".to_owned(), files_ms), ("wal".to_owned(), wal_ms)],
    })
}

/// The same by one snapshot into the new folder `target`: what the copy leaves out is in it, and no server minds it. `None` where
/// that is not possible: `data` is no subvolume, or a part of the cluster lies elsewhere.
///
/// # Errors
/// As [`copy_stopped`]; nothing is left then.
pub fn snapshot_stopped(data: &Path, target: &Path, control: &Control) -> Result<Option<CopyReport>> {
    let (facts, bytes) = check_stopped(data)?;
    let mark = mark_stopped(data)?;
    let prepared = prepared_transactions(data, facts.catalog_version)?;
    control.check()?;
    let start = Instant::now();
    if !snapshot(data, target)? {
        return Ok(None);
    }
    let files_ms = elapsed_ms(start);
    let unchanged = check_stopped(data).and_then(|(_, bytes_now)| {
        if bytes_now == bytes { control.check() } else { Err(not_stopped(data, "was started and stopped while it was copied")) }
    });
    if let Err(error) = unchanged {
        return Err(match clone::remove_tree(target) {
            Ok(()) => error,
            Err(left) => error.hint(format!("remove {} by hand: {left}", target.display())),
        });
    }
    let parts_ms = vec![("files".to_owned(), files_ms)];
    Ok(Some(CopyReport { mode: "stopped".to_owned(), mark, sequences: Vec::new(), unlogged: Vec::new(), prepared, parts_ms }))
}

/// Takes a whole data folder; `false` where that is not possible.
pub(super) fn snapshot(data: &Path, target: &Path) -> Result<bool> {
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let tablespaces = data.join("pg_tblspc");
    let outside = fs::names(&tablespaces)?.iter().any(|name| is_link(&tablespaces.join(name)));
    if outside || is_link(&data.join("pg_wal")) {
        return Ok(false);
    }
    let backend = clone::choose_for_tree(data, target.parent().unwrap_or(target))?;
    if backend.is_atomic() { backend.clone_whole(data, target) } else { Ok(false) }
}

fn check_stopped(data: &Path) -> Result<(ControlFile, Vec<u8>)> {
    let (control, bytes) = ControlFile::read_with_bytes(data)?;
    if !control.state.is_stopped() {
        return Err(not_stopped(data, &format!("is not cleanly stopped: pg_control says `{}`", control.state.text())));
    }
    let pids = pids_in(data)?;
    if !pids.is_empty() {
        return Err(not_stopped(data, &format!("is in use by process {}", list(&pids))));
    }
    if data.join("backup_label").exists() {
        return Err(not_stopped(data, "holds a backup_label: a backup was interrupted, or was never started"));
    }
    Ok((control, bytes))
}

fn not_stopped(data: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Capture, format!("the cluster in {} {why}", data.display()))
        .with("path", data.display())
        .hint("start it and stop it cleanly (fast, not immediate), then try again")
}

/// The segments it needs and what says about them that they wait for the archive.
fn wal_files(data: &Path, control: &ControlFile) -> Result<Vec<SourceFile>> {
    let folder = PathBuf::from("pg_wal");
    let needed = needed_segments(data, control)?;
    let status = folder.join("archive_status");
    let flags = match fs::names(&data.join(&status)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let flags = flags.into_iter().filter_map(|flag| flag.into_string().ok()).filter(|flag| {
        let of = flag.rsplit_once('.').map(|(of, _)| of);
        of.is_some_and(|of| needed.iter().any(|name| name == of))
    });
    let flags: Vec<PathBuf> = flags.map(|flag| status.join(flag)).collect();
    let paths = needed.into_iter().map(|name| folder.join(name)).chain(flags);
    Ok(paths.map(|path| SourceFile { source: data.join(&path), cutting: super::cutting(&path), path, live: false }).collect())
}

fn elapsed_ms(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
