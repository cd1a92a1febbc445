//! Which files of a running data folder belong to a copy: those that pg_basebackup takes.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{ControlFile, SourceFile};
use crate::store::Cutting;
use crate::sys::fs;

/// Folders whose contents mean nothing in a copy, or are taken on their own (pg_wal).
const EMPTIED: [&str; 8] = ["pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"];

/// Files at the top that belong to the running server, or to an earlier backup.
const LEFT_OUT: [&str; 12] = [
    "postmaster.pid",
    "postmaster.opts",
    "backup_label",
    "backup_label.old",
    "tablespace_map",
    "tablespace_map.old",
    "backup_manifest",
    "current_logfiles",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "standby.signal",
    "recovery.signal",
];

/// Folders that cut their files in pages beside those of relations.
const SLRU: [&str; 4] = ["pg_xact", "pg_commit_ts", "pg_multixact/members", "pg_multixact/offsets"];

/// What is to be copied.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// With their 12 mode bits; a folder comes before what is in it. The data folder itself is not among them.
    pub(super) folders: Vec<(PathBuf, u32)>,
    /// All but pg_control and WAL.
    pub(super) files: Vec<SourceFile>,
}

/// Lists the data folder of a running server. What vanishes meanwhile was dropped, and what comes is in the WAL.
pub(super) fn list(data: &Path) -> Result<Listing> {
    let version = fs::read(&data.join("PG_VERSION"))?;
    let control = ControlFile::read(data)?;
    let tablespace = format!("PG_{}_{}", String::from_utf8_lossy(&version).trim(), control.catalog_version);
    let mut walk = Walk { tablespace: tablespace.into(), listing: Listing::default(), ancestors: Vec::new() };
    walk.folder(Path::new(""), data)?;
    Ok(walk.listing)
}

/// The mode that the server gives its files: readable by the group where the data folder is.
pub(super) fn file_mode(data: &Path) -> Result<u32> {
    let metadata = data.metadata().map_err(|source| Error::io("stat", data, source))?;
    Ok(if metadata.mode() & 0o050 == 0 { 0o600 } else { 0o640 })
}

struct Walk {
    /// Folder of this version in each tablespace.
    tablespace: OsString,
    listing: Listing,
    /// Device and inode of the folders above, so that a link to one of them ends.
    ancestors: Vec<(u64, u64)>,
}

impl Walk {
    /// Lists what is in `source`, which is `path` in the copy.
    fn folder(&mut self, path: &Path, source: &Path) -> Result<()> {
        let names = match fs::names(source) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.as_os_str().is_empty() => return Ok(()),
            names => names?,
        };
        let place = Place::of(path);
        let unlogged = if place == Place::Relations { unlogged(&names) } else { HashSet::new() };
        for name in &names {
            let text = name.to_string_lossy();
            let temporary = text.starts_with("pgsql_tmp") || text.starts_with("pg_internal.init");
            let left_out = match place {
                Place::Top => LEFT_OUT.contains(&text.as_ref()),
                Place::Tablespace => *name != self.tablespace,
                Place::Relations => {
                    (path == Path::new("global") && text == "pg_control")
                        || is_temporary_relation(&text)
                        || Relation::parse(&text).is_some_and(|relation| relation.fork != "init" && unlogged.contains(relation.number))
                }
                Place::Other => false,
            };
            if !temporary && !left_out {
                self.entry(&path.join(name), &source.join(name))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, source: &Path) -> Result<()> {
        // Links are followed: what a link in the data folder names belongs to the copy, and no link of a copy leads out of it.
        let metadata = match source.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match source.symlink_metadata() {
                    Ok(link) if link.is_symlink() => Err(dangling(source)),
                    _ => Ok(()),
                };
            }
            metadata => metadata.map_err(|error| Error::io("stat", source, error))?,
        };
        if metadata.is_dir() {
            return self.enter(path, source, &metadata);
        }
        if metadata.is_file() {
            let linked = source.is_symlink();
            let real = if linked { source.canonicalize().map_err(|error| Error::io("follow", source, error))? } else { source.to_owned() };
            self.listing.files.push(SourceFile { source: real, path: path.to_owned(), live: true, cutting: cutting(path) });
        }
        Ok(())
    }

    fn enter(&mut self, path: &Path, source: &Path, metadata: &Metadata) -> Result<()> {
        let identity = (metadata.dev(), metadata.ino());
        if self.ancestors.contains(&identity) {
            return Err(Error::new(ErrorKind::Unsupported, format!("{} is a link to a folder above it", source.display()))
                .with("path", source.display())
                .hint("remove the link and try again"));
        }
        self.listing.folders.push((path.to_owned(), metadata.permissions().mode() & 0o7777));
        if path == Path::new("pg_wal") {
            for name in ["archive_status", "summaries"] {
                if let Ok(inner) = source.join(name).metadata().map(|inner| inner.permissions().mode() & 0o7777) {
                    self.listing.folders.push((path.join(name), inner));
                }
            }
        }
        if path.to_str().is_some_and(|path| EMPTIED.contains(&path)) {
            return Ok(());
        }
        self.ancestors.push(identity);
        let listed = self.folder(path, source);
        self.ancestors.pop();
        listed
    }
}

fn dangling(source: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} is a link to something that does not exist", source.display()))
        .with("path", source.display())
        .hint("remove the link, or bring back what it names, and try again")
}

/// What kind of folder a path of the copy is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Top,
    /// Where a tablespace lies: only the folder of this version is ours.
    Tablespace,
    /// Holds files of relations.
    Relations,
    Other,
}

impl Place {
    fn of(path: &Path) -> Self {
        let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap_or_default()).collect();
        match parts.as_slice() {
            [] => Self::Top,
            ["global"] => Self::Relations,
            ["base", database] | ["pg_tblspc", _, _, database] if is_number(database) => Self::Relations,
            ["pg_tblspc", _] => Self::Tablespace,
            _ => Self::Other,
        }
    }
}

/// The name of a relation's file: `<number>[_<fork>][.<segment>]`.
struct Relation<'a> {
    number: &'a str,
    fork: &'a str,
}

impl<'a> Relation<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (stem, segment) = name.split_once('.').unwrap_or((name, "0"));
        let (number, fork) = stem.split_once('_').unwrap_or((stem, ""));
        (is_number(number) && is_number(segment) && matches!(fork, "" | "fsm" | "vm" | "init")).then_some(Self { number, fork })
    }
}

/// `t<backend>_<number>...`.
fn is_temporary_relation(name: &str) -> bool {
    name.strip_prefix('t')
        .and_then(|rest| rest.split_once('_'))
        .is_some_and(|(backend, rest)| is_number(backend) && Relation::parse(rest).is_some())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Numbers of the relations that have an init fork: a copy brings them up empty.
fn unlogged(names: &[OsString]) -> HashSet<&str> {
    names
        .iter()
        .filter_map(|name| Relation::parse(name.to_str()?))
        .filter(|relation| relation.fork == "init")
        .map(|relation| relation.number)
        .collect()
}

fn cutting(path: &Path) -> Cutting {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_relation = || path.file_name().and_then(OsStr::to_str).is_some_and(|name| Relation::parse(name).is_some());
    let is_slru = folder.to_str().is_some_and(|folder| SLRU.contains(&folder));
    if is_slru || (Place::of(folder) == Place::Relations && is_relation()) { Cutting::Pages } else { Cutting::Content }
}
