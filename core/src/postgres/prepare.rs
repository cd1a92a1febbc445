//! Making a copy of a cluster safe to start.

use std::path::{Path, PathBuf};

use super::Version;
use super::in_use::{list, pids_in};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// What tells a server that it is a standby, or that another server runs here: of the source, not of a copy.
const OF_THE_SOURCE: &[&str] = &["postmaster.pid", "postmaster.opts", "standby.signal", "recovery.signal"];

/// Makes a copy that was just made by us safe to start: postmaster.pid, postmaster.opts, standby.signal and recovery.signal
/// removed, the contents of pg_replslot emptied (unless `keep_replication`), tablespace_map removed where every tablespace
/// it names lies in the copy. Gives what was removed, relative to `data`.
///
/// # Errors
/// Before anything is changed: `Busy` where a server works in `data`; `PostgresMismatch` names pg_wal where it is a link, any
/// link that leaves `data` (tablespaces must lie in `pg_tblspc/<oid>` as real folders), and a tablespace of the map that the copy lacks.
pub fn prepare_copy(data: &Path, keep_replication: bool) -> Result<Vec<PathBuf>> {
    refuse_used(data)?;
    let root = std::fs::canonicalize(data).map_err(|source| Error::io("open", data, source))?;
    check_links(&root, &root, &|_| false)?;
    clean(data, keep_replication)
}

/// The same for a cluster that has run as ours, before every start: its slots stay, and so do the links that its own server
/// made, those of tablespaces outside `data` (nothing is changed there).
///
/// # Errors
/// `Busy` where a server works in `data`, and as [`check_restart`].
pub fn prepare_restart(data: &Path) -> Result<Vec<PathBuf>> {
    refuse_used(data)?;
    check_restart(data)?;
    clean(data, true)
}

/// Everything that [`prepare_restart`] refuses but a running server: asked before a server is stopped that is to run again.
///
/// # Errors
/// `PostgresMismatch` names a link that leaves `data` and is no tablespace, a tablespace that lies in the folder of another
/// branch or cluster, and a tablespace of the map that is not there.
pub fn check_restart(data: &Path) -> Result<()> {
    let root = std::fs::canonicalize(data).map_err(|source| Error::io("open", data, source))?;
    check_links(&root, &root, &|path| is_tablespace(&root, path))?;
    for (link, target) in outside_tablespaces(&root)? {
        let foreign = |folder: &&Path| {
            let marked = folder.join("branch.json").is_file() || folder.join("cluster.json").is_file();
            marked && !root.starts_with(folder)
        };
        if let Some(owner) = target.ancestors().find(foreign) {
            return Err(Error::new(
                ErrorKind::PostgresMismatch,
                format!("the tablespace {} lies in {}, the folder of another branch or cluster", link.display(), owner.display()),
            )
            .with("path", link.display())
            .with("target", target.display())
            .hint("two clusters never share a folder: restore a checkpoint of this branch, or fork one"));
        }
    }
    tablespaces_of_map(data).map(drop)
}

/// The tablespaces that lie outside `data`: link and folder, by oid. Such a folder need not be there.
///
/// # Errors
/// `Permission`, `Io`.
pub fn outside_tablespaces(data: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let root = std::fs::canonicalize(data).map_err(|source| Error::io("open", data, source))?;
    let folder = root.join("pg_tblspc");
    let mut outside = Vec::new();
    for name in fs::names(&folder)? {
        let link = folder.join(name);
        let Ok(target) = std::fs::read_link(&link) else { continue };
        let target = folder.join(target);
        let target = std::fs::canonicalize(&target).unwrap_or(target);
        if !target.starts_with(&root) {
            outside.push((link, target));
        }
    }
    outside.sort();
    Ok(outside)
}

fn is_tablespace(root: &Path, path: &Path) -> bool {
    let oid = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    oid && path.parent() == Some(&root.join("pg_tblspc"))
}

fn refuse_used(data: &Path) -> Result<()> {
    let pids = pids_in(data)?;
    if pids.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Busy, format!("{} is in use by process {}", data.display(), list(&pids)))
        .with("path", data.display())
        .with("pid", list(&pids))
        .hint("stop that server first"))
}

