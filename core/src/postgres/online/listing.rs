//! Which files of a running data folder belong to a copy: those that pg_basebackup takes.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::postgres::ControlFile;
use crate::postgres::layout::{Layout, walk};
use crate::sys::fs;

/// Lists the data folder of a running server, but for pg_control and WAL. What vanishes meanwhile was dropped, and what
/// comes is in the WAL.
///
/// Left out beside what no copy takes: slots, WAL summaries, the rows of unlogged tables (their init forks come), and in a
/// tablespace what another major version has there.
pub(super) fn list(data: &Path) -> Result<Layout> {
    let mut layout = walk(data, true)?;
    check_tablespaces(data, &layout)?;
    let version = tablespace_version(data)?;
    let unlogged: HashSet<(PathBuf, String)> = layout
        .files
        .iter()
        .filter_map(|file| {
            let name = file.path.file_name()?.to_str()?.strip_suffix("_init")?;
            Some((file.path.parent()?.to_owned(), name.to_owned()))
        })
        .collect();
    layout.folders.retain(|(path, _)| !is_foreign(path, &version));
    layout.files.retain(|file| !is_foreign(&file.path, &version) && !is_unlogged(&file.path, &unlogged));
    Ok(layout)
}

/// The mode that the server gives its files: readable by the group where the data folder is.
pub(super) fn file_mode(data: &Path) -> Result<u32> {
    let metadata = data.metadata().map_err(|source| Error::io("examine", data, source))?;
    Ok(if metadata.mode() & 0o050 == 0 { 0o600 } else { 0o640 })
}

/// No tablespace comes or goes while the copy holds its lock: one that was not followed is lost.
fn check_tablespaces(data: &Path, layout: &Layout) -> Result<()> {
    let listed: HashSet<&Path> = layout.folders.iter().map(|(path, _)| path.as_path()).collect();
    for name in fs::names(&data.join("pg_tblspc"))? {
        let path = Path::new("pg_tblspc").join(name);
        if !listed.contains(path.as_path()) {
            let path = data.join(path);
            return Err(Error::new(ErrorKind::NotFound, format!("the folder of tablespace {} does not exist", path.display()))
                .with("path", path.display())
                .hint("bring back the folder that this link names, or drop the tablespace, and try again"));
        }
    }
    Ok(())
}

/// Name of the folder that this major version makes in each tablespace.
fn tablespace_version(data: &Path) -> Result<String> {
    let major = fs::read(&data.join("PG_VERSION"))?;
    Ok(format!("PG_{}_{}", String::from_utf8_lossy(&major).trim(), ControlFile::read(data)?.catalog_version))
}

fn is_foreign(path: &Path, tablespace_version: &str) -> bool {
    let mut parts = path.iter().map(|part| part.to_str().unwrap_or_default());
    match (parts.next(), parts.next(), parts.next()) {
        (Some("pg_replslot"), Some(_), _) | (Some("pg_wal"), Some("summaries"), Some(_)) => true,
        (Some("pg_tblspc"), Some(_), Some(version)) => version != tablespace_version,
        _ => false,
    }
}

/// Whether it is a fork, other than the init fork, of a relation that has one.
fn is_unlogged(path: &Path, unlogged: &HashSet<(PathBuf, String)>) -> bool {
    let Some((folder, name)) = path.parent().zip(path.file_name().and_then(|name| name.to_str())) else { return false };
    let stem = name.split('.').next().unwrap_or(name);
    let number = stem.split('_').next().unwrap_or(stem);
    !stem.ends_with("_init") && unlogged.contains(&(folder.to_owned(), number.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_unlogged_relation_only_the_init_fork_is_taken() {
        let unlogged = HashSet::from([(PathBuf::from("base/5"), "16384".to_owned())]);
        for name in ["16384", "16384.1", "16384_fsm", "16384_vm"] {
            assert!(is_unlogged(&Path::new("base/5").join(name), &unlogged), "{name}");
        }
        for path in ["base/5/16384_init", "base/5/16385", "base/6/16384", "base/5/163840", "base/5/PG_VERSION"] {
            assert!(!is_unlogged(Path::new(path), &unlogged), "{path}");
        }
    }

    #[test]
    fn slots_summaries_and_other_versions_are_foreign() {
        let version = "PG_15_202209061";
        for path in ["pg_replslot/s", "pg_replslot/s/state", "pg_wal/summaries/0000", "pg_tblspc/16400/PG_14_202107181/5/1"] {
            assert!(is_foreign(Path::new(path), version), "{path}");
        }
        for path in ["pg_replslot", "pg_wal/summaries", "pg_tblspc", "pg_tblspc/16400", "pg_tblspc/16400/PG_15_202209061/5/1", "base/5/1"] {
            assert!(!is_foreign(Path::new(path), version), "{path}");
        }
    }
}
