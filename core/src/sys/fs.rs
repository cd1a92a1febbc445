//! File system calls that name their path when they fail, and count their fsyncs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags};

use crate::error::{Error, Result};

/// Counts the fsyncs of one operation, for its report.
#[derive(Debug, Default)]
pub struct Syncs(AtomicU64);

impl Syncs {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one that is made by other means.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the content of an open file durable. A failure is final: never call it again on the same file and believe it.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub fn file(&self, file: &File, path: &Path) -> Result<()> {
        self.add();
        sync(file).map_err(|source| Error::io("fsync", path, source))
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// `Io`.
    pub fn folder(&self, path: &Path) -> Result<()> {
        let folder = File::open(path).map_err(|source| Error::io("open", path, source))?;
        self.file(&folder, path)
    }

    /// Makes everything on the file system that holds `path` durable.
    ///
    /// # Errors
    /// `Io`.
    pub fn file_system(&self, path: &Path) -> Result<()> {
        self.add();
        let folder = File::open(path).map_err(|source| Error::io("open", path, source))?;
        rustix::fs::syncfs(&folder).map_err(|errno| Error::io("syncfs", path, errno))
    }
}

/// fsync, and a look at what was synced: for a folder of an XFS that went down before it, fsync says that all is well, and a
/// stat does not.
///
/// # Errors
/// As fsync and stat have them.
pub fn sync(file: &File) -> std::io::Result<()> {
    file.sync_all()?;
    file.metadata().map(drop)
}

/// Opens a regular file for reading; anything else with that name, such as a named pipe that would make us wait for a
/// writer, is refused. So is a link to nothing: what it led to is away, which is not the same as removed.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
pub fn open_regular(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| {
        let leads_nowhere = matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP));
        let target = std::fs::read_link(path).ok().filter(|_| leads_nowhere);
        match target {
            None => Error::io("open", path, source),
            Some(target) => {
                Error::new(crate::ErrorKind::Io, format!("{} is a link to {}, which is not there", path.display(), target.display()))
                    .with("path", path.display())
                    .hint("mount or put back what it leads to, or put the file itself there")
            }
        }
    })?;
    let metadata = file.metadata().map_err(|source| Error::io("stat", path, source))?;
    if metadata.is_file() {
        return Ok(file);
    }
    Err(Error::new(crate::ErrorKind::Io, format!("{} is not a regular file", path.display()))
        .with("path", path.display())
        .hint("move it away and put the file back"))
}

/// `/dev/null`, for reading and writing.
///
/// # Errors
/// `Io` and its like.
pub fn open_null() -> Result<File> {
    let path = Path::new("/dev/null");
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| Error::io("open", path, source))
}

/// The whole content of a regular file.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut open_regular(path)?, &mut bytes).map_err(|source| Error::io("read", path, source))?;
    Ok(bytes)
}

/// As [`read`], with a file that does not exist as `None`.
///
/// # Errors
/// `Permission`, `Io`.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == crate::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder with this mode (and its missing parents with mode 0700); one that exists is left as it is.
///
/// # Errors
/// `Permission`, `NoSpace`, `Io`.
pub fn make_folder(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_folder(parent, 0o700)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(source) => Err(Error::io("create folder", path, source)),
    }
}

/// Creates a file that must not exist yet, with this mode.
///
/// # Errors
/// `AlreadyExists`, `NoSpace`, `Io`.
pub fn create_new(path: &Path, mode: u32) -> Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path).map_err(|source| Error::io("create", path, source))
}

