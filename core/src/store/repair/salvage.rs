//! Copying whole chunks out of damaged packs into new ones.

use std::collections::HashSet;

use crate::error::Result;
use crate::store::Store;
use crate::store::pack::{self, Blob, Kind, OpenPack};
use crate::store::parallel::Helpers;
use crate::store::publish::{self, Sealed};
use crate::sys::fs::Syncs;

/// New packs that become durable together.
const BATCH: usize = 4;

/// New packs being filled; what was not published is gone when it is dropped.
#[derive(Debug)]
pub(super) struct Salvage<'a> {
    store: &'a Store,
    /// The chunks that are whole somewhere.
    pub(super) have: HashSet<[u8; 16]>,
    data: OpenPack,
    metadata: OpenPack,
    sealed: Vec<Sealed>,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    pub(super) packs: u64,
}

impl<'a> Salvage<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            have: HashSet::new(),
            data: OpenPack::default(),
            metadata: OpenPack::default(),
            sealed: Vec::new(),
            chunks: 0,
            bytes: 0,
            packs: 0,
        }
    }

    /// Takes whole blobs of a pack that are nowhere else.
    pub(super) fn take(&mut self, bytes: &[u8], whole: &[Blob]) -> Result<()> {
        let limit = self.store.layout().disk().limits().pack;
        for blob in whole {
            let Some(payload) = pack::payload(bytes, blob) else { continue };
            if !self.have.insert(blob.id.prefix()) {
                continue;
            }
            self.chunks += 1;
            self.bytes += u64::from(blob.plain);
            let open = if blob.kind == Kind::Data { &mut self.data } else { &mut self.metadata };
            open.push(blob.id, blob.kind, blob.plain, blob.codec, payload);
            if open.is_full(limit) {
                let full = std::mem::take(open);
                self.seal(full)?;
            }
        }
        Ok(())
    }

    fn seal(&mut self, pack: OpenPack) -> Result<()> {
        if !pack.is_empty() {
            self.sealed.push(Sealed::write(self.store.layout(), self.store.uuid_bytes(), pack)?);
            self.packs += 1;
        }
        if self.sealed.len() >= BATCH { self.publish() } else { Ok(()) }
    }

    /// Makes what was taken so far durable and known to the index, together with packs that no segment covers.
    pub(super) fn finish(&mut self) -> Result<()> {
        let (data, metadata) = (std::mem::take(&mut self.data), std::mem::take(&mut self.metadata));
        self.seal(data)?;
        self.seal(metadata)?;
        self.publish()
    }

    fn publish(&mut self) -> Result<()> {
        let helpers = Helpers::new(self.store.layout().disk().limits().helpers);
        publish::packs_and_index(self.store, &*self.store.view(true)?, &mut self.sealed, &helpers, &Syncs::new())
    }
}

impl Drop for Salvage<'_> {
    fn drop(&mut self) {
        for sealed in std::mem::take(&mut self.sealed) {
            sealed.discard(self.store.layout());
        }
    }
}
