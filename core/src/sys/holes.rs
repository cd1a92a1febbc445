//! Where a sparse file has no blocks.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const TMPFS: u64 = 0x0102_1994;

/// The holes of a file of `size` bytes as (offset, length), in order. Empty where the file system is not one whose
/// SEEK_HOLE is known to tell the truth (ext4, XFS, btrfs, tmpfs). Moves the file's position.
///
/// # Errors
/// What lseek gives.
pub fn holes(file: &File, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
    let mut found = Vec::new();
    if !trusted(file) {
        return Ok(found);
    }
    let mut position = 0;
    while position < size {
        let data = match rustix::fs::seek(file, SeekFrom::Data(position)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        if data > position {
            found.push((position, data - position));
        }
        if data >= size {
            break;
        }
        position = match rustix::fs::seek(file, SeekFrom::Hole(data)) {
            Ok(hole) if hole > data => hole,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
    }
    Ok(found)
}

/// The pieces of `0..size` that are in none of the holes, as (offset, length).
#[must_use]
pub fn data(holes: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut position = 0;
    for &(offset, length) in holes {
        if offset > position {
            pieces.push((position, offset.min(size) - position));
        }
        position = offset.saturating_add(length).max(position);
        if position >= size {
            return pieces;
        }
    }
    pieces.push((position, size - position));
    pieces.retain(|&(_, length)| length > 0);
    pieces
}

#[cfg(target_os = "linux")]
fn trusted(file: &File) -> bool {
    let Ok(system) = rustix::fs::fstatfs(file) else { return false };
    let magic = u64::try_from(system.f_type).unwrap_or(0) & 0xffff_ffff;
    matches!(magic, EXT4 | XFS | BTRFS | TMPFS)
}

#[cfg(not(target_os = "linux"))]
fn trusted(_file: &File) -> bool {
    let _ = (EXT4, XFS, BTRFS, TMPFS);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_what_the_holes_leave() {
        assert_eq!(data(&[], 10), [(0, 10)]);
        assert_eq!(data(&[(0, 10)], 10), []);
        assert_eq!(data(&[(2, 3), (7, 3)], 10), [(0, 2), (5, 2)]);
        assert_eq!(data(&[(0, 4)], 10), [(4, 6)]);
        assert_eq!(data(&[], 0), []);
    }

    #[test]
    fn a_sparse_file_has_its_holes_found() {
        let file = tempfile::tempfile().expect("file");
        let mib = 1 << 20;
        rustix::io::pwrite(&file, &[1; 4096], mib).expect("write");
        file.set_len(3 * mib).expect("size");
        let found = holes(&file, 3 * mib).expect("holes");
        assert!(found.is_empty() || found == [(0, mib), (mib + 4096, 2 * mib - 4096)], "{found:?}");
    }
}
