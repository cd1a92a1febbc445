//! The lock files of a postmaster: `postmaster.pid` in its data folder and `.s.PGSQL.5432.lock` beside its socket.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::sys;

/// What such a file says; nothing in it is to be believed of a process without a look at that process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockFile {
    /// Line 1: the postmaster, or a single-user backend (which writes it negative).
    pub(super) pid: u32,
    /// Line 2: its data folder.
    pub(super) data: PathBuf,
    /// Line 7 of postmaster.pid: System V shared memory id.
    pub(super) shared_memory: Option<i32>,
    /// Line 8 of postmaster.pid: `starting`, `stopping`, `ready` or `standby`.
    pub(super) status: Option<String>,
}

impl LockFile {
    /// Reads one; `None` where it is absent or does not begin with a pid.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        Ok(sys::fs::read_optional(path)?.and_then(|bytes| Self::parse(&bytes)))
    }

    /// The one of a data folder.
    pub(super) fn of_cluster(data: &Path) -> Result<Option<Self>> {
        Self::read(&data.join("postmaster.pid"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let text = |index: usize| lines.get(index).map(|line| String::from_utf8_lossy(line).trim().to_owned());
        let pid: i64 = text(0)?.parse().ok()?;
        Some(Self {
            pid: u32::try_from(pid.unsigned_abs()).ok().filter(|pid| *pid > 0)?,
            data: PathBuf::from(std::ffi::OsString::from_vec(lines.get(1)?.to_vec())),
            shared_memory: text(6).and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()),
            status: text(7).filter(|status| !status.is_empty()),
        })
    }

    /// Whether the postmaster accepts sessions.
    pub(super) fn is_ready(&self) -> bool {
        self.status.as_deref() == Some("ready")
    }
}

/// The major version that made a cluster, from its PG_VERSION.
pub(super) fn major_of(data: &Path) -> Option<u32> {
    let bytes = sys::fs::read(&data.join("PG_VERSION")).ok()?;
    String::from_utf8_lossy(&bytes).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_running_server_are_understood() {
        let file = LockFile::parse(b"42\n/d\n1700000000\n5432\n/s\n\n  5001   32770\nready   \n").unwrap();
        assert_eq!((file.pid, file.data.as_path()), (42, Path::new("/d")));
        assert_eq!(file.shared_memory, Some(32770));
        assert!(file.is_ready());
    }

    #[test]
    fn anything_else_is_nobody() {
        assert_eq!(LockFile::parse(b""), None);
        assert_eq!(LockFile::parse(b"0\n/d\n"), None);
        assert_eq!(LockFile::parse(b"what\n/d\n"), None);
        assert_eq!(LockFile::parse(b"-7\n/d\n").unwrap().pid, 7);
    }
}
