//! `forklift store`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What can be done with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check that everything is whole; changes nothing
    Verify(Verify),
    /// Put right what can be, and tell what is lost
    Repair(Repair),
    /// Free what no checkpoint needs, in all projects of the store
    Prune(StorePrune),
    /// Show how much the checkpoints hold and take
    Stats,
}

/// `store verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// How thoroughly; each level does what those before it do
    #[arg(long, value_enum, default_value_t = Level::Metadata)]
    pub(crate) level: Level,
    /// Read about so many bytes of packs, those first that were not read for the longest, and remember which; a drill restores about so
    /// many bytes as well. A number, or one with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) budget: Option<u64>,
    /// Folder for the trees of a drill, which are removed again
    #[arg(long, value_name = "DIR", required_if_eq("level", "drill"))]
    pub(crate) scratch: Option<PathBuf>,
}

/// How thoroughly a store is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Checkpoints, index, and that every pack is there
    Refs,
    /// That everything that a checkpoint names is there
    Metadata,
    /// Every byte of the packs, against their names
    Packs,
    /// Every chunk, decompressed
    Full,
    /// A restore of every checkpoint, of which the database is started
    Drill,
}

/// `store repair`.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Move refs that cannot be read to the quarantine; the next prune then removes what only they needed
    #[arg(long)]
    pub(crate) set_aside_refs: bool,
}

/// `store prune`.
#[derive(Debug, Args)]
pub(crate) struct StorePrune {
    /// Do it; without, only tell
    #[arg(long)]
    pub(crate) yes: bool,
    /// Free the space at once, rather than at the next prune
    #[arg(long)]
    pub(crate) now: bool,
    /// Rewrite packs of which more than this is not needed
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) max_unused: u8,
    /// Rewrite nothing while no more than this of the whole store is not needed
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) max_unused_in_all: u8,
    /// Rewrite packs of at most so many bytes together
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) max_rewrite: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a number of bytes, or one with k, M or G, such as 2G".to_owned();
    let (digits, factor) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes() {
        assert_eq!((size("12"), size("3k"), size("2G")), (Ok(12), Ok(3000), Ok(2_000_000_000)));
        for wrong in ["", "k", "-1", "1T", "1.5G", "99999999999999999999", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
