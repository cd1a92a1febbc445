//! Which WAL a cleanly stopped cluster needs.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::control_file::Fields;
use super::crc32c::crc32c;
use super::slot_file::oldest_restart_lsn;
use super::{ClusterState, ControlFile};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// `sizeof(XLogRecord)` without padding; the CRC lies in its last 4 bytes and covers the data first, then what is before it.
const RECORD_HEADER: u64 = 24;
const RECORD_CRC: usize = 20;
const SHORT_PAGE_HEADER: u64 = 24;
const LONG_PAGE_HEADER: u64 = 40;
/// A checkpoint record has about 120 bytes; far more than that is a read in the wrong place.
const MAX_CHECKPOINT_RECORD: u64 = 4096;

/// The names in `pg_wal` that a cleanly stopped cluster needs, sorted: every segment from the checkpoint's redo point to the
/// last byte of its record, from the oldest `restart_lsn` in pg_replslot on, every segment with a `.ready` file, and all
/// `.history` files. Of a cluster stopped in recovery, which replays on from there, every segment from the redo point on.
/// WAL that a slot asks for and that is gone already is no failure: that slot is as broken in the source.
///
/// # Errors
/// `Corrupt` names a segment between redo point and end of the checkpoint that is missing, or a record or slot file that is damaged.
pub fn needed_segments(data: &Path, control: &ControlFile) -> Result<Vec<String>> {
    let wal = Wal { folder: data.join("pg_wal"), control, segment: u64::from(control.wal_segment_size) };
    let names: Vec<String> = fs::names(&wal.folder)?.into_iter().filter_map(|name| name.into_string().ok()).collect();

    let last_byte = wal.last_byte_of_checkpoint()?;
    let (redo, last) = (control.redo / wal.segment, last_byte / wal.segment);
    let mut needed = BTreeSet::new();
    for number in redo..=last {
        needed.insert(wal.name_of_needed(number)?);
    }

    let slots = oldest_restart_lsn(data, control.catalog_version)?.map_or(redo, |lsn| lsn / wal.segment);
    let from = slots.min(redo);
    let to = if control.state == ClusterState::ShutDownInRecovery { u64::MAX } else { last };
    let ready = |name: &str| wal.folder.join("archive_status").join(format!("{name}.ready")).exists();
    for name in names {
        let held = wal.parse_name(&name).is_some_and(|(timeline, number)| timeline <= control.timeline && (from..=to).contains(&number));
        let history = name.ends_with(".history");
        if held || history || ready(&name) {
            needed.insert(name);
        }
    }
    Ok(needed.into_iter().collect())
}

/// Whether `name` is that of a whole WAL segment.
pub(super) fn is_segment(name: &[u8]) -> bool {
    name.len() == 24 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

struct Wal<'a> {
    folder: PathBuf,
    control: &'a ControlFile,
    segment: u64,
}

impl Wal<'_> {
    /// LSN of the last byte of the checkpoint record, page headers counted, after its CRC was found right.
    fn last_byte_of_checkpoint(&self) -> Result<u64> {
        let mut at = self.control.checkpoint;
        let first = self.read_at(at, 4)?;
        let length = u64::from(Fields(&first).u32(0)?);
        if !(RECORD_HEADER..=MAX_CHECKPOINT_RECORD).contains(&length) {
            return Err(self.damaged("its length is impossible"));
        }
        let page = u64::from(self.control.wal_block_size);
        let mut record = Vec::new();
        let mut left = length;
        while left > 0 {
            if at.is_multiple_of(page) {
                at += if at.is_multiple_of(self.segment) { LONG_PAGE_HEADER } else { SHORT_PAGE_HEADER };
            }
            let part = left.min(page - at % page);
            record.extend(self.read_at(at, part)?);
            at += part;
            left -= part;
        }
        let (header, rest) = record.split_at_checked(RECORD_CRC).ok_or_else(|| self.damaged("it is too short"))?;
        let data = rest.get(4..).unwrap_or_default();
        if Fields(rest).u32(0)? != crc32c(&[data, header]) {
            return Err(self.damaged("its CRC does not match"));
        }
        Ok(at - 1)
    }

    fn read_at(&self, lsn: u64, length: u64) -> Result<Vec<u8>> {
        let path = self.folder.join(self.name_of_needed(lsn / self.segment)?);
        let file = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, lsn % self.segment).map_err(|source| Error::io("read", &path, source))?;
        Ok(bytes)
    }

    /// Name of the segment with this number on the checkpoint's timeline, or the newest before it (after a promotion).
    fn name_of_needed(&self, number: u64) -> Result<String> {
        let mut timelines = (1..=self.control.timeline).rev().map(|timeline| self.name(timeline, number));
        let newest = self.name(self.control.timeline, number);
        timelines.find(|name| self.folder.join(name).exists()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("the cluster needs WAL segment {newest}, which is not in {}", self.folder.display()))
                .with("path", self.folder.join(&newest).display())
                .hint("put the segment back from an archive, or restore a checkpoint")
        })
    }

    fn segments_per_id(&self) -> u64 {
        0x1_0000_0000 / self.segment
    }

    fn name(&self, timeline: u32, number: u64) -> String {
        let per_id = self.segments_per_id();
        format!("{timeline:08X}{:08X}{:08X}", number / per_id, number % per_id)
    }

    fn parse_name(&self, name: &str) -> Option<(u32, u64)> {
        if !is_segment(name.as_bytes()) {
            return None;
        }
        let part = |range: std::ops::Range<usize>| name.get(range).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let (timeline, id, low) = (part(0..8)?, part(8..16)?, part(16..24)?);
        Some((timeline, u64::from(id) * self.segments_per_id() + u64::from(low)))
    }

    fn damaged(&self, why: &str) -> Error {
        let lsn = self.control.checkpoint;
        Error::new(
            ErrorKind::Corrupt,
            format!("the checkpoint record at {:X}/{:X} in {} is damaged: {why}", lsn >> 32, lsn & 0xFFFF_FFFF, self.folder.display()),
        )
        .with("path", self.folder.display())
        .hint("restore a checkpoint of this branch")
    }
}