/// Writes a file that appears whole or not at all, replacing what has its name: temporary file beside it, fsync, rename,
/// fsync of the folder (three steps, two fsyncs).
///
/// # Errors
/// `NoSpace`, `Permission`, `Io`; what was there before is then still there.
pub fn replace(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<()> {
    let temporary = write_beside(path, bytes, mode, syncs)?;
    finish_beside(rename(&temporary, path), &temporary, path, syncs)
}

/// As [`replace`], and fails where the name is taken.
///
/// # Errors
/// `AlreadyExists`, and as [`replace`].
pub fn publish(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<()> {
    let temporary = write_beside(path, bytes, mode, syncs)?;
    finish_beside(rename_new(&temporary, path), &temporary, path, syncs)
}

/// Renames without replacing. Where the file system cannot do that in one step, a hard link and an unlink do.
///
/// # Errors
/// `AlreadyExists`, `Io`.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(errno @ (Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)) => match std::fs::hard_link(from, to) {
            Ok(()) => remove_file(from),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::io("rename to", to, error)),
            Err(_) => Err(Error::io("rename to", to, errno)),
        },
        other => other.map_err(|errno| Error::io("rename to", to, errno)),
    }
}

/// Renames, replacing a file that has the new name.
///
/// # Errors
/// `NotFound`, `Io`.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::rename(from, to).map_err(|errno| Error::io("rename to", to, errno))
}

/// Writes a new file of these parts with this mode and makes its content durable; where that fails nothing is left.
///
/// # Errors
/// `AlreadyExists`, `NoSpace`, `Permission`, `Io`.
pub fn write_new(path: &Path, parts: &[&[u8]], mode: u32, syncs: &Syncs) -> Result<()> {
    let file = write_unsynced(path, parts, mode)?;
    syncs.file(&file, path).inspect_err(|_| {
        std::fs::remove_file(path).ok();
    })
}

/// As [`write_new`] without making it durable: the file that is given back must be synced, once, before it is relied on.
///
/// # Errors
/// `AlreadyExists`, `NoSpace`, `Permission`, `Io`.
pub fn write_unsynced(path: &Path, parts: &[&[u8]], mode: u32) -> Result<File> {
    let mut file = create_new(path, mode)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part)).map_err(|source| Error::io("write", path, source));
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            std::fs::remove_file(path).ok();
            Err(error)
        }
    }
}

/// Asks the kernel to begin writing a file's content to disk, so that a later fsync waits less. A hint: it cannot fail.
pub fn start_writeback(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: a valid descriptor and plain numbers; the call touches no memory of ours.
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    std::hint::black_box(file);
}

/// The name of the network file system that holds `path`, where it is one on which locks and folder syncs cannot be relied on.
///
/// # Errors
/// `NotFound`, `Io`.
pub fn network_file_system(path: &Path) -> Result<Option<&'static str>> {
    #[cfg(target_os = "linux")]
    {
        let found = rustix::fs::statfs(path).map_err(|errno| Error::io("statfs", path, errno))?;
        Ok(network_name(u32::try_from(found.f_type as u64 & 0xffff_ffff).unwrap_or_default()))
    }
    #[cfg(not(target_os = "linux"))]
    {
        std::hint::black_box(path);
        Ok(None)
    }
}

#[cfg(target_os = "linux")]
fn network_name(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b | 0xfe53_4d42 => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x7461_636f => Some("OCFS2"),
        0x0116_1970 => Some("GFS2"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

/// Fails with the right kind where the caller may not write in a folder.
///
/// # Errors
/// `ReadOnly`, `Permission`, `NotFound`, `Io`.
pub fn check_writable(folder: &Path) -> Result<()> {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|errno| Error::io("write in", folder, errno))
}

/// Bytes that the caller may still write on the file system that holds `path`.
///
/// # Errors
/// `NotFound`, `Io`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(path).map_err(|errno| Error::io("statvfs", path, errno))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Reads from an offset until the buffer is full or the file ends, and gives the bytes read; leaves the position alone.
///
/// # Errors
/// `Io`.
pub fn read_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match rustix::io::pread(file, room, offset + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("read", path, errno)),
        }
    }
    Ok(filled)
}

