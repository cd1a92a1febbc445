//! Taking rights away from a program before it executes: a Landlock ruleset and a system call filter.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use seccompiler::BpfProgram;

/// What a program loses, prepared so that it can be taken between fork and exec by system calls alone.
#[derive(Debug, Clone, Default)]
pub struct Cage {
    /// A Landlock ruleset with all its rules.
    pub ruleset: Option<Arc<OwnedFd>>,
    /// System calls that are refused.
    pub filter: Option<Arc<BpfProgram>>,
}

impl Cage {
    /// Makes `command` enter it. Apply it last: much of what comes before an exec is refused inside.
    pub fn apply_to(&self, command: &mut Command) {
        let cage = self.clone();
        // SAFETY: `enter` makes system calls only, on data prepared before the fork.
        unsafe { command.pre_exec(move || cage.enter()) };
    }

    fn enter(&self) -> Result<()> {
        // Without it neither is possible for an ordinary user; nothing that is executed gains privileges from here on.
        // SAFETY: plain numbers.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        if let Some(ruleset) = &self.ruleset {
            // SAFETY: an open descriptor and no flags.
            check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
        }
        match &self.filter {
            Some(filter) => seccompiler::apply_filter(filter).map_err(|_| Error::last_os_error()),
            None => Ok(()),
        }
    }
}

/// Version of Landlock that the kernel has.
///
/// # Errors
/// `ENOSYS` or `EPERM` where it has none or a container refuses it, `EOPNOTSUPP` where it is switched off.
pub fn landlock_abi() -> Result<i32> {
    // SAFETY: no attributes, as the flag that asks for the version demands.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, LANDLOCK_CREATE_RULESET_VERSION) };
    check(version)?;
    i32::try_from(version).map_err(|_| Error::from_raw_os_error(libc::EOVERFLOW))
}

/// Whether the kernel has filters of system calls that can answer with an error.
///
/// # Errors
/// `ENOSYS`, `EINVAL` or `EPERM` where it has not.
pub fn filters_exist() -> Result<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the action lives for the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) })
}

/// Of landlock(7).
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;

fn check(status: libc::c_long) -> Result<()> {
    if status < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
