//! The WAL from the start of a backup to its stop.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{Sink, SourceFile};
use crate::progress::Control;
use crate::store::Cutting;
use crate::sys::fs;

/// Where a backup starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    timeline: u32,
    /// Number of the segment that holds the start.
    segment: u64,
    segment_size: u64,
}

/// One WAL segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    timeline: u32,
    number: u64,
    size: u64,
}

/// The number behind text such as `16/B374D848`.
pub(super) fn parse_lsn(text: &str) -> Result<u64> {
    text.split_once('/')
        .and_then(|(high, low)| Some((u64::from_str_radix(high, 16).ok()? << 32) | u64::from(u32::from_str_radix(low, 16).ok()?)))
        .ok_or_else(|| Error::new(ErrorKind::Sql, format!("the server sent {text:?} where a WAL position was expected")))
}

impl Position {
    /// The position `lsn` on the timeline of the segment name `file`.
    pub(super) fn new(lsn: u64, file: &str, segment_size: u64) -> Result<Self> {
        let timeline = file.get(..8).and_then(|text| u32::from_str_radix(text, 16).ok());
        match timeline {
            Some(timeline) if segment_size.is_power_of_two() => Ok(Self { timeline, segment: lsn / segment_size, segment_size }),
            _ => Err(Error::new(ErrorKind::Sql, format!("the server sent {file:?} where the name of a WAL segment was expected"))),
        }
    }

    /// The segment in which it lies.
    pub(super) fn first(&self) -> Segment {
        Segment { timeline: self.timeline, number: self.segment, size: self.segment_size }
    }

    /// The segments from here to the one that holds the last byte before `end`, and none later: replay goes to the end of
    /// whatever WAL is there.
    pub(super) fn until(&self, end: u64) -> Result<Vec<Segment>> {
        let last = end.saturating_sub(1) / self.segment_size;
        if last < self.segment {
            return Err(
                Error::new(ErrorKind::Capture, "the backup ended before it began: the server was restored meanwhile").hint("try again")
            );
        }
        Ok((self.segment..=last).map(|number| Segment { number, ..self.first() }).collect())
    }
}

impl Segment {
    /// Its file name.
    pub(super) fn name(&self) -> String {
        let per_id = (1 << 32) / self.size;
        format!("{:08X}{:08X}{:08X}", self.timeline, self.number / per_id, self.number % per_id)
    }

    /// The segment after it.
    pub(super) fn next(&self) -> Self {
        Self { number: self.number + 1, ..*self }
    }

    /// Its bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The inode of its file, where that has been written as this segment: a recycled one has its name before that.
    pub(super) fn written(&self, folder: &Path) -> Result<Option<u64>> {
        let path = folder.join(self.name());
        match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("open", &path, source)),
            Ok(file) => {
                let metadata = file.metadata().map_err(|source| Error::io("examine", &path, source))?;
                Ok((self.begins(&file) && metadata.len() == self.size).then(|| metadata.ino()))
            }
        }
    }

    /// Whether the first page in `file` is that of this segment.
    pub(super) fn begins(&self, file: &File) -> bool {
        // XLogPageHeaderData: magic, info, timeline, then the position of the page.
        let mut header = [0; 16];
        let position = file.read_exact_at(&mut header, 0).ok().and_then(|()| header.last_chunk().map(|bytes| u64::from_ne_bytes(*bytes)));
        position == Some(self.number * self.size)
    }

    /// What a copy lacks without it.
    pub(super) fn gone(&self) -> Error {
        Error::new(ErrorKind::Capture, format!("WAL segment {} was removed by the server before it was copied", self.name()))
            .with("segment", self.name())
            .hint(
                "raise max_replication_slots (or wal_keep_size), leave max_slot_wal_keep_size unset, and try again, or use --mode stopped",
            )
    }
}

/// Gives segments that a slot keeps to the sink.
pub(super) fn copy(data: &Path, segments: &[Segment], sink: &mut dyn Sink, control: &Control) -> Result<()> {
    let folder = data.join("pg_wal");
    let identities =
        || -> Result<Vec<u64>> { segments.iter().map(|segment| segment.written(&folder)?.ok_or_else(|| segment.gone())).collect() };
    let before = identities()?;
    give(&folder, segments, sink, control)?;
    // The same file still has the name: it was not recycled while it was read.
    match before.iter().zip(&identities()?).zip(segments).find(|((one, other), _)| one != other) {
        Some((_, segment)) => Err(segment.gone()),
        None => Ok(()),
    }
}

