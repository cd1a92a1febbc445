//! What lies where in a data folder: which files a copy takes, and how the store cuts them.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::SourceFile;
use super::wal::is_segment;
use crate::error::{Error, Result};
use crate::store::Cutting;
use crate::sys::fs;

/// What a copy of a cluster takes, without the WAL segments and without pg_control.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Folders relative to the data folder with their 12 mode bits, parents first; the data folder itself is the first, as an empty path.
    pub(super) folders: Vec<(PathBuf, u32)>,
    /// Files, in the order of the walk.
    pub(super) files: Vec<SourceFile>,
}

/// Folders whose content no restart needs: they stay, empty.
const EMPTIED: &[&str] = &["pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"];

/// Files of a running server, leftovers, and what the copy adds itself.
const LEFT_OUT: &[&str] = &[
    "postmaster.pid",
    "postmaster.opts",
    "current_logfiles",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "backup_label",
    "tablespace_map",
    "recovery.signal",
    "standby.signal",
];

/// Lists the cluster in `data`: links that stand for its own folders (pg_wal, tablespaces, a database moved elsewhere) are
/// followed, so that the copy has real folders; links to other folders are left out; of links to files the content is taken.
/// With `live` a name that vanishes meanwhile is left out.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
pub(super) fn walk(data: &Path, live: bool) -> Result<Layout> {
    let mut layout = Layout::default();
    let metadata = std::fs::metadata(data).map_err(|source| Error::io("examine", data, source))?;
    layout.folders.push((PathBuf::new(), mode(&metadata)));
    Walk { data, live, layout: &mut layout }.folder(Path::new(""))?;
    Ok(layout)
}

/// How the store cuts the file at `path` of a data folder.
#[must_use]
pub fn cutting(path: &Path) -> Cutting {
    let mut parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    let top = parts.next().unwrap_or_default();
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    match top {
        b"base" | b"global" | b"pg_tblspc" if is_relation(name) => Cutting::Pages,
        b"pg_xact" | b"pg_multixact" | b"pg_commit_ts" | b"pg_subtrans" if is_slru(name) => Cutting::Pages,
        b"pg_wal" if is_segment(name) => Cutting::Wal,
        _ => Cutting::Content,
    }
}

struct Walk<'a> {
    data: &'a Path,
    live: bool,
    layout: &'a mut Layout,
}

