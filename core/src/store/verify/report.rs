//! What verify was asked and what it found.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind};

/// How thoroughly; each level does all that those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyLevel {
    /// Refs, index segments, and that every pack is there with its size.
    Refs,
    /// Also footers against the index, every manifest, and that every chunk that it names is there.
    #[default]
    Metadata,
    /// Also every byte of every pack against its name.
    Packs,
    /// Also every chunk: decompressed and hashed.
    Full,
    /// Also a restore of every checkpoint's trees into a scratch folder.
    Drill,
}

impl FromStr for VerifyLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "refs" => Ok(Self::Refs),
            "metadata" => Ok(Self::Metadata),
            "packs" => Ok(Self::Packs),
            "full" => Ok(Self::Full),
            "drill" => Ok(Self::Drill),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("{text:?} is not a level of verify"))
                .hint("name one of refs, metadata, packs, full, drill")),
        }
    }
}

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// How thoroughly.
    pub level: VerifyLevel,
    /// At most about so many bytes of packs are read (one pack at least): those that were not read for the longest. A drill then restores
    /// checkpoints of about so many plain bytes, by the same rule. What was read and restored is remembered in the store, unless it is
    /// read-only. Without a budget all are read, and nothing is written.
    pub budget: Option<u64>,
    /// An existing folder in which [`VerifyLevel::Drill`] makes, and removes, its trees.
    pub scratch: Option<PathBuf>,
}

/// What is wrong with one thing in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Its path.
    pub path: String,
    /// Why, in one line.
    pub detail: String,
    /// The checkpoints that are not whole because of it, by id.
    pub checkpoints: Vec<String>,
}

/// What a [`Finding`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// `FORMAT`: this build would not write to the store.
    Format,
    /// A file or folder that every store has is missing or does not parse.
    Layout,
    /// A ref that cannot be read: its checkpoint is lost until it is put back.
    Ref,
    /// An index segment that is damaged, or says something else than the packs. Repaired without loss.
    Index,
    /// A pack that the index knows and that is not there.
    PackMissing,
    /// A pack whose bytes are not what they were.
    PackDamaged,
    /// Something that is not forklift's in the folders of packs or of the index.
    Stray,
    /// A checkpoint that could not be restored, or whose cluster did not start.
    Drill,
}

/// How many paths a [`Loss`] lists.
pub(in crate::store) const LISTED: usize = 1000;

/// What one half of one checkpoint lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The checkpoint's id.
    pub checkpoint: String,
    /// `files` or `cluster`.
    pub half: &'static str,
    /// Names whose content, or that themselves, are lost.
    pub lost: u64,
    /// The first 1,000 of them; where a part of the manifest is lost, the name it begins with, empty for all. Bytes that are
    /// not UTF-8 are shown as `\xff`.
    pub paths: Vec<String>,
}

/// The result of a verify.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// How thoroughly.
    pub level: VerifyLevel,
    /// Checkpoints looked at.
    pub checkpoints: u64,
    /// Packs in the store.
    pub packs: u64,
    /// Packs of which every byte was read.
    pub packs_read: u64,
    /// Bytes of those packs.
    pub bytes_read: u64,
    /// Packs that were not read, or not at this level, since the budget was spent.
    pub packs_left: u64,
    /// Checkpoints of which the trees were restored.
    pub drilled: u64,
    /// Checkpoints that were not restored by a drill, since the budget was spent.
    pub drills_left: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What each checkpoint lost by it.
    pub losses: Vec<Loss>,
}

impl VerifyReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty() && self.losses.is_empty()
    }
}
