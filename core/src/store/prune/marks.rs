//! What is needed: every chunk that a ref, or a root that the caller names, leads to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;

use super::PruneOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::store::index::View;
use crate::store::layout::{Layout, PackId};
use crate::store::manifest::walk;
use crate::store::pack::Kind;
use crate::store::{ChunkId, Reader, Store, refs};

/// Everything that is needed. Only grows: what a removed ref needed stays marked until the next prune.
#[derive(Debug, Default)]
pub(super) struct Marks {
    needed: HashSet<[u8; 16]>,
    /// Manifest blocks and nodes below which everything is marked. Apart from `needed`: content may have the same bytes.
    walked: HashSet<ChunkId>,
    /// The refs that were walked, as the file system knew their files before they were read.
    seen: HashMap<OsString, [u64; 4]>,
}

impl Marks {
    /// Marks what every ref needs that was not marked before, and gives what is newly marked. A ref that does not parse may
    /// need anything: nothing can be removed then.
    pub(super) fn mark(&mut self, store: &Store, reader: &Reader, options: &PruneOptions, control: &Control) -> Result<Vec<[u8; 16]>> {
        let layout = store.layout();
        let mut fresh = Vec::new();
        let names = refs::names(layout)?;
        for (done, name) in names.iter().enumerate() {
            control.report("mark", done as u64, names.len() as u64, Unit::Items);
            if !options.apply && options.without.iter().any(|id| *name == **id) {
                continue;
            }
            let path = layout.refs().join(name);
            // Before it is read: a file that is replaced later has another stamp.
            let Some(stamp) = layout.disk().stamp(&path)? else { continue };
            if self.seen.get(name) == Some(&stamp) {
                continue;
            }
            let found = match refs::read_name(layout, name) {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::UnsupportedFormat) => return Err(unreadable(&path)),
                Err(error) => return Err(error),
            };
            for half in [&found.files, &found.cluster].into_iter().flatten() {
                self.walk(reader, &format!("checkpoint {}", found.id), &half.root, &mut fresh, control)?;
            }
            self.seen.insert(name.clone(), stamp);
        }
        for root in &options.extra_roots {
            self.walk(reader, "a kept manifest", root, &mut fresh, control)?;
        }
        Ok(fresh)
    }

    fn walk(&mut self, reader: &Reader, what: &str, root: &ChunkId, fresh: &mut Vec<[u8; 16]>, control: &Control) -> Result<()> {
        let (needed, walked) = (&mut self.needed, &mut self.walked);
        walk(reader, root, control, &mut |id, kind| {
            if *id != ChunkId::ZERO && needed.insert(id.prefix()) {
                fresh.push(id.prefix());
            }
            kind == Kind::Data || walked.insert(*id)
        })
        .map_err(|error| match error.kind() {
            ErrorKind::Corrupt => error
                .while_doing(format!("{what} is damaged, nothing was pruned"))
                .hint("run `forklift store repair`; what that cannot bring back is lost, and the checkpoint has to be forgotten before the store can be pruned"),
            _ => error,
        })
    }

    pub(super) fn is_needed(&self, prefix: &[u8; 16]) -> bool {
        self.needed.contains(prefix)
    }

    /// Fails where something needed is in no pack that is there, or only in those that are `going`.
    pub(super) fn check(&self, view: &View, layout: &Layout, going: &BTreeSet<PackId>) -> Result<()> {
        let mut there: HashSet<[u8; 16]> = HashSet::with_capacity(self.needed.len());
        let mut lost: Option<PackId> = None;
        for segment in view.all() {
            let present: Vec<bool> = segment
                .packs()
                .iter()
                .map(|(id, size)| {
                    let present = !going.contains(id) && layout.has_pack(id, *size);
                    if !present {
                        lost.get_or_insert(*id);
                    }
                    present
                })
                .collect();
            let rows = segment.rows().filter(|row| present.get(row.pack as usize) == Some(&true) && self.needed.contains(&row.prefix));
            there.extend(rows.map(|row| row.prefix));
        }
        if there.len() == self.needed.len() {
            return Ok(());
        }
        let missing = self.needed.len() - there.len();
        let path = lost.map_or_else(|| layout.packs(), |id| layout.pack(&id));
        Err(Error::new(
            ErrorKind::Corrupt,
            format!("{missing} chunks that checkpoints need are missing (look at {}); nothing was pruned", path.display()),
        )
        .with("path", path.display())
        .hint("repair the store (it looks in the trash too), put missing packs back from a copy, or remove the damaged checkpoints"))
    }
}

fn unreadable(path: &Path) -> Error {
    Error::new(ErrorKind::Corrupt, format!("ref {} cannot be read, so what it needs is not known; nothing was pruned", path.display()))
        .with("path", path.display())
        .hint("put the ref back from a copy of the store, or run `forklift store repair --set-aside-refs`, which moves it to the quarantine; then prune again")
}
