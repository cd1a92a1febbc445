//! Read leases: the only way to learn that nobody has a file open for writing.

use std::fs::File;

/// What asking for a lease gave.
#[derive(Debug)]
pub enum Asked<'a> {
    /// Nobody has the file open or mapped for writing, and whoever opens it so now waits for this lease or breaks it.
    Held(Lease<'a>),
    /// Somebody has it open or mapped for writing.
    OpenForWriting,
    /// This file system, system or account has no leases.
    Unavailable,
}

/// A held read lease; given back when dropped.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a File,
}

impl Lease<'_> {
    /// Whether nobody asked to write since it was taken.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        whole(self.file)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        release(self.file);
    }
}

/// Asks for a read lease on a file that is open for reading only. The notice of a break goes to SIGURG, which is ignored
/// by default, and to nobody: the host's signals are left alone.
#[must_use]
pub fn ask(file: &File) -> Asked<'_> {
    match take(file) {
        Ok(()) => Asked::Held(Lease { file }),
        Err(libc::EAGAIN) => Asked::OpenForWriting,
        Err(_) => Asked::Unavailable,
    }
}

#[cfg(target_os = "linux")]
fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> Result<libc::c_int, i32> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and each command used here takes an integer.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(result) }
}

#[cfg(target_os = "linux")]
fn take(file: &File) -> Result<(), i32> {
    // F_SETSIG of the kernel's generic ABI; the libc crate does not name it.
    const F_SETSIG: libc::c_int = 10;
    control(file, F_SETSIG, libc::SIGURG)?;
    control(file, libc::F_SETLEASE, libc::F_RDLCK)?;
    control(file, libc::F_SETOWN, 0).map(|_| ())
}

#[cfg(target_os = "linux")]
fn whole(file: &File) -> bool {
    control(file, libc::F_GETLEASE, 0) == Ok(libc::F_RDLCK)
}

#[cfg(target_os = "linux")]
fn release(file: &File) {
    // Closing the file gives the lease back as well, so a failure needs no answer.
    let _ignored = control(file, libc::F_SETLEASE, libc::F_UNLCK);
}

#[cfg(not(target_os = "linux"))]
fn take(_file: &File) -> Result<(), i32> {
    Err(libc::EINVAL)
}

#[cfg(not(target_os = "linux"))]
fn whole(_file: &File) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn release(_file: &File) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_writer_is_noticed_before_and_after() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        let writer = File::create(&path).expect("create");
        let reader = File::open(&path).expect("open");
        assert!(matches!(ask(&reader), Asked::OpenForWriting | Asked::Unavailable));
        drop(writer);
        let Asked::Held(lease) = ask(&reader) else {
            eprintln!("SKIPPED a_writer_is_noticed_before_and_after: no leases here");
            return;
        };
        assert!(lease.is_whole());
        let opened = std::fs::OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(opened.expect_err("a lease is held").raw_os_error(), Some(libc::EAGAIN));
        assert!(!lease.is_whole());
    }

    #[cfg(target_os = "linux")]
    use std::os::unix::fs::OpenOptionsExt;
}
