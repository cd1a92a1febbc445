//! Removing what no ref needs.

/// What to prune and whether to do it.
#[derive(Debug, Clone, Default)]
pub struct PruneOptions {
    /// Do it; without, only tell.
    pub apply: bool,
}

/// What was, or would be, removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Packs in the store.
    pub packs: u64,
    /// Packs of which nothing is needed.
    pub packs_removed: u64,
    /// Bytes of those packs.
    pub bytes_removed: u64,
    /// Bytes that nothing needs in packs that stay.
    pub bytes_unused: u64,
}
