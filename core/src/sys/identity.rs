//! Running a program as somebody else: in a user namespace, or under another account.

use std::ffi::CString;
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::spawn;

/// A change of identity, prepared so that it can be made between fork and exec by system calls alone.
#[derive(Debug, Clone)]
pub struct Switch {
    kind: Kind,
    /// Away from the machine's network and System V objects.
    apart: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    Stay,
    Namespace { uid_map: Vec<u8>, gid_map: Vec<u8> },
    Account { uid: u32, gid: u32 },
}

impl Switch {
    /// No change.
    #[must_use]
    pub fn stay() -> Self {
        Self { kind: Kind::Stay, apart: false }
    }

    /// A new user namespace in which this process's user and group appear as `uid` and `gid`.
    #[must_use]
    pub fn namespace(uid: u32, gid: u32) -> Self {
        let outside = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let uid_map = format!("{uid} {} 1", outside.0).into_bytes();
        let gid_map = format!("{gid} {} 1", outside.1).into_bytes();
        Self { kind: Kind::Namespace { uid_map, gid_map }, apart: false }
    }

    /// Another account, with its group alone.
    #[must_use]
    pub fn account(uid: u32, gid: u32) -> Self {
        Self { kind: Kind::Account { uid, gid }, apart: false }
    }

    /// The same in a network namespace of its own, in which only the loopback interface is, and an IPC namespace of its own.
    /// Who stays itself gets a user namespace for it, in which it is called as outside.
    #[must_use]
    pub fn apart(self) -> Self {
        let kind = match self.kind {
            Kind::Stay => Self::namespace(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()).kind,
            other => other,
        };
        Self { kind, apart: true }
    }

    /// Makes `command` change before it executes.
    pub fn apply_to(&self, command: &mut Command) {
        let switch = self.clone();
        // SAFETY: `make` and umask make system calls only, on data prepared before the fork.
        unsafe { command.pre_exec(move || switch.make()) };
    }

    /// Tries the change in a child.
    ///
    /// # Errors
    /// Why the kernel refuses it.
    pub fn attempt(&self) -> Result<()> {
        match spawn::ask_child(|| errno_of(self.make()))? {
            Some(0) => Ok(()),
            Some(errno) => Err(Error::from_raw_os_error(errno)),
            None => Err(Error::other("the child that tried it was killed")),
        }
    }

    /// Tries the change in a child, and then a network namespace of its own.
    ///
    /// # Errors
    /// Why the kernel refuses either.
    pub fn attempt_with_network(&self) -> Result<()> {
        let unshare = || {
            self.make()?;
            // SAFETY: the caller is a fresh child with one thread.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
        };
        match spawn::ask_child(|| errno_of(unshare()))? {
            Some(0) => Ok(()),
            Some(errno) => Err(Error::from_raw_os_error(errno)),
            None => Err(Error::other("the child that tried it was killed")),
        }
    }

    /// The index of the first path that cannot be accessed so (`libc::X_OK` and its like) after the change.
    ///
    /// # Errors
    /// As [`Switch::attempt`].
    pub fn first_inaccessible(&self, paths: &[(PathBuf, i32)]) -> Result<Option<usize>> {
        let mut wanted = Vec::new();
        for (path, mode) in paths {
            wanted.push((CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?, *mode));
        }
        let first = |wanted: &[(CString, i32)]| {
            // SAFETY: the path is NUL-terminated and lives.
            wanted.iter().position(|(path, mode)| unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), *mode, libc::AT_EACCESS) } != 0)
        };
        if matches!(self.kind, Kind::Stay) {
            return Ok(first(&wanted));
        }
        let answer = spawn::ask_child(|| {
            if let Err(error) = self.make() {
                return -errno_of(Err(error));
            }
            first(&wanted).and_then(|index| i32::try_from(index + 1).ok()).unwrap_or(0)
        })?;
        match answer {
            Some(0) => Ok(None),
            Some(number) if number > 0 => Ok(usize::try_from(number - 1).ok()),
            Some(errno) => Err(Error::from_raw_os_error(-errno)),
            None => Err(Error::other("the child that tried it was killed")),
        }
    }

    fn make(&self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        match &self.kind {
            Kind::Stay => Ok(()),
            Kind::Namespace { uid_map, gid_map } => {
                let more = if self.apart { APART } else { 0 };
                // SAFETY: the caller is a fresh child with one thread.
                check(unsafe { libc::unshare(libc::CLONE_NEWUSER | more) })?;
                put(c"/proc/self/setgroups", b"deny")?;
                put(c"/proc/self/uid_map", uid_map)?;
                put(c"/proc/self/gid_map", gid_map)?;
                if self.apart { raise_loopback() } else { Ok(()) }
            }
            Kind::Account { uid, gid } => {
                if self.apart {
                    // SAFETY: the caller is a fresh child with one thread.
                    check(unsafe { libc::unshare(APART) })?;
                    raise_loopback()?;
                }
                // By raw system call: the library's wrappers would signal threads that a child does not have.
                // SAFETY: one group id at a valid address.
                check_long(unsafe { libc::syscall(libc::SYS_setgroups, 1, std::ptr::from_ref(gid)) })?;
                // SAFETY: plain numbers.
                check_long(unsafe { libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) })?;
                // SAFETY: plain numbers.
                check_long(unsafe { libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) })
            }
        }
    }
}

