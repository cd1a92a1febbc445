//! What a store holds by its index and by what is known of its packs, and what each checkpoint lacks of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::report::{LISTED, Loss};
use crate::error::{Error, Result};
use crate::progress::{Control, Unit};
use crate::store::index::{Presence, View};
use crate::store::layout::PackId;
use crate::store::manifest::{Survey, Surveyor};
use crate::store::packfile::PackFile;
use crate::store::{ChunkId, ChunkRef, Half, Reader, Ref, Store};

/// Which chunks can be read.
#[derive(Debug)]
pub(in crate::store) struct Holdings<'a> {
    store: &'a Store,
    view: Arc<View>,
    presence: Presence,
    /// Whether a prune is locked out; if not, packs in the trash count.
    locked: bool,
    /// Copies that are known to be damaged.
    pub(in crate::store) bad: HashSet<(PackId, [u8; 16])>,
    /// Packs that do not count.
    pub(in crate::store) bad_packs: BTreeSet<PackId>,
}

impl<'a> Holdings<'a> {
    pub(in crate::store) fn new(store: &'a Store, view: Arc<View>, locked: bool) -> Self {
        let presence = Presence::of(&view);
        Self { store, view, presence, locked, bad: HashSet::new(), bad_packs: BTreeSet::new() }
    }

    /// Whether a copy of the chunk is there that is not known to be damaged.
    pub(in crate::store) fn has(&self, id: &ChunkId, len: Option<u32>) -> bool {
        let layout = self.store.layout();
        self.view.locate(id).any(|(segment, location)| {
            len.is_none_or(|len| location.plain == len)
                && !self.bad_packs.contains(&location.pack)
                && !self.bad.contains(&(location.pack, id.prefix()))
                && (self.presence.check(layout, segment, &location)
                    || (!self.locked && PackFile::open(layout, &location.pack).is_ok_and(|pack| pack.size() == location.pack_size)))
        })
    }

    /// The paths of the packs that should have the chunk.
    fn paths(&self, id: &ChunkId) -> Vec<String> {
        let layout = self.store.layout();
        let mut paths: Vec<String> = self.view.locate(id).map(|(_, location)| layout.pack(&location.pack).display().to_string()).collect();
        if paths.is_empty() {
            paths.push(layout.packs().display().to_string());
        }
        paths
    }
}

/// What checkpoints lack.
#[derive(Debug, Default)]
pub(in crate::store) struct Losses {
    pub(in crate::store) losses: Vec<Loss>,
    /// By the path of what is damaged: what is known of it, and the checkpoints that need it.
    pub(in crate::store) causes: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Losses {
    /// All of one half: its root is not there.
    pub(in crate::store) fn lose_all(&mut self, holdings: &Holdings<'_>, checkpoint: &str, half: &'static str, of: &Half) {
        let paths = vec![String::new()];
        self.losses.push(Loss { checkpoint: checkpoint.to_owned(), half, lost: of.entries.max(1), paths });
        for path in holdings.paths(&of.root) {
            let cause = self.causes.entry(path).or_insert_with(|| (format!("chunk {} cannot be read", of.root), BTreeSet::new()));
            cause.1.insert(checkpoint.to_owned());
        }
    }

    /// Goes through every manifest of these checkpoints.
    pub(in crate::store) fn find(reader: &Reader, holdings: &Holdings<'_>, refs: &[Ref], control: &Control) -> Result<Self> {
        let mut found = Self::default();
        let mut survey = Survey::default();
        for (done, reference) in refs.iter().enumerate() {
            control.report("check checkpoints", done as u64, refs.len() as u64, Unit::Items);
            for (name, half) in [("files", &reference.files), ("cluster", &reference.cluster)] {
                let Some(half) = half else { continue };
                let loss = Loss { checkpoint: reference.id.clone(), half: name, ..Loss::default() };
                let mut witness = Witness { holdings, loss, causes: &mut found.causes };
                if !survey.run(reader, &half.root, control, &mut witness)? {
                    let mut loss = witness.loss;
                    if loss.paths.first().is_some_and(String::is_empty) {
                        loss.lost = half.entries.max(1);
                    }
                    found.losses.push(loss);
                }
            }
        }
        Ok(found)
    }
}

/// Writes down what one half of one checkpoint lacks.
struct Witness<'a> {
    holdings: &'a Holdings<'a>,
    loss: Loss,
    causes: &'a mut BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Witness<'_> {
    fn blame(&mut self, path: String, why: &str) {
        let cause = self.causes.entry(path).or_insert_with(|| (why.to_owned(), BTreeSet::new()));
        cause.1.insert(self.loss.checkpoint.clone());
    }

    fn blame_error(&mut self, error: &Error) {
        let path = error.context().iter().find(|(key, _)| *key == "path").map(|(_, path)| path.clone());
        let chunk = error.context().iter().find(|(key, _)| *key == "chunk").and_then(|(_, id)| id.parse::<ChunkId>().ok());
        match (path, chunk) {
            (Some(path), _) => self.blame(path, error.message()),
            (None, Some(id)) => self.holdings.paths(&id).into_iter().for_each(|path| self.blame(path, error.message())),
            (None, None) => self.blame(self.holdings.store.layout().packs().display().to_string(), error.message()),
        }
    }

    fn list(&mut self, path: String, names: u64) {
        self.loss.lost += names;
        if self.loss.paths.len() < LISTED {
            self.loss.paths.push(path);
        }
    }
}

impl Surveyor for Witness<'_> {
    fn has(&mut self, chunk: &ChunkRef) -> bool {
        let has = self.holdings.has(&chunk.id, Some(chunk.len));
        if !has {
            let id = chunk.id;
            for path in self.holdings.paths(&id) {
                self.blame(path, &format!("chunk {id} cannot be read"));
            }
        }
        has
    }

    fn damaged(&mut self, path: &[u8], error: Option<&Error>) {
        if let Some(error) = error {
            self.blame_error(error);
        }
        self.list(text(path), 1);
    }

    fn lost(&mut self, first: &[u8], entries: Option<u64>, error: &Error) {
        self.blame_error(error);
        self.list(text(first), entries.unwrap_or(1).max(1));
    }
}

/// A path as text; bytes that are not UTF-8 are shown as `\xff`.
fn text(path: &[u8]) -> String {
    path.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
        text
    })
}