/// Removes a file; one that is not there is fine.
///
/// # Errors
/// `Permission`, `Io`.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Removes a folder and all below it, without following links; one that is not there is fine.
///
/// # Errors
/// `Permission`, `Io`.
#[allow(clippy::disallowed_methods, reason = "this is the wrapper")]
pub fn remove_tree(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// The names in a folder, sorted.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
pub fn names(path: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(path).map_err(|source| Error::io("list", path, source))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(|source| Error::io("list", path, source))?.file_name());
    }
    names.sort_unstable();
    Ok(names)
}

/// The `count` greatest names in a folder, sorted, without keeping the others: for folders of very many names.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`.
#[cfg(target_os = "linux")]
pub fn last_names(path: &Path, count: usize) -> Result<Vec<std::ffi::OsString>> {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::os::unix::ffi::OsStringExt;
    let folder = File::open(path).map_err(|source| Error::io("open", path, source))?;
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 256 << 10];
    let mut entries = rustix::fs::RawDir::new(&folder, &mut buffer);
    let mut last: BinaryHeap<Reverse<Vec<u8>>> = BinaryHeap::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|errno| Error::io("list", path, errno))?;
        let name = entry.file_name().to_bytes();
        let full = last.len() >= count;
        if matches!(name, b"." | b"..") || (full && last.peek().is_none_or(|Reverse(least)| name <= least.as_slice())) {
            continue;
        }
        if full {
            last.pop();
        }
        last.push(Reverse(name.to_vec()));
    }
    let mut names: Vec<_> = last.into_iter().map(|Reverse(name)| std::ffi::OsString::from_vec(name)).collect();
    names.sort_unstable();
    Ok(names)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32, syncs: &Syncs) -> Result<std::path::PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", crate::sys::id::sortable()?));
    let temporary = path.with_file_name(name);
    // The caller knows the name that it asked for, not that of the temporary file.
    let created = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&temporary);
    let mut file = created.map_err(|source| Error::io("write", path, source))?;
    let written = file.write_all(bytes).map_err(|source| Error::io("write", path, source)).and_then(|()| syncs.file(&file, &temporary));
    match written {
        Ok(()) => Ok(temporary),
        Err(error) => {
            remove_file(&temporary)?;
            Err(error)
        }
    }
}

fn finish_beside(renamed: Result<()>, temporary: &Path, path: &Path, syncs: &Syncs) -> Result<()> {
    match renamed {
        Ok(()) => syncs.folder(path.parent().unwrap_or(Path::new("/"))),
        Err(error) => {
            remove_file(temporary)?;
            Err(error)
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_name() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xff53_4d42), Some("CIFS"));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_name(local), None);
        }
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
    }

    #[test]
    fn a_rename_never_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let syncs = Syncs::new();
        write_new(&a, &[b"a"], 0o600, &syncs).unwrap();
        write_new(&b, &[b"b"], 0o600, &syncs).unwrap();
        assert_eq!(rename_new(&a, &b).unwrap_err().kind(), crate::ErrorKind::AlreadyExists);
        assert_eq!((read(&a).unwrap(), read(&b).unwrap()), (b"a".to_vec(), b"b".to_vec()));
        assert_eq!(syncs.count(), 2);
    }

    #[test]
    fn a_disk_that_went_away_makes_no_name_durable() {
        let Some(image) = crate::clone::tests::Image::new("a_disk_that_went_away_makes_no_name_durable", "xfs", &["-q"]) else { return };
        let folder = image.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let syncs = Syncs::new();
        write_new(&folder.join("a"), &[b"a"], 0o600, &syncs).unwrap();
        syncs.folder(&folder).unwrap();
        let opened = File::open(&folder).unwrap();
        rename_new(&folder.join("a"), &folder.join("b")).unwrap();
        let cut = std::process::Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(image.path()).status().unwrap();
        assert!(cut.success());
        // What the kernel says of it on its own, and why there is more to it.
        println!("fsync alone: {:?}", opened.sync_all());
        assert_eq!(syncs.file(&opened, &folder).unwrap_err().kind(), crate::ErrorKind::Io);
    }
}
