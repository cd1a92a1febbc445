//! Extended attributes of open files: those that a worktree's owner sets, not those the system keeps for itself.

use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes that are captured (`user.*`, file capabilities, POSIX ACLs), sorted by name, and the names of those that
/// could not be read. A file system without attributes has none.
///
/// # Errors
/// What flistxattr gives.
pub fn read(fd: BorrowedFd<'_>) -> Result<(Vec<Attribute>, Vec<Vec<u8>>), Errno> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for name in names(fd)? {
        match value(fd, &name) {
            Ok(value) => found.push((name, value)),
            Err(Errno::NODATA) => {}
            Err(_) => unreadable.push(name),
        }
    }
    found.sort_unstable();
    Ok((found, unreadable))
}

/// Makes the captured kinds of attributes exactly `wanted`, and tells whether all could be set: an ordinary user may not set
/// file capabilities, and some file systems have no attributes.
///
/// # Errors
/// What fsetxattr gives, other than refusals.
pub fn write(fd: BorrowedFd<'_>, wanted: &[(&[u8], &[u8])]) -> Result<bool, Errno> {
    let mut complete = true;
    for name in names(fd)? {
        if !wanted.iter().any(|(wanted, _)| *wanted == name) {
            complete &= allowed(rustix::fs::fremovexattr(fd, name.as_slice()))?;
        }
    }
    for (name, value) in wanted {
        complete &= allowed(rustix::fs::fsetxattr(fd, *name, value, XattrFlags::empty()))?;
    }
    Ok(complete)
}

fn allowed(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NODATA) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn names(fd: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0_u8; 256];
    loop {
        match rustix::fs::flistxattr(fd, list.as_mut_slice()) {
            Ok(length) => {
                list.truncate(length);
                return Ok(list.split(|byte| *byte == 0).filter(|name| captured(name)).map(<[u8]>::to_vec).collect());
            }
            Err(Errno::RANGE) => list.resize(64 << 10, 0),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
    }
}

fn value(fd: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0_u8; 64 << 10];
    let length = rustix::fs::fgetxattr(fd, name, value.as_mut_slice())?;
    value.truncate(length);
    Ok(value)
}

fn captured(name: &[u8]) -> bool {
    name.starts_with(b"user.") || matches!(name, b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default")
}
