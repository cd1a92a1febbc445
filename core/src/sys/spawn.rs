//! Child processes that the host program does not notice: no SIGCHLD, no zombie, no inherited descriptor.
//!
//! A child is made with exit signal 0 (so its end sends nothing) and does not exec (which would reset that); what runs on
//! is its own child, which init adopts. Between clone and exec only system calls are made: other threads of the host may
//! hold any lock.

use std::ffi::{CString, OsStr};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// Starts a program that is nobody's child, in a session of its own, with exactly `descriptors` open as 0, 1, 2, and so on.
/// Returns once it executes.
///
/// # Errors
/// The reason why it could not be made or executed; nothing is left then.
pub fn detached(program: &OsStr, environment: &[(&str, &OsStr)], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let path = text(program.as_bytes())?;
    let mut variables = Vec::new();
    for (name, value) in environment {
        variables.push(text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    let arguments = [path.as_ptr(), std::ptr::null()];
    let environment: Vec<_> = variables.iter().map(|variable| variable.as_ptr()).chain([std::ptr::null()]).collect();
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    // Room for the descriptors' copies above all numbers they will end up with.
    let mut moved = vec![0; raw.len()];
    let errno = answer_of_child(|answer| {
        // SAFETY: a fork by raw system call in a process that has one thread.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            0 => tell(answer, become_program(&path, &arguments, &environment, &raw, &mut moved, answer)),
            -1 => tell(answer, last_errno()),
            _ => {}
        }
    })?;
    match errno {
        None => Ok(()),
        Some(errno) => Err(Error::from_raw_os_error(errno)),
    }
}

/// Runs `work` in a short-lived child and gives the number it answered, `None` where it ended without an answer.
///
/// # Errors
/// Those of pipe and clone.
pub(super) fn ask_child(work: impl FnOnce() -> i32) -> Result<Option<i32>> {
    answer_of_child(|answer| {
        let number = work();
        tell(answer, number);
    })
}

/// `work` runs in the child and must make system calls only. The answer pipe closes at exec.
fn answer_of_child(work: impl FnOnce(RawFd)) -> Result<Option<i32>> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let blocked = block_signals();
    // SAFETY: all arguments zero: a fork whose end sends no signal. The child makes system calls only and then exits.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if pid == 0 {
        work(write.as_raw_fd());
        // SAFETY: ends the child at once, without running anything of the host's.
        unsafe { libc::_exit(0) }
    }
    let failed = Error::last_os_error();
    restore_signals(&blocked);
    drop(write);
    let pid = match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => pid,
        _ => return Err(failed),
    };
    let answer = read_answer(&read);
    reap(pid);
    Ok(answer)
}

fn read_answer(read: &OwnedFd) -> Option<i32> {
    let mut bytes = [0; 4];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(read, rest) {
            Ok(0) => return None,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(i32::from_ne_bytes(bytes))
}

/// The host may have reaped it already, or ignore its children: both are fine.
fn reap(pid: libc::pid_t) {
    let mut status = 0;
    loop {
        // SAFETY: the status pointer is valid for the call.
        let done = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if done >= 0 || last_errno() != libc::EINTR {
            return;
        }
    }
}

/// In the grandchild: gives the errno of the step that failed.
fn become_program(
    path: &CString,
    arguments: &[*const libc::c_char; 2],
    environment: &[*const libc::c_char],
    raw: &[RawFd],
    moved: &mut [RawFd],
    answer: RawFd,
) -> i32 {
    let count = raw.len() as RawFd;
    // SAFETY: setsid takes nothing and fails harmlessly.
    unsafe { libc::setsid() };
    // SAFETY: umask cannot fail.
    unsafe { libc::umask(0o077) };
    // SAFETY: the path is a NUL-terminated constant.
    unsafe { libc::chdir(c"/".as_ptr()) };
    for (descriptor, copy) in raw.iter().zip(moved.iter_mut()) {
        // SAFETY: duplicates a descriptor to a number of at least count + 1.
        *copy = unsafe { libc::fcntl(*descriptor, libc::F_DUPFD_CLOEXEC, count + 1) };
        if *copy < 0 {
            return last_errno();
        }
    }
    // SAFETY: as above.
    let answer_copy = unsafe { libc::fcntl(answer, libc::F_DUPFD_CLOEXEC, count + 1) };
    if answer_copy < 0 {
        return last_errno();
    }
    for (number, copy) in (0..).zip(moved.iter()) {
        // SAFETY: dup2 of an open descriptor; the copy has no CLOEXEC.
        if unsafe { libc::dup2(*copy, number) } < 0 {
            return last_errno();
        }
    }
    // SAFETY: dup3 of an open descriptor that closes at exec.
    if unsafe { libc::dup3(answer_copy, count, libc::O_CLOEXEC) } < 0 {
        return last_errno();
    }
    close_from(count + 1);
    default_signals();
    // SAFETY: path, arguments and environment are NUL-terminated and live until the exec.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    let errno = last_errno();
    // The answer's own number was closed above.
    tell(count, errno);
    errno
}

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: RawFd) {
    // SAFETY: only numbers that nobody in this process uses from here on.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // SAFETY: sysconf reads a limit.
    let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    for number in first..RawFd::try_from(limit).unwrap_or(1024) {
        // SAFETY: as above; a number that is not open is fine.
        unsafe { libc::close(number) };
    }
}

/// Every signal as a program expects it at its start: default action, none blocked.
pub(super) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: sets the default action; numbers that cannot be set fail harmlessly.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: all zeroes is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    restore_signals(&none);
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data for which all zeroes is a value.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut every: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writing.
    unsafe { libc::sigfillset(&raw mut every) };
    // SAFETY: both sets are valid for the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before) };
    before
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the set is valid and no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

fn tell(answer: RawFd, number: i32) {
    let bytes = number.to_ne_bytes();
    // SAFETY: writes four bytes of a live array; a closed pipe is nobody's concern (SIGPIPE is blocked or default here).
    unsafe { libc::write(answer, bytes.as_ptr().cast(), bytes.len()) };
}

fn last_errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn text(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::from_raw_os_error(libc::EINVAL))
}

/// Takes over a descriptor that this process was started with, so that it is closed at the next exec.
#[must_use]
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: fcntl checks the number.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: open, as fcntl has just shown, and passed on by the parent for nobody but the caller.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
