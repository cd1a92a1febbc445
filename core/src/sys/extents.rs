//! Where the blocks of a file lie, and files that share them.

use std::fs::File;

use rustix::io::Errno;

/// One stretch of a file that has blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub logical: u64,
    /// Where it lies on the file system's own address space, in bytes.
    pub physical: u64,
    /// Bytes; the last one may go beyond the end of the file.
    pub length: u64,
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
}

/// The extent is the last of the file.
pub const LAST: u32 = 0x1;
/// Space that was reserved and never written: it reads as zeros.
pub const UNWRITTEN: u32 = 0x800;
/// Several extents of the file system in one.
pub const MERGED: u32 = 0x1000;
/// Its blocks belong to other files as well.
pub const SHARED: u32 = 0x2000;

/// More extents than that are not worth the memory: 4 GiB in single blocks.
const MOST: usize = 1 << 20;

/// The extents of a file in ascending order, after what was written to it has reached its blocks.
///
/// # Errors
/// What FIEMAP gives (EOPNOTSUPP, ENOTTY: not here); EOVERFLOW for more than about a million; EIO for an answer that makes no sense.
#[cfg(target_os = "linux")]
pub fn extents(file: &File) -> Result<Vec<Extent>, Errno> {
    let mut found: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let request = linux::ask(file, start)?;
        let Some(last) = request.last().copied() else { return Ok(found) };
        for extent in request {
            let end = extent.logical.checked_add(extent.length).ok_or(Errno::IO)?;
            if extent.length == 0 || end <= start || found.last().is_some_and(|before| extent.logical < before.logical + before.length) {
                return Err(Errno::IO);
            }
            found.push(extent);
        }
        if last.flags & LAST != 0 {
            return Ok(found);
        }
        if found.len() > MOST {
            return Err(Errno::OVERFLOW);
        }
        start = last.logical + last.length;
    }
}

/// As on Linux, which alone tells.
///
/// # Errors
/// Always EOPNOTSUPP.
#[cfg(not(target_os = "linux"))]
pub fn extents(_file: &File) -> Result<Vec<Extent>, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Makes the empty file `to` share all blocks of `from`, as they are at one instant between two writes.
///
/// # Errors
/// What FICLONE gives; EOPNOTSUPP elsewhere than on Linux.
pub fn share(from: &File, to: &File) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    loop {
        match rustix::fs::ioctl_ficlone(to, from) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        std::hint::black_box((from, to));
        Err(Errno::OPNOTSUPP)
    }
}

/// Whether the file lies on XFS or btrfs: there a block that two files share is never written in place, and its address says
/// which block it is.
#[must_use]
pub fn blocks_tell(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        const XFS: u64 = 0x5846_5342;
        const BTRFS: u64 = 0x9123_683e;
        rustix::fs::fstatfs(file).is_ok_and(|system| matches!(u64::try_from(system.f_type).unwrap_or_default() & 0xffff_ffff, XFS | BTRFS))
    }
    #[cfg(not(target_os = "linux"))]
    {
        std::hint::black_box(file);
        false
    }
}

/// Whether the first change of a file after a look at its times gives it another time than the look saw (Linux from 6.13 on); else
/// two changes within one tick of the clock look the same.
#[must_use]
pub fn every_change_has_its_time() -> bool {
    let release = super::fs::read_optional(std::path::Path::new("/proc/sys/kernel/osrelease")).ok().flatten().unwrap_or_default();
    cfg!(target_os = "linux") && release_has_fine_times(&String::from_utf8_lossy(&release))
}

fn release_has_fine_times(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 13))
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Errno, Extent, File};
    use rustix::ioctl::opcode;
    use std::os::fd::AsRawFd;

    /// Extents in one answer.
    const AT_ONCE: usize = 512;
    const FLAG_SYNC: u32 = 0x1;

    /// `struct fiemap`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Header {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        room: u32,
        reserved: u32,
    }

    /// `struct fiemap_extent`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Raw {
        logical: u64,
        physical: u64,
        length: u64,
        reserved: [u64; 2],
        flags: u32,
        reserved_too: [u32; 3],
    }

    #[repr(C)]
    struct Request {
        header: Header,
        extents: [Raw; AT_ONCE],
    }

    const FS_IOC_FIEMAP: u32 = opcode::read_write::<Header>(b'f', 11);

    /// The next extents from `start` on; none where there are no more.
    pub(super) fn ask(file: &File, start: u64) -> Result<Vec<Extent>, Errno> {
        let none = Raw { logical: 0, physical: 0, length: 0, reserved: [0; 2], flags: 0, reserved_too: [0; 3] };
        let header = Header { start, length: u64::MAX - start, flags: FLAG_SYNC, mapped: 0, room: AT_ONCE as u32, reserved: 0 };
        let mut request = Box::new(Request { header, extents: [none; AT_ONCE] });
        loop {
            // SAFETY: FIEMAP writes the header and at most `room` extents behind it, which is what `Request` has; the descriptor is open.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as libc::Ioctl, &raw mut *request) };
            if result == 0 {
                break;
            }
            match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR) => {}
                other => return Err(other.unwrap_or(Errno::IO)),
            }
        }
        let mapped = usize::try_from(request.header.mapped).unwrap_or(AT_ONCE).min(AT_ONCE);
        let extent = |raw: &Raw| Extent { logical: raw.logical, physical: raw.physical, length: raw.length, flags: raw.flags };
        Ok(request.extents.iter().take(mapped).map(extent).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clone::tests::Image;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_release_tells_whether_times_are_fine() {
        for (release, fine) in
            [("6.13.0", true), ("6.18.44-x", true), ("7.0", true), ("6.12.9", false), ("5.15.0-generic", false), ("", false)]
        {
            assert_eq!(release_has_fine_times(release), fine, "{release}");
        }
    }

    #[test]
    fn a_clone_has_the_blocks_of_its_source_until_one_is_written() {
        for kind in ["xfs", "btrfs"] {
            let Some(image) = Image::new("a_clone_has_the_blocks_of_its_source_until_one_is_written", kind, &["-q"]) else { return };
            let file = |name: &str| crate::sys::fs::create_new(&image.path().join(name), 0o600).expect("file");
            let (source, clone) = (file("source"), file("clone"));
            assert_eq!(extents(&source), Ok(Vec::new()), "{kind}");
            source.write_all_at(&vec![1; 1 << 20], 0).expect("write");
            source.write_all_at(&vec![2; 1 << 20], 3 << 20).expect("write");
            share(&source, &clone).expect("share");
            assert!(blocks_tell(&clone));
            let plain = |file: &File| -> Vec<(u64, u64, u64)> {
                let found = extents(file).expect("extents");
                assert!(found.iter().all(|extent| extent.flags & !(LAST | SHARED | MERGED) == 0), "{kind}");
                found.iter().map(|extent| (extent.logical, extent.physical, extent.length)).collect()
            };
            assert_eq!(plain(&source), plain(&clone), "{kind}");
            assert_eq!(plain(&clone).iter().map(|extent| extent.2).sum::<u64>(), 2 << 20, "{kind}");
            source.write_all_at(&[3; 8192], 512 << 10).expect("write");
            assert_ne!(plain(&source), plain(&clone), "{kind}");
            // More extents than fit into one answer.
            for block in (0..1500).step_by(2) {
                source.write_all_at(&[4; 4096], (4 << 20) + block * 8192).expect("write");
            }
            let found = extents(&source).expect("extents").len();
            assert!(found > 600, "{kind}: {found}");
        }
    }
}
