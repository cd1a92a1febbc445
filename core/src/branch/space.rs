//! Room on the disk: asked for before a copy begins, since a running server whose WAL finds none crashes.

use std::path::Path;

use super::layout;
use crate::clone::Method;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::ControlFile;

/// WAL segments that a copy and its first start may need, in the source (which begins a new one) and in the copy.
const SEGMENTS: u64 = 3;

/// Fails where a copy of the cluster in `data`, by this method to the same file system, would not fit.
pub(super) fn for_copy(data: &Path, method: Method) -> Result<()> {
    let files = match method {
        Method::Snapshot | Method::Reflink => 0,
        Method::Copy => layout::bytes_on_disk(data),
    };
    require(data, files + for_wal(data)?)
}

/// Fails where a server that is copied into the store could not go on writing its WAL.
pub(super) fn for_capture(data: &Path) -> Result<()> {
    require(data, for_wal(data)?)
}

/// Fails where so many bytes do not fit on the file system of `folder`.
pub(super) fn require(folder: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(folder).map_err(|errno| Error::io("examine the file system of", folder, errno))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    Err(Error::new(
        ErrorKind::NoSpace,
        format!("{} MiB are needed on the file system of {}, and {} are free", mib(bytes), folder.display(), mib(free)),
    )
    .with("path", folder.display())
    .with("needed", bytes)
    .with("free", free)
    .hint(format!("free space on the file system of {} and try again", folder.display())))
}

fn for_wal(data: &Path) -> Result<u64> {
    Ok(SEGMENTS * u64::from(ControlFile::read(data)?.wal_segment_size))
}
