//! Our two sessions of an online copy. Whatever ends them (an error, a cancel, the death of this process) ends the backup,
//! drops the slot and gives the lock back.

use std::time::Duration;

use super::wal::{self, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::databases::{self, column};
use crate::postgres::{Server, Sql};
use crate::progress::Control;
use crate::sys::id;

/// A backup that was started and not yet stopped.
pub(super) struct Backup {
    /// Where it starts: the first WAL that the copy needs.
    pub(super) start: Position,
    /// Started the backup and owns the slot.
    work: Sql,
    /// Holds the lock on pg_tablespace, in an open transaction.
    lock: Sql,
    /// Name of the slot, where there is one.
    slot: Option<String>,
    version: u32,
}

/// What the stop gave.
pub(super) struct Stopped {
    /// End of the backup.
    pub(super) lsn: u64,
    /// backup_label, byte for byte.
    pub(super) label: String,
    /// tablespace_map, byte for byte; empty where there are none.
    pub(super) tablespace_map: String,
}

/// Refuses by name what cannot be copied while it runs.
pub(super) fn check(sql: &mut Sql) -> Result<()> {
    if sql.value("SELECT pg_is_in_recovery()")? == "t" {
        return Err(Error::new(ErrorKind::Unsupported, "the server is in recovery (a standby) and cannot be copied while it runs")
            .hint("wait for recovery to end, or stop the server and copy it with --mode stopped"));
    }
    if sql.value("SHOW wal_level")? == "minimal" {
        return Err(Error::new(ErrorKind::Unsupported, "the server runs with wal_level = minimal and cannot be copied while it runs")
            .hint("use --mode stopped, or set wal_level = replica and restart the server"));
    }
    Ok(())
}

impl Backup {
    /// Takes the lock, reserves WAL, starts the backup with an immediate checkpoint.
    pub(super) fn start(server: &Server, control: &Control) -> Result<Self> {
        let mut lock = lock_tablespaces(server, control)?;
        let mut work = databases::maintenance(server)?;
        let version = work.server_version()?;
        // Before the start, which by itself holds no WAL.
        let slot = make_slot(&mut work)?;
        let start = start_backup(&mut work, &mut lock, version, control)?;
        Ok(Self { start, work, lock, slot, version })
    }

    /// Whether a slot keeps the WAL from the start on.
    pub(super) fn holds_wal(&self) -> bool {
        self.slot.is_some()
    }

    /// Prepared transactions, as `database.gid`.
    pub(super) fn prepared(&mut self) -> Result<Vec<String>> {
        let rows = self.work.rows("SELECT database, gid FROM pg_prepared_xacts ORDER BY 1, 2").map_err(ended)?;
        rows.iter().map(|row| Ok(format!("{}.{}", column(row, 0)?, column(row, 1)?))).collect()
    }

    /// Stops the backup without waiting for the archiver, and gives the lock back. WAL stays held.
    pub(super) fn stop(&mut self) -> Result<Stopped> {
        let call = if self.version >= 150_000 { "pg_backup_stop(wait_for_archive => false)" } else { "pg_stop_backup(false, false)" };
        let rows = self.work.rows(&format!("SELECT lsn, labelfile, coalesce(spcmapfile, '') FROM {call}")).map_err(ended)?;
        let row = rows.first().map(Vec::as_slice).unwrap_or_default();
        let lsn = wal::parse_lsn(column(row, 0)?)?;
        let stopped = Stopped { lsn, label: column(row, 1)?.to_owned(), tablespace_map: column(row, 2)?.to_owned() };
        self.lock.run("COMMIT")?;
        Ok(stopped)
    }

    /// Drops the slot, which the end of the session would do a moment later, and ends both sessions.
    pub(super) fn release(mut self) {
        if let Some(name) = &self.slot {
            self.work.run(&format!("SELECT pg_drop_replication_slot({})", Sql::literal(name))).ok();
        }
    }
}

/// What fails in the session of the backup after its start, most likely since somebody ended it.
fn ended(error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Sql | ErrorKind::Io) {
        return error;
    }
    Error::new(ErrorKind::Capture, format!("the backup was broken off by the server: {}", error.message()))
        .hint("do not end the sessions of forklift, and try again")
        .because(error)
}

