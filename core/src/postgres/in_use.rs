//! Whether a process works in a data folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// The processes whose working folder is `data`: every process of a Postgres server makes its data folder that. Processes of
/// other accounts that we may not look at are not seen; such a server could not be ours.
pub(super) fn pids_in(data: &Path) -> Result<Vec<u32>> {
    let metadata = std::fs::metadata(data).map_err(|source| Error::io("examine", data, source))?;
    let identity = (metadata.dev(), metadata.ino());
    let own = std::process::id();
    let pid = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse::<u32>().ok());
    let here = |pid: &u32| {
        let folder = std::fs::metadata(format!("/proc/{pid}/cwd"));
        folder.is_ok_and(|folder| (folder.dev(), folder.ino()) == identity)
    };
    match fs::names(Path::new("/proc")) {
        Ok(names) => Ok(names.into_iter().filter_map(pid).filter(|pid| *pid != own).filter(here).filter(is_server).collect()),
        // Without /proc (macOS) the pid file is the only witness.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(pid_of_file(data).into_iter().collect()),
        Err(error) => Err(error),
    }
}

/// A shell that somebody opened in the data folder is not a server.
fn is_server(pid: &u32) -> bool {
    let name = fs::read(Path::new(&format!("/proc/{pid}/comm"))).unwrap_or_default();
    name.starts_with(b"postgres") || name.starts_with(b"postmaster")
}

fn pid_of_file(data: &Path) -> Option<u32> {
    let text = fs::read(&data.join("postmaster.pid")).ok()?;
    let pid: i32 = String::from_utf8_lossy(&text).lines().next()?.trim().parse().ok()?;
    let process = rustix::process::Pid::from_raw(pid.checked_abs()?)?;
    rustix::process::test_kill_process(process).ok()?;
    u32::try_from(process.as_raw_nonzero().get()).ok()
}

/// `1234, 1235` for a message.
pub(super) fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