const APART: i32 = libc::CLONE_NEWNET | libc::CLONE_NEWIPC;

/// Brings up the loopback interface of a new network namespace: servers before 15 talk to themselves over it.
fn raise_loopback() -> Result<()> {
    // SAFETY: plain numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(socket)?;
    // SAFETY: ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = libc::c_char::from_ne_bytes([*letter]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives for the call and has the interface's name.
    let raised = check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request) });
    // SAFETY: opened above.
    unsafe { libc::close(socket) };
    raised
}

/// Makes `command` a server of the calling process: a session of its own, no inherited descriptor above 2, and SIGINT when
/// the calling thread dies. Apply it after every change of identity, which would clear that signal.
pub fn dies_with_caller(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: `begin_service` makes system calls only.
    unsafe { command.pre_exec(move || begin_service(parent)) };
}

fn begin_service(parent: u32) -> Result<()> {
    spawn::default_signals();
    // Only marked to close at exec: std's own pipe for a failed exec must live until then.
    // SAFETY: plain numbers; older kernels refuse, and then the descriptors' own flags hold.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) })?;
    // The caller may have died before the signal was set.
    // SAFETY: takes nothing and cannot fail.
    if u32::try_from(unsafe { libc::getppid() }) == Ok(parent) { Ok(()) } else { Err(Error::from_raw_os_error(libc::ESRCH)) }
}

/// Lets the calling thread look at files and processes as somebody else, until it is dropped. Other threads are not touched.
#[derive(Debug)]
pub struct Look {
    before: (u32, u32),
}

impl Look {
    /// As `uid` and `gid`; only root can.
    #[must_use]
    pub fn as_account(uid: u32, gid: u32) -> Self {
        let before = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        set_look(uid, gid, false);
        Self { before }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        set_look(self.before.0, self.before.1, true);
    }
}

/// The user comes last on the way down and first on the way back: without it the group cannot be set.
fn set_look(uid: u32, gid: u32, user_first: bool) {
    if user_first {
        // SAFETY: a plain number; changes this thread alone and cannot fail in a way that matters.
        unsafe { libc::setfsuid(uid) };
    }
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) };
    if !user_first {
        // SAFETY: as above.
        unsafe { libc::setfsuid(uid) };
    }
}

/// Whether the machine knows a name for this uid, which initdb asks for.
#[must_use]
pub fn has_passwd_entry(uid: u32) -> bool {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut buffer = vec![0; 64 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call and the length is the buffer's.
    let failed = unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
    failed == 0 && !found.is_null()
}

fn put(path: &std::ffi::CStr, bytes: &[u8]) -> Result<()> {
    // SAFETY: the path is NUL-terminated.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    check(descriptor)?;
    // SAFETY: the bytes live; these files take one write.
    let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
    let failed = Error::last_os_error();
    // SAFETY: opened above.
    unsafe { libc::close(descriptor) };
    if written < 0 { Err(failed) } else { Ok(()) }
}

fn check(status: i32) -> Result<()> {
    if status < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn check_long(status: libc::c_long) -> Result<()> {
    if status < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn errno_of(result: Result<()>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO))
}
