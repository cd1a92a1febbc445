//! What this kernel lets this process do, found by trying it in a child that ends at once.

use std::io::{Error, Result};

/// The version of Landlock's interface.
///
/// # Errors
/// ENOSYS where the kernel has none, EOPNOTSUPP where it is switched off.
#[cfg(target_os = "linux")]
pub fn landlock_abi() -> Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attributes, makes nothing and gives a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(abi).map_err(|_| Error::last_os_error())
}

/// Whether a seccomp filter can be put on a process without privileges.
///
/// # Errors
/// Why the kernel refuses it.
#[cfg(target_os = "linux")]
pub fn attempt_seccomp() -> Result<()> {
    const ALLOW: u32 = 0x7fff_0000;
    const RETURN: u16 = 0x06;
    let mut allow_all = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW }];
    let program = libc::sock_fprog { len: 1, filter: allow_all.as_mut_ptr() };
    let errno = super::spawn::ask_child(|| {
        // SAFETY: plain numbers; concerns this child alone.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return last_errno();
        }
        // SAFETY: the program and its one instruction live until the call returns.
        let set = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
        if set == 0 { 0 } else { last_errno() }
    })?;
    answer(errno)
}

/// Whether this process can have a file descriptor that stands for a process.
///
/// # Errors
/// Why the kernel refuses it.
#[cfg(target_os = "linux")]
pub fn attempt_pidfd() -> Result<()> {
    rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn last_errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(target_os = "linux")]
fn answer(errno: Option<i32>) -> Result<()> {
    match errno {
        Some(0) => Ok(()),
        Some(errno) => Err(Error::from_raw_os_error(errno)),
        None => Err(Error::other("the child that tried it was killed")),
    }
}

/// There is none on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn landlock_abi() -> Result<u32> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}

/// There is none on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn attempt_seccomp() -> Result<()> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}

/// There is none on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn attempt_pidfd() -> Result<()> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}