/// A tablespace made while the copy runs would tie the copy to the folder of the source. No reader of pg_tablespace waits.
pub(super) fn lock_tablespaces(server: &Server, control: &Control) -> Result<Sql> {
    let mut lock = databases::maintenance(server)?;
    lock.run("SET lock_timeout = '1s'")?;
    for attempt in 1.. {
        control.check()?;
        let locked = lock.run("BEGIN").and_then(|()| lock.run("LOCK TABLE pg_catalog.pg_tablespace IN SHARE ROW EXCLUSIVE MODE"));
        match locked {
            Ok(()) => break,
            // `lock_not_available`, and a deadlock that ended our wait.
            Err(error) if !["55P03", "40P01"].iter().any(|code| error.sqlstate() == Some(code)) => return Err(error),
            Err(_) if attempt < 5 => lock.run("ROLLBACK")?,
            Err(error) => {
                return Err(Error::new(ErrorKind::Busy, "another session keeps pg_tablespace locked, which an online copy has to lock")
                    .hint("let CREATE, ALTER or DROP TABLESPACE end and try again, or use --mode stopped")
                    .because(error));
            }
        }
    }
    Ok(lock)
}

/// A slot that holds WAL from now on and ends with the session, or with its next failed statement. `None` where the server has
/// no free one, and where a limit on what slots may hold would end the session.
fn make_slot(work: &mut Sql) -> Result<Option<String>> {
    if work.value("SHOW max_slot_wal_keep_size")? != "-1" {
        return Ok(None);
    }
    let name = format!("forklift_{}", id::sortable()?);
    match work.run(&format!("SELECT pg_create_physical_replication_slot({}, true, true)", Sql::literal(&name))) {
        Ok(()) => Ok(Some(name)),
        Err(error) if error.kind() == ErrorKind::Sql => Ok(None),
        Err(error) => Err(error),
    }
}

/// The checkpoint can take long: it is waited for beside the cancel token, and cancelled through the other session.
fn start_backup(work: &mut Sql, lock: &mut Sql, version: u32, control: &Control) -> Result<Position> {
    let pid = work.value("SELECT pg_backend_pid()")?;
    let call = if version >= 150_000 { "pg_backup_start('forklift', true)" } else { "pg_start_backup('forklift', true, false)" };
    let query =
        format!("SELECT lsn, pg_walfile_name(lsn), (SELECT setting FROM pg_settings WHERE name = 'wal_segment_size') FROM {call} AS lsn");
    let rows = rows_beside(work, lock, &pid, &query, control)?;
    let row = rows.first().map(Vec::as_slice).unwrap_or_default();
    Position::new(wal::parse_lsn(column(row, 0)?)?, column(row, 1)?, databases::number(row, 2)?)
}

/// Runs a checkpoint, which can take long.
pub(super) fn checkpoint(work: &mut Sql, lock: &mut Sql, control: &Control) -> Result<()> {
    let pid = work.value("SELECT pg_backend_pid()")?;
    rows_beside(work, lock, &pid, "CHECKPOINT", control).map(drop)
}

/// A statement of `work`, whose backend is `pid`, waited for beside the cancel token and cancelled through the session `lock`.
fn rows_beside(work: &mut Sql, lock: &mut Sql, pid: &str, query: &str, control: &Control) -> Result<Vec<Vec<Option<String>>>> {
    let rows = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| work.rows(query));
        let mut cancelled = false;
        while !waiting.is_finished() {
            if !cancelled && control.check().is_err() {
                cancelled = true;
                // Where this fails the statement is simply waited for.
                lock.run(&format!("SELECT pg_cancel_backend({pid})")).ok();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        waiting.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the thread that waited for a statement panicked")))
    });
    control.check()?;
    rows
}
