//! Copying a running cluster without stopping it.
//!
//! Read in this order: this file (the steps), `session` (what our two sessions hold), `listing` (which files), `wal` and
//! `spool` (the WAL that makes the copy whole), `atomic` (by one snapshot instead).

mod atomic;
mod listing;
mod session;
mod spool;
mod wal;

pub use atomic::copy_atomic;

use std::path::Path;
use std::time::Instant;

use super::sequences::{Scope, read_database};
use super::{ControlFile, CopyReport, Server, Sink, Sql, databases, file_system_clock, mark_running};
use crate::error::Result;
use crate::progress::Control;
use session::Backup;
use spool::Spool;

/// Copies the cluster of a running server through the backup API: no client is cut, nothing is written to the source but the
/// backup's own records. On any failure, cancel or death of this process the source is not left in backup mode.
///
/// The copy is the state at the end of the WAL segment in which the backup stopped. Its tablespaces are real folders in
/// `pg_tblspc`, so its tablespace_map has to be removed before the first start (a server refuses to start with both).
/// pg_control is received last: a copy without it does not start. While it runs CREATE and DROP TABLESPACE wait; a session of ours stays
/// in the database `postgres`.
///
/// # Errors
/// `Unsupported` for `wal_level = minimal` and for a server in recovery; `Busy` where somebody keeps pg_tablespace locked;
/// `Capture` where WAL that the copy needs is gone; `Cancelled`; `Sql`, `Io` and what the sink gives. What the sink has
/// received until then is useless.
pub fn copy_online(server: &Server, sink: &mut dyn Sink, control: &Control) -> Result<CopyReport> {
    control.check()?;
    let data = server.data();
    let mut timer = Timer::new();
    session::check(&mut databases::maintenance(server)?)?;

    // Before the checkpoint of the backup's start: it is the barrier behind which a stat tells whether a file changed.
    sink.begin(file_system_clock(data)?);
    // Before the start too: a write between the copy and its mark would be lost from every later comparison.
    let mark = mark_running(server, None)?;
    timer.part("mark");

    let mut backup = Backup::start(server, control)?;
    timer.part("checkpoint");
    let spool = if backup.holds_wal() { None } else { Some(Spool::start(data, &backup.start)?) };

    let listing = listing::list(data)?;
    for (path, mode) in &listing.folders {
        sink.folder(path, *mode)?;
    }
    sink.files(&listing.files, control)?;
    control.check()?;
    let (_, pg_control) = ControlFile::read_with_bytes(data)?;
    timer.part("files");

    let prepared = backup.prepared()?;
    let stopped = backup.stop()?;
    timer.part("stop");
    // As soon after the instant as can be: what nobody moved in between is put back exactly.
    let (sequences, unlogged) = read_contents(server)?;
    timer.part("sequences");

    control.check()?;
    let segments = backup.start.until(stopped.lsn)?;
    match spool {
        None => wal::copy(data, &segments, sink, control)?,
        Some(spool) => spool.finish(&segments, sink, control)?,
    }
    wal::copy_histories(data, sink, control)?;
    backup.release();
    timer.part("wal");

    let mode = listing::file_mode(data)?;
    sink.bytes(Path::new("backup_label"), mode, stopped.label.as_bytes())?;
    if !stopped.tablespace_map.is_empty() {
        sink.bytes(Path::new("tablespace_map"), mode, stopped.tablespace_map.as_bytes())?;
    }
    sink.bytes(Path::new("global/pg_control"), mode, &pg_control)?;
    Ok(CopyReport { mode: "online".to_owned(), mark, sequences, unlogged, prepared, parts_ms: timer.parts })
}

/// Sequences, and the names of unlogged tables.
fn read_contents(server: &Server) -> Result<(Vec<super::SequenceState>, Vec<String>)> {
    let names = databases::connectable(&mut databases::maintenance(server)?)?;
    let (mut sequences, mut unlogged) = (Vec::new(), Vec::new());
    databases::visit(server, &names, |database, sql| {
        sequences.extend(read_database(sql, database, &Scope::All)?.readings.into_iter().map(|reading| reading.state));
        unlogged.extend(unlogged_tables(sql, database)?);
        Ok(())
    })?;
    Ok((sequences, unlogged))
}

fn unlogged_tables(sql: &mut Sql, database: &str) -> Result<Vec<String>> {
    let rows = sql.rows(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relpersistence = 'u' AND c.relkind IN ('r', 'm') ORDER BY 1, 2",
    )?;
    rows.iter().map(|row| Ok(format!("{database}.{}.{}", databases::column(row, 0)?, databases::column(row, 1)?))).collect()
}

/// How long each part took.
struct Timer {
    last: Instant,
    parts: Vec<(String, u64)>,
}

impl Timer {
    fn new() -> Self {
        Self { last: Instant::now(), parts: Vec::new() }
    }

    fn part(&mut self, name: &str) {
        let now = Instant::now();
        self.parts.push((name.to_owned(), u64::try_from((now - self.last).as_millis()).unwrap_or(u64::MAX)));
        self.last = now;
    }
}