impl Walk<'_> {
    fn folder(&mut self, relative: &Path) -> Result<()> {
        let folder = self.data.join(relative);
        for name in fs::names(&folder)? {
            let path = relative.join(&name);
            if left_out(&path) {
                continue;
            }
            let source = folder.join(&name);
            let Some((link, metadata)) = self.examine(&source)? else { continue };
            if metadata.is_dir() {
                if link && !of_cluster(&path) {
                    continue;
                }
                self.layout.folders.push((path.clone(), mode(&metadata)));
                if !emptied(&path) {
                    self.enter(&path)?;
                }
            } else if metadata.is_file() {
                self.layout.files.push(SourceFile { cutting: cutting(&path), source, path, live: self.live });
            }
        }
        Ok(())
    }

    /// A dropped database's folder may vanish between being listed and being entered.
    fn enter(&mut self, path: &Path) -> Result<()> {
        match self.folder(path) {
            Err(error) if self.live && error.kind() == crate::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Whether it is a link, and what it is or leads to. A dangling link is left out, unless Postgres needs what it stands for.
    fn examine(&self, source: &Path) -> Result<Option<(bool, Metadata)>> {
        let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let link = match std::fs::symlink_metadata(source) {
            Err(error) if self.live && gone(&error) => return Ok(None),
            found => found.map_err(|error| Error::io("examine", source, error))?.is_symlink(),
        };
        match std::fs::metadata(source) {
            Err(error) if gone(&error) && (self.live || !source.strip_prefix(self.data).is_ok_and(of_cluster)) => Ok(None),
            found => Ok(Some((link, found.map_err(|error| Error::io("examine", source, error))?))),
        }
    }
}

fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

fn top_of(path: &Path) -> &[u8] {
    path.components().next().map_or(&[], |part| part.as_os_str().as_bytes())
}

fn of_cluster(path: &Path) -> bool {
    let top = top_of(path);
    top == b"base" || top == b"global" || top.starts_with(b"pg_")
}

fn emptied(path: &Path) -> bool {
    EMPTIED.iter().any(|name| path == Path::new(name))
}

fn left_out(path: &Path) -> bool {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let depth = path.components().count();
    let at_top = depth == 1
        && (LEFT_OUT.iter().any(|left_out| left_out.as_bytes() == name)
            || name.starts_with(b".s.PGSQL.")
            || name.starts_with(b".forklift")
            || name == b"core"
            || (name.starts_with(b"core.") && name.get(5..).is_some_and(is_number)));
    let wal = depth == 2 && top_of(path) == b"pg_wal" && !matches!(name, b"archive_status" | b"summaries");
    let status = path.starts_with("pg_wal/archive_status") && depth == 3;
    let control = path == Path::new("global/pg_control");
    let cache = name.starts_with(b"pg_internal.init");
    let scratch = name.starts_with(b"pgsql_tmp");
    let slot_leftover = depth == 2 && top_of(path) == b"pg_replslot" && name.ends_with(b".tmp");
    at_top || wal || status || control || cache || scratch || slot_leftover || is_temporary_relation(path, name)
}

/// `t3_16384` and its forks in a database's folder: temporary tables of a session that is gone.
fn is_temporary_relation(path: &Path, name: &[u8]) -> bool {
    let in_database = matches!(top_of(path), b"base" | b"pg_tblspc");
    let rest = name.strip_prefix(b"t").unwrap_or_default();
    let mut halves = rest.splitn(2, |byte| *byte == b'_');
    let (backend, relation) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    in_database && is_number(backend) && is_relation(relation)
}

/// `16384`, `16384.1`, `16384_fsm`, `16384_vm.2`, `16384_init`.
fn is_relation(name: &[u8]) -> bool {
    let mut parts = name.splitn(2, |byte| *byte == b'.');
    let (fork, segment) = (parts.next().unwrap_or_default(), parts.next());
    let mut parts = fork.splitn(2, |byte| *byte == b'_');
    let (number, suffix) = (parts.next().unwrap_or_default(), parts.next());
    is_number(number) && suffix.is_none_or(|suffix| matches!(suffix, b"fsm" | b"vm" | b"init")) && segment.is_none_or(is_number)
}

fn is_number(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

fn is_slru(name: &[u8]) -> bool {
    (4..=15).contains(&name.len()) && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relation_files_and_slru_are_cut_in_pages_and_nothing_else_is() {
        for path in [
            "base/5/1259",
            "base/5/1259.1",
            "base/5/1259_fsm",
            "base/5/16384_init",
            "global/1262_vm",
            "pg_xact/0000",
            "pg_multixact/members/00A1",
            "pg_commit_ts/0001",
            "pg_tblspc/16385/PG_15_202209061/5/16386_vm.12",
        ] {
            assert_eq!(cutting(Path::new(path)), Cutting::Pages, "{path}");
        }
        for path in [
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
            "global/pg_control",
            "PG_VERSION",
            "pg_wal/00000002.history",
            "pg_wal/summaries/0000",
            "pg_logical/snapshots/0-15D.snap",
            "12345",
            "base/5/1259_x",
            "pg_replslot/s/state",
        ] {
            assert_eq!(cutting(Path::new(path)), Cutting::Content, "{path}");
        }
        assert_eq!(cutting(Path::new("pg_wal/0000000100000000000000AB")), Cutting::Wal);
    }

    #[test]
    fn leftovers_are_left_out_and_data_is_not() {
        for path in [
            "postmaster.pid",
            "postmaster.opts",
            "base/pgsql_tmp",
            "base/5/t3_16384",
            "base/5/t12_16384_fsm.1",
            "base/5/pg_internal.init",
            "global/pg_internal.init.1234",
            "core.4711",
            ".s.PGSQL.5432.lock",
            "pg_replslot/x.tmp",
        ] {
            assert!(left_out(Path::new(path)), "{path}");
        }
        for path in [
            "PG_VERSION",
            "base/5/16384",
            "base/5/table",
            "postgresql.auto.conf",
            "pg_replslot/x",
            "pg_wal/archive_status",
            "pg_wal/summaries",
            "coredata",
            "pg_twophase/0000ABCD",
            "pg_logical/mappings",
        ] {
            assert!(!left_out(Path::new(path)), "{path}");
        }
    }
}
