//! What is mounted where, as the kernel tells it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// Number of the mount that it lies on.
    pub parent: u64,
    /// Where.
    pub point: PathBuf,
    /// Type of the file system, such as `ext4`.
    pub kind: String,
    /// What is mounted: a device, mostly.
    pub source: PathBuf,
    /// Options of the mount and of the file system, separated by commas.
    pub options: String,
}

/// Every mount that this process can see, in the order of the kernel: of two at one place the later one is on top. Empty on
/// systems without procfs.
///
/// # Errors
/// `Permission`, `Io`.
pub fn list() -> Result<Vec<Mount>> {
    let text = crate::sys::fs::read_optional(Path::new("/proc/self/mountinfo"))?.unwrap_or_default();
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount that holds `path`.
///
/// # Errors
/// `NotFound` where there is no such path, `Permission`, `Io`.
pub fn of(path: &Path) -> Result<Option<Mount>> {
    let mounts = list()?;
    if let Some(id) = id_of(path) {
        return Ok(mounts.into_iter().find(|mount| mount.id == id));
    }
    let path = path.canonicalize().map_err(|source| Error::io("resolve", path, source))?;
    let depth = |mount: &Mount| mount.point.components().count();
    // Of equal depth the last one is on top.
    Ok(mounts.into_iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(depth))
}

/// Whether something is mounted below the folder `path` (not at it).
///
/// # Errors
/// As [`of`].
pub fn any_below(path: &Path) -> Result<bool> {
    let id = id_of(path);
    let mounts = list()?;
    // A folder on a mount that has no others on it: nothing to compare by name.
    if let Some(id) = id
        && !mounts.iter().any(|mount| mount.parent == id && mount.id != id)
    {
        return Ok(false);
    }
    let path = path.canonicalize().map_err(|source| Error::io("resolve", path, source))?;
    Ok(mounts.iter().any(|mount| mount.point != path && mount.point.starts_with(&path)))
}

#[cfg(target_os = "linux")]
fn id_of(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags};
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

#[cfg(not(target_os = "linux"))]
fn id_of(_path: &Path) -> Option<u64> {
    None
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| fields.get(index).map(|field| String::from_utf8_lossy(field).into_owned());
    let path = |index: usize| fields.get(index).map(|field| PathBuf::from(OsString::from_vec(unescape(field))));
    Some(Mount {
        id: text(0)?.parse().ok()?,
        parent: text(1)?.parse().ok()?,
        point: path(4)?,
        kind: text(dash + 1)?,
        source: path(dash + 2)?,
        options: format!("{},{}", text(5)?, text(dash + 3).unwrap_or_default()),
    })
}

/// Space, tab, line feed and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        let octal = digits.map(|digits| digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match octal.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_escapes() {
        let mount =
            parse(b"36 35 98:0 / /mnt/my\\040place\\134x rw,noatime shared:1 master:2 - ext4 /dev/loop3 rw,errors=continue").unwrap();
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.point, Path::new("/mnt/my place\\x"));
        assert_eq!((mount.kind.as_str(), mount.source.as_path()), ("ext4", Path::new("/dev/loop3")));
        assert_eq!(mount.options, "rw,noatime,rw,errors=continue");
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 98:0 / /mnt rw"), None);
    }

    #[test]
    fn proc_is_a_mount_and_a_new_folder_is_none() {
        assert_eq!(of(Path::new("/proc")).unwrap().unwrap().kind, "proc");
        let folder = tempfile::tempdir().unwrap();
        assert!(!any_below(folder.path()).unwrap());
        assert!(any_below(Path::new("/")).unwrap());
    }
}