/// Gives segments in `folder` to the sink.
pub(super) fn give(folder: &Path, segments: &[Segment], sink: &mut dyn Sink, control: &Control) -> Result<()> {
    let files: Vec<SourceFile> = segments.iter().map(|segment| source_file(folder, &segment.name(), Cutting::Wal)).collect();
    sink.files(&files, control)
}

/// Gives the histories of all timelines to the sink.
pub(super) fn copy_histories(data: &Path, sink: &mut dyn Sink, control: &Control) -> Result<()> {
    let folder = data.join("pg_wal");
    let names = fs::names(&folder)?;
    let histories: Vec<SourceFile> = names
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| name.strip_suffix(".history").is_some_and(|number| number.len() == 8))
        .map(|name| source_file(&folder, name, Cutting::Content))
        .collect();
    if histories.is_empty() { Ok(()) } else { sink.files(&histories, control) }
}

fn source_file(folder: &Path, name: &str, cutting: Cutting) -> SourceFile {
    SourceFile { source: folder.join(name), path: PathBuf::from("pg_wal").join(name), live: false, cutting }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn names(start: u64, end: u64, size: u64) -> Vec<String> {
        let start = Position::new(start, "000000020000000000000000", size).unwrap();
        start.until(end).unwrap().iter().map(Segment::name).collect()
    }

    #[test]
    fn an_end_on_a_boundary_belongs_to_the_segment_before() {
        let size = 16 * MIB;
        assert_eq!(names(2 * size + 40, 3 * size, size), ["000000020000000000000002"]);
        assert_eq!(names(2 * size + 40, 3 * size + 1, size), ["000000020000000000000002", "000000020000000000000003"]);
        assert_eq!(names(2 * size, 2 * size + 1, size), ["000000020000000000000002"]);
    }

    #[test]
    fn names_carry_over_at_four_gigabytes() {
        assert_eq!(names((1 << 32) - 10, (1 << 32) + 10, MIB), ["000000020000000000000FFF", "000000020000000100000000"]);
        assert_eq!(names((1 << 32) - 10, (1 << 32) + 10, 1 << 30), ["000000020000000000000003", "000000020000000100000000"]);
    }

    #[test]
    fn positions_parse_and_refuse() {
        assert_eq!(parse_lsn("16/B374D848").unwrap(), 0x16_B374_D848);
        for bad in ["", "16", "x/1", "1/123456789"] {
            assert_eq!(parse_lsn(bad).unwrap_err().kind(), ErrorKind::Sql, "{bad}");
        }
        assert!(Position::new(0, "short", MIB).is_err());
        let start = Position::new(5 * MIB, "000000010000000000000000", MIB).unwrap();
        assert_eq!(start.until(4 * MIB).unwrap_err().kind(), ErrorKind::Capture);
    }

    #[test]
    fn a_recycled_segment_is_not_taken_for_the_one_whose_name_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let segment = Position::new(3 * MIB, "000000010000000000000000", MIB).unwrap().first();
        assert_eq!(segment.written(folder.path()).unwrap(), None);
        let mut bytes = vec![0; MIB as usize];
        bytes[8..16].copy_from_slice(&(2 * MIB).to_ne_bytes());
        std::fs::File::create(folder.path().join(segment.name())).unwrap();
        assert_eq!(segment.written(folder.path()).unwrap(), None);
        fs::replace(&folder.path().join(segment.name()), &bytes, 0o600, &fs::Syncs::new()).unwrap();
        assert_eq!(segment.written(folder.path()).unwrap(), None);
        bytes[8..16].copy_from_slice(&(3 * MIB).to_ne_bytes());
        fs::replace(&folder.path().join(segment.name()), &bytes, 0o600, &fs::Syncs::new()).unwrap();
        assert!(segment.written(folder.path()).unwrap().is_some());
    }
}
