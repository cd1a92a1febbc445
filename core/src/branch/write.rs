//! Writing a cluster from the store into a new folder.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::{ChunkId, ChunkRef, Entry, EntryKind, Half, Reader};
use crate::sys;

/// Written last: without it nothing takes the folder for a cluster.
const CONTROL_FILE: &[u8] = b"global/pg_control";
/// Files that are written in parallel between two looks at the cancel token.
const BATCH: usize = 256;

/// Writes the cluster of `half` into the new folder `data`. Nothing is synced. On failure the caller removes the folder.
pub(super) fn write(reader: &Reader, half: &Half, root_mode: u32, data: &Path, control: &Control) -> Result<()> {
    if !data.is_dir() {
        clone::make_folder(data, 0o700)?;
    }
    let mut last = None;
    let mut batch: Vec<Entry> = Vec::with_capacity(BATCH);
    let mut done = 0;
    for entry in reader.manifest(&half.root)? {
        let entry = entry?;
        match entry.kind {
            EntryKind::Folder => {
                let path = place(data, &entry.path);
                sys::fs::make_folder(&path, 0o700)?;
                set_mode(&path, u32::from(entry.mode))?;
            }
            EntryKind::File { .. } if entry.path == CONTROL_FILE => last = Some(entry),
            EntryKind::File { .. } => batch.push(entry),
            EntryKind::Symlink(_) | EntryKind::Fifo | EntryKind::Socket => {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("the checkpoint's cluster holds {}, which is no file or folder", String::from_utf8_lossy(&entry.path)),
                )
                .hint("`forklift store verify` tells what is damaged"));
            }
        }
        if batch.len() >= BATCH {
            done += write_files(reader, &batch, data, control)?;
            batch.clear();
            control.report("write cluster", done, half.bytes, Unit::Bytes);
        }
    }
    done += write_files(reader, &batch, data, control)?;
    let last = last.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "the checkpoint's cluster has no global/pg_control")
            .hint("`forklift store verify` tells what is damaged")
    })?;
    done += write_file(reader, &last, data)?;
    control.report("write cluster", done, half.bytes, Unit::Bytes);
    set_mode(data, root_mode)
}

fn write_files(reader: &Reader, entries: &[Entry], data: &Path, control: &Control) -> Result<u64> {
    control.check()?;
    let written = sys::parallel::map(entries, |entry| control.check().and_then(|()| write_file(reader, entry, data)))?;
    Ok(written.into_iter().sum())
}

fn write_file(reader: &Reader, entry: &Entry, data: &Path) -> Result<u64> {
    let EntryKind::File { size, chunks, .. } = &entry.kind else { return Ok(0) };
    let path = place(data, &entry.path);
    let file = sys::fs::create_new(&path, u32::from(entry.mode))?;
    let mut at = 0;
    for chunk in chunks {
        if !is_zero(chunk) {
            let bytes = reader.chunk(chunk)?;
            file.write_all_at(&bytes, at).map_err(|source| Error::io("write", &path, source))?;
        }
        at += u64::from(chunk.len);
    }
    if at != *size {
        return Err(Error::new(ErrorKind::Corrupt, format!("{} has {at} bytes in the store and should have {size}", path.display())));
    }
    file.set_len(*size).map_err(|source| Error::io("set the length of", &path, source))?;
    set_file_mode(&file, &path, u32::from(entry.mode))?;
    Ok(*size)
}

/// Zeros take no space in the store, and stay holes here.
fn is_zero(chunk: &ChunkRef) -> bool {
    chunk.id == ChunkId([0; 32])
}

fn place(data: &Path, path: &[u8]) -> PathBuf {
    data.join(OsStr::from_bytes(path))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|source| Error::io("set the mode of", path, source))
}

fn set_file_mode(file: &File, path: &Path, mode: u32) -> Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(|source| Error::io("set the mode of", path, source))
}