fn clean(data: &Path, keep_replication: bool) -> Result<Vec<PathBuf>> {
    let map = tablespaces_of_map(data)?;

    let mut removed = Vec::new();
    for name in OF_THE_SOURCE {
        remove(data, Path::new(name), &mut removed)?;
    }
    if map {
        // With it the server would make links to the places of the source.
        remove(data, Path::new("tablespace_map"), &mut removed)?;
    }
    if !keep_replication {
        for name in fs::names(&data.join("pg_replslot"))? {
            let slot = Path::new("pg_replslot").join(name);
            fs::remove_tree(&data.join(&slot))?;
            removed.push(slot);
        }
    }
    Ok(removed)
}

/// Checks, before its first start, that an online copy still has the backup_label with which it becomes consistent.
///
/// # Errors
/// `Corrupt` where the label is not there or names no WAL: the copy must not be started.
pub fn check_online_copy(data: &Path) -> Result<()> {
    let path = data.join("backup_label");
    let text = fs::read_optional(&path)?.unwrap_or_default();
    if text.starts_with(b"START WAL LOCATION: ") {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("{} is missing or damaged, and without it the copy would start with wrong data", path.display()),
    )
    .with("path", path.display())
    .hint("do not start this copy: delete it and make it again from its checkpoint"))
}

/// Settings without which a server of this version does not start a copy: real folders as tablespaces stop archive recovery
/// unless they are allowed. For the command line of every start.
///
/// # Errors
/// `Permission`, `Io`.
pub fn copy_settings(data: &Path, version: Version) -> Result<Vec<(String, String)>> {
    // Minor releases before these neither know the setting nor make the check.
    let knows = match version.major {
        13 => version.minor >= 8,
        14 => version.minor >= 5,
        major => major >= 15,
    };
    let tablespaces = !fs::names(&data.join("pg_tblspc"))?.is_empty();
    Ok((knows && tablespaces).then(|| ("allow_in_place_tablespaces".to_owned(), "on".to_owned())).into_iter().collect())
}

/// Refuses every link below `folder` that does not stay in `root` and is not `allowed`.
fn check_links(root: &Path, folder: &Path, allowed: &impl Fn(&Path) -> bool) -> Result<()> {
    let list = match std::fs::read_dir(folder) {
        // Of a running server: a database was dropped meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder != root => return Ok(()),
        list => list.map_err(|source| Error::io("list", folder, source))?,
    };
    for entry in list {
        let entry = entry.map_err(|source| Error::io("list", folder, source))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|source| Error::io("examine", &path, source))?;
        if kind.is_dir() {
            check_links(root, &path, allowed)?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).map_err(|source| Error::io("read link", &path, source))?;
            let inside = std::fs::canonicalize(&path).is_ok_and(|resolved| resolved.starts_with(root));
            if path == root.join("pg_wal") || !(inside || allowed(&path)) {
                return Err(Error::new(
                    ErrorKind::PostgresMismatch,
                    format!("{} is a link to {}, outside the copy", path.display(), target.display()),
                )
                .with("path", path.display())
                .with("target", target.display())
                .hint("a copy must hold all its files: make it again from its source or checkpoint"));
            }
        }
    }
    Ok(())
}

/// Whether there is a tablespace_map; every tablespace it names must be a real folder of the copy.
fn tablespaces_of_map(data: &Path) -> Result<bool> {
    let path = data.join("tablespace_map");
    let Some(bytes) = fs::read_optional(&path)? else { return Ok(false) };
    for oid in tablespace_oids(&bytes) {
        if !data.join("pg_tblspc").join(&oid).is_dir() {
            return Err(Error::new(
                ErrorKind::PostgresMismatch,
                format!("{} names tablespace {oid}, which the copy does not hold", path.display()),
            )
            .with("path", path.display())
            .hint("make the copy again from its source or checkpoint"));
        }
    }
    Ok(true)
}

/// Lines `oid path`; a line feed in a path is written as a backslash before it.
fn tablespace_oids(map: &[u8]) -> Vec<String> {
    let mut oids = Vec::new();
    let mut at_start = true;
    let mut bytes = map.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if at_start && byte.is_ascii_digit() {
            let mut oid = String::from(char::from(byte));
            while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
                oid.push(char::from(digit));
            }
            oids.push(oid);
        }
        at_start = byte == b'\n';
        if byte == b'\\' {
            // What it escapes does not end the line.
            bytes.next();
        }
    }
    oids
}

fn remove(data: &Path, name: &Path, removed: &mut Vec<PathBuf>) -> Result<()> {
    let path = data.join(name);
    if std::fs::symlink_metadata(&path).is_ok() {
        fs::remove_file(&path)?;
        removed.push(name.to_owned());
    }
    Ok(())
}
