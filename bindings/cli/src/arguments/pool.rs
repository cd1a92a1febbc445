//! `forklift pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What can be done with pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool (as root): a file system that shares blocks, in one file, mounted now and after every boot
    ///
    /// For a disk whose own file system shares none, as ext4. A store goes below its mount: `--store PATH/mount/store`, or
    /// FORKLIFT_STORE. The space is reserved at once. One whose making was broken off is made anew.
    Create(PoolCreate),
    /// Show a pool; exit code 1 where it is not mounted or not whole
    Status(PoolPath),
    /// Make a pool larger (as root) while it is used
    Grow(PoolGrow),
    /// Unmount a pool and remove it (as root); refused while anything is in it
    Remove(PoolRemove),
}

/// `pool create`.
#[derive(Debug, Args)]
pub(crate) struct PoolCreate {
    /// Size, such as 50G
    #[arg(long, value_parser = size)]
    pub(crate) size: u64,
    /// Its file system
    #[arg(long, value_enum, default_value_t = PoolSystem::Xfs)]
    pub(crate) fs: PoolSystem,
    #[command(flatten)]
    pub(crate) pool: PoolPath,
}

/// `pool grow`.
#[derive(Debug, Args)]
pub(crate) struct PoolGrow {
    /// New size in all, such as 80G
    #[arg(long, value_parser = size)]
    pub(crate) size: u64,
    #[command(flatten)]
    pub(crate) pool: PoolPath,
}

/// `pool remove`.
#[derive(Debug, Args)]
pub(crate) struct PoolRemove {
    /// Destroy what is in it together with it
    #[arg(long)]
    pub(crate) with_contents: bool,
    #[command(flatten)]
    pub(crate) pool: PoolPath,
}

/// One pool.
#[derive(Debug, Args)]
pub(crate) struct PoolPath {
    /// Folder of the pool; else `pool` in the data folder
    pub(crate) path: Option<PathBuf>,
}

/// The file system of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolSystem {
    /// Shares blocks of files
    Xfs,
    /// The same, and takes a whole cluster at one instant
    Btrfs,
}

/// Bytes, or a number with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size such as 50G or 512M");
    let upper = text.trim().to_ascii_uppercase();
    let number = upper.trim_end_matches("IB").trim_end_matches('B');
    let (digits, shift) = match number.char_indices().last() {
        Some((at, 'K')) => (number.get(..at), 10),
        Some((at, 'M')) => (number.get(..at), 20),
        Some((at, 'G')) => (number.get(..at), 30),
        Some((at, 'T')) => (number.get(..at), 40),
        _ => (Some(number), 0),
    };
    let count: u64 = digits.unwrap_or_default().parse().map_err(|_| bad())?;
    count.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("50G", 50 << 30), ("512m", 512 << 20), ("1TiB", 1 << 40), ("4096", 4096), ("3 ", 3), ("2KB", 2048)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "-1G", "1.5G", "0", "0G", "99999999999T", "5X", "ä"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
