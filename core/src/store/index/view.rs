//! What one process knows of where chunks lie: every segment, and the packs that no segment covers.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::segment::{HEADER, Location, Row, Segment};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ChunkId;
use crate::store::chunk::from_hex;
use crate::store::disk::{self, Disk};
use crate::store::layout::{Layout, PackId};
use crate::store::packfile::PackFile;

/// A segment of more bytes is read twice, so that no memory is taken for what is not one.
const UNCHECKED: u64 = 64 << 20;

/// The index as it was at one moment. Immutable; a new one is loaded when it may be out of date.
#[derive(Debug)]
pub(in crate::store) struct View {
    generation: Option<u64>,
    /// Segments by file name, the newest first.
    segments: Vec<(String, Arc<Segment>)>,
    /// Packs that no segment covers, by their own footers.
    loose: Vec<(PackId, Arc<Segment>)>,
    /// Names in `index/` that are not whole segments.
    damaged: Vec<String>,
    /// Packs without a segment that do not parse either.
    unreadable: Vec<PackId>,
    /// Whether the pack folders were listed.
    complete: bool,
}

impl View {
    /// Reads what is there now, reusing what `previous` has of it. With `complete`, and where a segment is damaged, the
    /// pack folders are listed and packs that no segment covers are read by their footers.
    pub(in crate::store) fn load(layout: &Layout, uuid: &[u8; 16], previous: Option<&Arc<View>>, complete: bool) -> Result<Arc<View>> {
        // A merge may remove segments between the listing and the reading; its result is then already there.
        for _ in 0..16 {
            if let Some(view) = Self::attempt(layout, uuid, previous, complete)? {
                return Ok(view);
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("the index in {} keeps changing", layout.index().display()))
            .with("path", layout.index().display())
            .hint("try again"))
    }

    fn attempt(layout: &Layout, uuid: &[u8; 16], previous: Option<&Arc<View>>, complete: bool) -> Result<Option<Arc<View>>> {
        let generation = layout.generation()?;
        let names = layout.disk().names(&layout.index())?;
        if let Some(view) = previous.filter(|view| !complete && generation.is_some() && view.generation == generation && view.is_of(&names))
        {
            return Ok(Some(Arc::clone(view)));
        }
        let known: HashMap<&str, &Arc<Segment>> =
            previous.iter().flat_map(|view| &view.segments).map(|(name, segment)| (name.as_str(), segment)).collect();
        let mut view =
            Self { generation, segments: Vec::new(), loose: Vec::new(), damaged: Vec::new(), unreadable: Vec::new(), complete: false };
        for name in names {
            let text = name.to_string_lossy().into_owned();
            if let Some(segment) = known.get(text.as_str()) {
                view.segments.push((text, Arc::clone(segment)));
                continue;
            }
            let path = layout.index().join(&name);
            let hash = text.strip_suffix(".idx").and_then(from_hex);
            let whole = match hash.map(|hash| is_whole(layout.disk(), &path, uuid, &hash)).transpose() {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                // It cannot be read, or is a folder: as good as damaged, since the packs have it all. But not for want of memory or descriptors.
                Err(error) if error.kind() == ErrorKind::Io && matches!(error.os(), None | Some(libc::EIO)) => false,
                other => other? == Some(true),
            };
            if !whole {
                view.damaged.push(text);
                continue;
            }
            let Some(bytes) = layout.disk().read_optional(&path, u64::MAX)? else { return Ok(None) };
            let named = Segment::hash(&bytes) == hash.as_ref();
            match Segment::parse(bytes, uuid) {
                Ok(segment) if named => view.segments.push((text, Arc::new(segment))),
                _ => view.damaged.push(text),
            }
        }
        view.segments.sort_by(|(a_name, a), (b_name, b)| b.sequence.cmp(&a.sequence).then_with(|| a_name.cmp(b_name)));
        if complete || !view.damaged.is_empty() {
            view.add_loose(layout, uuid, previous)?;
        }
        Ok(Some(Arc::new(view)))
    }

    fn is_of(&self, names: &[OsString]) -> bool {
        let have: HashSet<&str> =
            self.segments.iter().map(|(name, _)| name.as_str()).chain(self.damaged.iter().map(String::as_str)).collect();
        have.len() == names.len() && names.iter().all(|name| name.to_str().is_some_and(|name| have.contains(name)))
    }

