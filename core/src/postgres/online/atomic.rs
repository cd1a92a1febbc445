//! Copying a running cluster by one snapshot of its file system: the state of a crash at that instant.

use std::path::Path;

use super::{Timer, read_contents, session};
use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::databases::{self, column};
use crate::postgres::stopped::snapshot;
use crate::postgres::{CopyReport, Server, Sql, mark_running};
use crate::progress::Control;
use crate::sys::fs;

/// Of an interrupted or running backup by hand: a copy of a crash must not begin where they say.
const OF_BACKUPS: &[&str] = &["backup_label", "tablespace_map"];

/// Copies the cluster of a running server into the new folder `target` by one snapshot. Its first start recovers as after a crash: it
/// holds what was committed and durable at that instant, so under `synchronous_commit = off` the last moments may be
/// missing. A checkpoint goes before, which keeps that recovery short. No client is cut.
///
/// # Errors
/// `Unsupported` by name: a server in recovery, `fsync` or `full_page_writes` off, a part of the cluster elsewhere, a data folder that is
/// no subvolume of btrfs; `Busy` where somebody keeps pg_tablespace locked; `Cancelled`, `Sql`, `Io`. Nothing is left then.
pub fn copy_atomic(server: &Server, target: &Path, control: &Control) -> Result<CopyReport> {
    control.check()?;
    let data = server.data();
    let mut timer = Timer::new();
    check(&mut databases::maintenance(server)?)?;
    // Before the instant: a write between the copy and its mark would be lost from every later comparison.
    let mark = mark_running(server, None)?;
    timer.part("mark");
    // From before the checkpoint to after the instant: a tablespace made between them would be made by the recovery, at its place outside.
    let mut lock = session::lock_tablespaces(server, control)?;
    let mut work = databases::maintenance(server)?;
    session::checkpoint(&mut work, &mut lock, control)?;
    timer.part("checkpoint");
    let rows = work.rows("SELECT database, gid FROM pg_prepared_xacts ORDER BY 1, 2")?;
    let prepared = rows.iter().map(|row| Ok(format!("{}.{}", column(row, 0)?, column(row, 1)?))).collect::<Result<Vec<String>>>()?;
    if !snapshot(data, target)? {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "no snapshot can be taken of {}: it is no subvolume of btrfs, or a part of the cluster lies outside it",
                data.display()
            ),
        )
        .with("path", data.display())
        .hint("use --mode online; on btrfs the clusters of new branches are subvolumes, and `forklift doctor` says what this place has"));
    }
    let mut after = || -> Result<_> {
        timer.part("files");
        lock.run("COMMIT")?;
        // Read after the instant: what is put back is never behind a row.
        let contents = read_contents(server)?;
        timer.part("sequences");
        for name in OF_BACKUPS {
            fs::remove_file(&target.join(name))?;
        }
        control.check()?;
        Ok(contents)
    };
    match after() {
        Ok((sequences, unlogged)) => {
            Ok(CopyReport { mode: "atomic".to_owned(), mark, sequences, unlogged, prepared, parts_ms: timer.parts })
        }
        Err(error) => Err(match clone::remove_tree(target) {
            Ok(()) => error,
            Err(left) => error.hint(format!("remove {} by hand: {left}", target.display())),
        }),
    }
}

fn check(sql: &mut Sql) -> Result<()> {
    if sql.value("SELECT pg_is_in_recovery()")? == "t" {
        return Err(Error::new(ErrorKind::Unsupported, "the server is in recovery (a standby) and cannot be copied while it runs")
            .hint("wait for recovery to end, or stop the server"));
    }
    for setting in ["fsync", "full_page_writes"] {
        if sql.value(&format!("SHOW {setting}"))? != "on" {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the server runs with {setting} = off, and a copy of its files at one instant may be broken"),
            )
            .hint("use --mode online"));
        }
    }
    Ok(())
}
