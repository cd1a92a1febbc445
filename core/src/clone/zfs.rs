//! Block cloning of ZFS: which versions of it are not used, and what is done before each clone.
//!
//! Faults that were reported of it: zeros in place of content that was not on disk yet (openzfs/zfs 15526, 15933, 15994), clones
//! that came out short (15728), EAGAIN for dirty blocks, waits without end (16012). It was off by default from 2.2.1 to 2.2.7.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// The first release line in which its makers switched it on for everybody.
const FIRST: (u32, u32) = (2, 3);

/// Whether `path` lies on ZFS.
#[cfg(target_os = "linux")]
pub(super) fn is_zfs(path: &Path) -> bool {
    const MAGIC: u64 = 0x2fc1_2fc1;
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == MAGIC)
}

/// Whether `path` lies on ZFS.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_zfs(_path: &Path) -> bool {
    false
}

/// Why block cloning of the loaded module is not used, `None` where it is.
pub(super) fn refusal() -> Option<String> {
    let text = crate::sys::fs::read_optional(Path::new("/sys/module/zfs/version")).ok().flatten();
    refusal_of(text.as_deref().map(String::from_utf8_lossy).as_deref())
}

fn refusal_of(version: Option<&str>) -> Option<String> {
    let Some(version) = version.map(str::trim) else {
        return Some("the version of ZFS is not known, and old ones corrupt clones".to_owned());
    };
    let mut numbers = version.split(|next: char| !next.is_ascii_digit()).map(|digits| digits.parse::<u32>().ok());
    let known = numbers.next().flatten().zip(numbers.next().flatten());
    match known {
        Some(known) if known >= FIRST => None,
        _ => Some(format!("block cloning of ZFS {version} has known faults; it is used from {}.{} on", FIRST.0, FIRST.1)),
    }
}

/// Brings the content of a file to disk, so that no block of it is dirty when it is cloned, and gives the size it then has.
pub(super) fn settle(from: &File, path: &Path) -> Result<u64> {
    match rustix::fs::fdatasync(from) {
        // A file on a read-only mount has nothing dirty.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::ROFS) => {}
        Err(errno) => return Err(Error::io("fsync", path, errno)),
    }
    Ok(from.metadata().map_err(|source| Error::io("stat", path, source))?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_without_known_faults_are_used() {
        for used in ["2.3.0-1", "2.3.4", "2.4.0-rc1\n", "3.0.0", "10.1"] {
            assert_eq!(refusal_of(Some(used)), None, "{used}");
        }
        for faulty in ["2.2.0-1", "2.2.4-1ubuntu0.1", "2.1.14", "0.8.6", "", "unknown", "2"] {
            assert!(refusal_of(Some(faulty)).unwrap().contains(faulty), "{faulty}");
        }
        assert!(refusal_of(None).is_some());
    }

    #[test]
    fn what_is_settled_has_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        crate::sys::fs::write_new(&path, &[&[1; 5_000]], 0o600, &crate::sys::fs::Syncs::new()).unwrap();
        assert_eq!(settle(&File::open(&path).unwrap(), &path).unwrap(), 5_000);
        assert!(!is_zfs(folder.path()) || cfg!(target_os = "linux"));
    }
}
