//! Signals as a descriptor to poll, for programs of forklift; the library never touches a host's signals.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that arrived, read from a descriptor.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals for this process (which must have one thread) and collects them.
    ///
    /// # Errors
    /// That of signalfd.
    pub fn collect(signals: &[i32]) -> std::io::Result<Self> {
        // SAFETY: sigset_t is plain data for which all zeroes is the empty set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in signals {
            // SAFETY: the set is valid for writing.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        // SAFETY: the set is valid and no old set is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        // SAFETY: a new descriptor for a valid set.
        let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: made above.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The next signal that arrived, `None` where there is none.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        // SAFETY: plain data.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of_val(&info);
        // SAFETY: reads one whole record into a live struct.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
        (usize::try_from(read) == Ok(size)).then(|| i32::try_from(info.ssi_signo).unwrap_or(0))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
