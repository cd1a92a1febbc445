//! FIEMAP: where the content of a file lies on its file system, and whether it shares that place with other files.

use std::fs::File;

use rustix::io::Errno;

/// One extent of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Place on the file system's device; means nothing where the flags say that it is unknown or inline.
    pub physical: u64,
    /// Length in the file; that on the device is smaller where the flags say that it is encoded (compressed).
    pub length: u64,
    /// `FLAG_*`.
    pub flags: u32,
}

/// The last extent of the file.
pub const FLAG_LAST: u32 = 0x1;
/// The place is not known.
pub const FLAG_UNKNOWN: u32 = 0x2;
/// No place was chosen yet: content that is in memory alone.
pub const FLAG_DELALLOC: u32 = 0x4;
/// Compressed or encrypted: the content is not what lies at the place.
pub const FLAG_ENCODED: u32 = 0x8;
/// Encrypted.
pub const FLAG_ENCRYPTED: u32 = 0x80;
/// Offsets are not those of whole blocks.
pub const FLAG_NOT_ALIGNED: u32 = 0x100;
/// The content lies among metadata.
pub const FLAG_INLINE: u32 = 0x200;
/// Blocks that several files share in part.
pub const FLAG_TAIL: u32 = 0x400;
/// Allocated, and zeros until it is written.
pub const FLAG_UNWRITTEN: u32 = 0x800;
/// Put together from smaller pieces for this answer.
pub const FLAG_MERGED: u32 = 0x1000;
/// Shared with another file, or with another place of this one.
pub const FLAG_SHARED: u32 = 0x2000;

impl Extent {
    /// Whether others have it too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags & FLAG_SHARED != 0
    }
}

/// All extents of a file, in order, after its content was given its place (FIEMAP with SYNC; `sync` false leaves that out).
///
/// # Errors
/// EOPNOTSUPP, ENOTTY where the file system cannot tell (tmpfs, network file systems, other systems than Linux); EIO and
/// ENOSPC of the sync.
pub fn extents(file: &File, sync: bool) -> Result<Vec<Extent>, Errno> {
    extents_from(file, 0, u64::MAX, sync)
}

/// Those that touch the bytes from `start` on, `length` of them.
///
/// # Errors
/// As [`extents`].
pub fn extents_from(file: &File, start: u64, length: u64, sync: bool) -> Result<Vec<Extent>, Errno> {
    let mut found: Vec<Extent> = Vec::new();
    let end = start.saturating_add(length);
    let mut next = start;
    while next < end {
        // The first look has given all of it its place.
        let piece = ask(file, next, end - next, sync && next == start)?;
        let Some(last) = piece.last().copied() else { break };
        found.extend(piece);
        let after = last.logical.saturating_add(last.length);
        if last.flags & FLAG_LAST != 0 || after <= next {
            break;
        }
        next = after;
    }
    Ok(found)
}

#[cfg(target_os = "linux")]
fn ask(file: &File, start: u64, length: u64, sync: bool) -> Result<Vec<Extent>, Errno> {
    use rustix::ioctl::{Updater, ioctl, opcode};

    const AT_ONCE: usize = 512;
    const SYNC: u32 = 1;

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

    /// `struct fiemap` without its array of extents, whose size alone is in the request's number.
    #[repr(C)]
    struct Head {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        count: u32,
        reserved: u32,
    }

    #[repr(C)]
    struct Map {
        head: Head,
        extents: [Raw; AT_ONCE],
    }

    const NOTHING: Raw = Raw { logical: 0, physical: 0, length: 0, reserved: [0; 2], flags: 0, reserved_too: [0; 3] };
    let head = Head { start, length, flags: if sync { SYNC } else { 0 }, mapped: 0, count: AT_ONCE as u32, reserved: 0 };
    let mut map = Box::new(Map { head, extents: [NOTHING; AT_ONCE] });
    // SAFETY: FS_IOC_FIEMAP reads the head and writes at most `count` extents behind it, for which the map has room.
    let request = unsafe { Updater::<{ opcode::read_write::<Head>(b'f', 11) }, Map>::new(&mut map) };
    // SAFETY: as above; the map outlives the call.
    unsafe { ioctl(file, request) }?;
    let mapped = usize::try_from(map.head.mapped).unwrap_or(0).min(AT_ONCE);
    let extent = |raw: &Raw| Extent { logical: raw.logical, physical: raw.physical, length: raw.length, flags: raw.flags };
    Ok(map.extents.iter().take(mapped).map(extent).collect())
}

#[cfg(not(target_os = "linux"))]
fn ask(_file: &File, _start: u64, _length: u64, _sync: bool) -> Result<Vec<Extent>, Errno> {
    Err(Errno::OPNOTSUPP)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn extents_are_those_that_were_written() {
        let file = tempfile::tempfile().expect("file");
        let block = vec![7_u8; 64 << 10];
        // Far apart, so that there are more extents than one look gives.
        let count = 600_u64;
        for n in 0..count {
            file.write_all_at(&block[..4096], n * (64 << 10)).expect("write");
        }
        let found = match extents(&file, true) {
            Ok(found) => found,
            Err(errno) => {
                eprintln!("SKIPPED extents_are_those_that_were_written: no FIEMAP here: {errno}");
                return;
            }
        };
        let data: u64 = found.iter().filter(|extent| extent.flags & FLAG_UNWRITTEN == 0).map(|extent| extent.length).sum();
        assert_eq!(data, count * 4096);
        assert!(found.windows(2).all(|pair| pair[0].logical + pair[0].length <= pair[1].logical));
        assert!(found.iter().all(|extent| !extent.is_shared()));
        let part = extents_from(&file, 64 << 10, 4096, true).expect("part");
        assert_eq!(part.iter().map(|extent| extent.logical).collect::<Vec<_>>(), [64 << 10]);
    }

    #[test]
    fn an_empty_file_has_none() {
        let file = tempfile::tempfile().expect("file");
        if let Ok(found) = extents(&file, true) {
            assert_eq!(found, []);
        }
    }
}