    fn add_loose(&mut self, layout: &Layout, uuid: &[u8; 16], previous: Option<&Arc<View>>) -> Result<()> {
        let covered: HashSet<PackId> = self.segments.iter().flat_map(|(_, segment)| segment.packs()).map(|(id, _)| *id).collect();
        let known: HashMap<PackId, &Arc<Segment>> =
            previous.iter().flat_map(|view| &view.loose).map(|(id, segment)| (*id, segment)).collect();
        for id in layout.list_packs(|_| ())? {
            if covered.contains(&id) {
                continue;
            }
            if let Some(segment) = known.get(&id) {
                self.loose.push((id, Arc::clone(segment)));
                continue;
            }
            match segment_of_pack(layout, uuid, &id) {
                Ok(segment) => self.loose.push((id, Arc::new(segment))),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::Io) => self.unreadable.push(id),
                Err(error) => return Err(error),
            }
        }
        self.complete = true;
        Ok(())
    }

    /// Every copy of a chunk, those of the newest segments first.
    pub(in crate::store) fn locate<'a>(&'a self, id: &ChunkId) -> impl Iterator<Item = (usize, Location)> + use<'a> {
        let id = *id;
        self.all().enumerate().flat_map(move |(at, segment)| segment.find(&id).map(move |location| (at, location)))
    }

    /// The segments of files, then those of loose packs.
    pub(in crate::store) fn all(&self) -> impl Iterator<Item = &Arc<Segment>> + '_ {
        self.segments.iter().map(|(_, segment)| segment).chain(self.loose.iter().map(|(_, segment)| segment))
    }

    pub(in crate::store) fn segments(&self) -> &[(String, Arc<Segment>)] {
        &self.segments
    }

    pub(in crate::store) fn loose(&self) -> &[(PackId, Arc<Segment>)] {
        &self.loose
    }

    pub(in crate::store) fn unreadable(&self) -> &[PackId] {
        &self.unreadable
    }

    /// Names in `index/` that are not whole segments.
    pub(in crate::store) fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// The sequence number for the next segment.
    pub(in crate::store) fn next_sequence(&self) -> u64 {
        self.segments.iter().map(|(_, segment)| segment.sequence).max().unwrap_or_default().saturating_add(1)
    }
}

/// Whether a segment may be read into memory as a whole: it is small, or has the hash that names it.
fn is_whole(disk: &dyn Disk, path: &Path, uuid: &[u8; 16], hash: &[u8; 32]) -> Result<bool> {
    let failed = |source| Error::io("read", path, source);
    let file = disk.open(path)?;
    let len = file.len().map_err(failed)?;
    if len <= UNCHECKED {
        return Ok(true);
    }
    let mut header = [0; HEADER];
    disk::read_exact_at(file.as_ref(), &mut header, 0).map_err(failed)?;
    if Segment::check_header(&header, len, uuid).is_err() {
        return Ok(false);
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let (mut at, end) = (0, len - hash.len() as u64);
    while at < end {
        let step = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let piece = buffer.get_mut(..step).unwrap_or_default();
        disk::read_exact_at(file.as_ref(), piece, at).map_err(failed)?;
        hasher.update(piece);
        at += step as u64;
    }
    Ok(hasher.finalize().as_bytes() == hash)
}

/// A segment, in memory only, of one pack: by its footer, else by walking its chunks.
fn segment_of_pack(layout: &Layout, uuid: &[u8; 16], id: &PackId) -> Result<Segment> {
    let pack = PackFile::open(layout, id)?;
    let blobs = match pack.footer(uuid) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let whole = pack.salvage(uuid)?;
            if whole.is_empty() {
                return Err(error);
            }
            whole
        }
        other => other?,
    };
    let mut rows: Vec<Row> = blobs.iter().map(|blob| Row::of(blob, 0)).collect();
    rows.sort_unstable();
    let bytes = Segment::encode(uuid, 0, &[(*id, pack.size())], &rows);
    Segment::parse(bytes, uuid).map_err(|why| Error::new(ErrorKind::Internal, format!("index of pack {id}: {why}")))
}

/// Which packs of a view one session has found in their place, so that each is looked at once.
#[derive(Debug)]
pub(in crate::store) struct Presence(Vec<Vec<AtomicU8>>);

const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const GONE: u8 = 2;

impl Presence {
    pub(in crate::store) fn of(view: &View) -> Self {
        Self(view.all().map(|segment| segment.packs().iter().map(|_| AtomicU8::new(UNKNOWN)).collect()).collect())
    }

    /// Whether the pack of a location is there with the size that the index knows.
    pub(in crate::store) fn check(&self, layout: &Layout, segment: usize, location: &Location) -> bool {
        let slot = self.0.get(segment).and_then(|packs| packs.get(location.ordinal as usize));
        match slot.map(|slot| slot.load(Ordering::Relaxed)) {
            Some(THERE) => true,
            Some(GONE) => false,
            _ => {
                let there = layout.has_pack(&location.pack, location.pack_size);
                if let Some(slot) = slot {
                    slot.store(if there { THERE } else { GONE }, Ordering::Relaxed);
                }
                there
            }
        }
    }
}
