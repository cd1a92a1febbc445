//! When each pack was last read as a whole and each checkpoint last restored, for a daily budget: a cache that may be lost.

use std::collections::HashMap;
use std::path::PathBuf;

use super::report::VerifyLevel;
use crate::error::Result;
use crate::store::Ref;
use crate::store::chunk::from_hex;
use crate::store::layout::{Layout, PackId};
use crate::sys::fs::Syncs;

const TITLE: &str = "forklift verified 1";
/// A longer file is not believed.
const MAX_BYTES: u64 = 256 << 20;

/// By pack: whether every chunk was read, and in which run. By checkpoint: in which run it was restored. Runs are counted, so
/// that no clock matters.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    run: u64,
    packs: HashMap<PackId, (bool, u64)>,
    drills: HashMap<String, u64>,
}

impl Remembered {
    /// What the store remembers; nothing where the file does not parse.
    pub(super) fn load(layout: &Layout) -> Self {
        let bytes = layout.disk().read_optional(&path(layout), MAX_BYTES).ok().flatten().unwrap_or_default();
        let mut found = String::from_utf8(bytes).ok().and_then(|text| Self::parse(&text)).unwrap_or_default();
        found.run = found.run.saturating_add(1);
        found
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, hash) = text.trim_end().rsplit_once('\n')?;
        if blake3::hash(body.as_bytes()).to_hex().as_str() != hash {
            return None;
        }
        let mut lines = body.lines();
        let run = lines.next()?.strip_prefix(TITLE)?.trim().parse().ok()?;
        let mut found = Self { run, ..Self::default() };
        for line in lines {
            let mut words = line.split(' ');
            let (id, what, run) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
            if what == "drill" {
                found.drills.insert(id.to_owned(), run);
            } else {
                found.packs.insert(PackId(from_hex(id)?), (what == "full", run));
            }
        }
        Some(found)
    }

    /// Sorts packs so that those come first that were not read at this level, then those that were read longest ago.
    pub(super) fn sort(&self, packs: &mut [PackId], level: VerifyLevel) {
        packs.sort_by_key(|id| {
            let last = self.packs.get(id).filter(|(every_chunk, _)| *every_chunk || level < VerifyLevel::Full);
            (last.map_or(0, |(_, run)| *run), *id)
        });
    }

    /// A pack was read and is whole.
    pub(super) fn add(&mut self, id: PackId, every_chunk: bool) {
        let run = self.run;
        let entry = self.packs.entry(id).or_insert((every_chunk, run));
        *entry = (every_chunk, run);
    }

    /// A pack was read and is not whole: it stays among the first.
    pub(super) fn forget(&mut self, id: &PackId) {
        self.packs.remove(id);
    }

    /// The run in which a checkpoint was last restored; 0 for never.
    pub(super) fn drilled(&self, id: &str) -> u64 {
        self.drills.get(id).copied().unwrap_or_default()
    }

    /// A checkpoint was restored and came out whole.
    pub(super) fn add_drill(&mut self, id: &str) {
        self.drills.insert(id.to_owned(), self.run);
    }

    /// One was not: it stays among the first.
    pub(super) fn forget_drill(&mut self, id: &str) {
        self.drills.remove(id);
    }

    /// Writes it down for the packs and checkpoints that are still there, unless the store cannot be written.
    pub(super) fn save(&self, layout: &Layout, there: &[PackId], refs: &[Ref]) -> Result<()> {
        if layout.disk().check_writable(&layout.tmp()).is_err() || layout.disk().check_writable(layout.root()).is_err() {
            return Ok(());
        }
        let mut text = format!("{TITLE} {}", self.run);
        for id in there {
            if let Some((every_chunk, run)) = self.packs.get(id) {
                text.push_str(&format!("\n{id} {} {run}", if *every_chunk { "full" } else { "packs" }));
            }
        }
        for reference in refs {
            if let Some(run) = self.drills.get(&reference.id) {
                text.push_str(&format!("\n{} drill {run}", reference.id));
            }
        }
        let hash = blake3::hash(text.as_bytes()).to_hex();
        text.push_str(&format!("\n{hash}\n"));
        let temporary = layout.temporary("verified")?;
        let disk = layout.disk();
        disk.write_new(&temporary, &[text.as_bytes()], 0o600, &Syncs::new())?;
        disk.rename(&temporary, &path(layout)).inspect_err(|_| disk.discard(&temporary))
    }
}

fn path(layout: &Layout) -> PathBuf {
    layout.root().join("verified")
}
