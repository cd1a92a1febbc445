//! Subvolumes of btrfs: made, snapshotted at one instant, destroyed in one step.

use std::path::Path;

use rustix::io::Errno;

/// Whether `path` is the top folder of a subvolume of btrfs.
#[must_use]
pub fn is_subvolume(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // The number that the top folder of every subvolume has.
    const TOP: u64 = 256;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.ino() == TOP) && is_btrfs(path)
}

/// The number of the empty folder that a snapshot has where its source held another subvolume.
pub const NESTED: u64 = 2;

#[cfg(target_os = "linux")]
pub use linux::{create, destroy, identity, is_btrfs, snapshot};

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

    const GROUP: u8 = 0x94;
    const MAGIC: u64 = 0x9123_683e;

    /// `struct btrfs_ioctl_vol_args`.
    #[repr(C)]
    struct Arguments {
        fd: i64,
        name: [u8; 4088],
    }

    /// `struct btrfs_ioctl_vol_args_v2`.
    #[repr(C)]
    struct Arguments2 {
        fd: i64,
        transaction: u64,
        flags: u64,
        unused: [u64; 4],
        name: [u8; 4040],
    }

    /// The part of `struct btrfs_ioctl_fs_info_args` that is used, and the rest of its 1024 bytes.
    #[repr(C)]
    struct Information {
        devices: [u64; 2],
        identity: [u8; 16],
        rest: [u8; 992],
    }

    const INFORMATION: Opcode = opcode::read::<Information>(GROUP, 31);
    const CREATE: Opcode = opcode::write::<Arguments>(GROUP, 14);
    const DESTROY: Opcode = opcode::write::<Arguments>(GROUP, 15);
    const SNAPSHOT: Opcode = opcode::write::<Arguments2>(GROUP, 23);

    /// Whether `path` lies on btrfs; `false` where that cannot be told.
    #[must_use]
    pub fn is_btrfs(path: &Path) -> bool {
        rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == MAGIC)
    }

    /// What tells one btrfs from another, the same in all its subvolumes (whose device numbers differ); `None` where `path` is
    /// not on btrfs or cannot be opened.
    #[must_use]
    pub fn identity(path: &Path) -> Option<[u8; 16]> {
        if !is_btrfs(path) {
            return None;
        }
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // SAFETY: BTRFS_IOC_FS_INFO fills one `btrfs_ioctl_fs_info_args`, for which every pattern of bits is a value.
        let request = unsafe { Getter::<INFORMATION, Information>::new() };
        // SAFETY: as above.
        let found = unsafe { ioctl(&file, request) }.ok()?;
        Some(found.identity)
    }

    /// Makes an empty subvolume with the mode that a new folder gets.
    ///
    /// # Errors
    /// EEXIST; ENOTTY, EOPNOTSUPP where the folder is not on btrfs; EACCES, EPERM, EROFS, ENOSPC.
    pub fn create(path: &Path) -> Result<(), Errno> {
        let (parent, name) = parent(path)?;
        let arguments = Arguments { fd: 0, name: terminated(name)? };
        // SAFETY: BTRFS_IOC_SUBVOL_CREATE reads one `btrfs_ioctl_vol_args` and keeps no pointer to it.
        let request = unsafe { Setter::<CREATE, Arguments>::new(arguments) };
        // SAFETY: as above.
        unsafe { ioctl(&parent, request) }
    }

    /// Makes the new, writable subvolume `target`: the subvolume `source` as it is at one instant, together with all that was
    /// made durable before. Returns when that is durable itself. Subvolumes inside it are empty folders there.
    ///
    /// # Errors
    /// EXDEV for another file system, EINVAL where `source` is no subvolume, EPERM where it belongs to someone else, and as
    /// [`create`].
    pub fn snapshot(source: &Path, target: &Path) -> Result<(), Errno> {
        let source = rustix::fs::open(source, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let (parent, name) = parent(target)?;
        let arguments = Arguments2 { fd: source.as_raw_fd().into(), transaction: 0, flags: 0, unused: [0; 4], name: terminated(name)? };
        // SAFETY: BTRFS_IOC_SNAP_CREATE_V2 reads one `btrfs_ioctl_vol_args_v2`; its descriptor is open during the call.
        let request = unsafe { Setter::<SNAPSHOT, Arguments2>::new(arguments) };
        // SAFETY: as above.
        unsafe { ioctl(&parent, request) }
    }

    /// Removes a subvolume with everything in it. The space comes back later, in the background.
    ///
    /// # Errors
    /// EPERM for an ordinary user (unless mounted with `user_subvol_rm_allowed`), ENOTEMPTY where another subvolume is inside,
    /// EBUSY for a mount point, ENOENT, EROFS.
    pub fn destroy(path: &Path) -> Result<(), Errno> {
        let (parent, name) = parent(path)?;
        let arguments = Arguments { fd: 0, name: terminated(name)? };
        // SAFETY: BTRFS_IOC_SNAP_DESTROY reads one `btrfs_ioctl_vol_args` and keeps no pointer to it.
        let request = unsafe { Setter::<DESTROY, Arguments>::new(arguments) };
        // SAFETY: as above.
        unsafe { ioctl(&parent, request) }
    }

    fn parent(path: &Path) -> Result<(File, &[u8]), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.as_bytes();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((File::from(folder), name))
    }

    /// The name with a NUL behind it, in an array of its own size.
    fn terminated<const N: usize>(name: &[u8]) -> Result<[u8; N], Errno> {
        let mut field = [0; N];
        // One less than the array: the last byte stays NUL.
        let room = field.get_mut(..name.len()).filter(|_| name.len() < N).ok_or(Errno::NAMETOOLONG)?;
        room.copy_from_slice(name);
        Ok(field)
    }
}

/// Whether `path` lies on btrfs.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_btrfs(_path: &Path) -> bool {
    false
}

/// There is no btrfs on this system.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn identity(_path: &Path) -> Option<[u8; 16]> {
    None
}

/// Makes an empty subvolume.
///
/// # Errors
/// EOPNOTSUPP: there is no btrfs on this system.
#[cfg(not(target_os = "linux"))]
pub fn create(_path: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Makes a snapshot.
///
/// # Errors
/// As [`create`].
#[cfg(not(target_os = "linux"))]
pub fn snapshot(_source: &Path, _target: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Removes a subvolume.
///
/// # Errors
/// As [`create`].
#[cfg(not(target_os = "linux"))]
pub fn destroy(_path: &Path) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Whether a refusal means that this way is not there, as opposed to a fault of the disk.
#[must_use]
pub fn refused(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::PERM
            | Errno::ACCESS
            | Errno::NOTEMPTY
            | Errno::BUSY
            | Errno::DQUOT
            | Errno::NAMETOOLONG
            | Errno::TXTBSY
    )
}
