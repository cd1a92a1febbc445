//! The log file: one header, then one record a line, only ever added to.
//!
//! A line is not synced: what must survive a power cut is in the refs, each of which carries the records since the one before
//! (see `rebuild`). What is torn at the end is cut off by the next writer; damage before that is reported and the good lines stand.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::record::{Record, What, body, encode};
use super::view::Timeline;
use super::window::CheckpointId;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::{self, Syncs};
use crate::sys::lock::{Lock, Mode};

/// What the header says.
const MAGIC: &str = "forklift timeline";
const VERSION: u32 = 1;
/// How much of a long log is read at first.
const BLOCK: u64 = 64 << 10;
/// How long one writer waits for another, which may be making a checkpoint durable.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    magic: String,
    version: u32,
    project: String,
    /// Runs of numbers that a rebuild did not find anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u64, u64)>,
}

/// What was found wrong with a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Bytes at the end that are no whole record.
    pub torn: u64,
    /// Lines before the last good one that are no records, the header among them.
    pub bad_lines: u64,
    /// Numbers of records that are not there, first and last of each run.
    pub missing: Vec<(u64, u64)>,
    /// Those that an earlier rebuild did not find either: no damage that another one could mend.
    pub lost: Vec<(u64, u64)>,
}

impl Damage {
    /// Nothing that a rebuild could mend but, at most, a torn end.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.bad_lines == 0 && self.missing.is_empty()
    }
}

/// One reading of a log.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    pub(super) damage: Damage,
    /// Length of what is good, from the start.
    good: u64,
    /// There is a log.
    exists: bool,
}

/// The log of one project, held alone for writing by its lock. Others read it meanwhile.
#[derive(Debug)]
pub struct TimelineLog {
    path: PathBuf,
    project: String,
    lock: Lock,
    boot: String,
    contents: Contents,
    timeline: Timeline,
}

impl Timeline {
    /// Reads the log in `folder`, where there is one; without a lock, so that a record which is being written may be missing. Writes
    /// nothing.
    ///
    /// # Errors
    /// `UnsupportedFormat` where a newer forklift wrote it; `Io` and its like. Damage is no error.
    pub fn open(folder: &Path) -> Result<(Self, Damage)> {
        let contents = load(&folder.join("log"))?;
        Ok((Self::of(contents.records), contents.damage))
    }
}

impl TimelineLog {
    /// Takes the log in `folder` (made where it is missing) for writing, once other writers are done.
    ///
    /// # Errors
    /// `Busy` after a minute, `Cancelled`, `UnsupportedFormat`, `Io` and its like.
    pub fn open(folder: &Path, project: &str, control: &Control) -> Result<Self> {
        Self::open_with(folder, project, control, load)
    }

    /// The same without what a writer of edges need not know: of a long log only the end is read, so [`TimelineLog::timeline`] has what
    /// is open and what came after that.
    ///
    /// # Errors
    /// As [`TimelineLog::open`].
    pub fn open_end(folder: &Path, project: &str, control: &Control) -> Result<Self> {
        Self::open_with(folder, project, control, |path| load_end(path)?.map_or_else(|| load(path), Ok))
    }

    fn open_with(folder: &Path, project: &str, control: &Control, load: impl Fn(&Path) -> Result<Contents>) -> Result<Self> {
        fs::make_folder(folder, 0o700)?;
        let lock = Lock::wait(&folder.join("lock"), Mode::Exclusive, PATIENCE, control)?;
        let path = folder.join("log");
        let mut contents = load(&path)?;
        let timeline = Timeline::of(std::mem::take(&mut contents.records));
        Ok(Self { path, project: project.to_owned(), lock, boot: crate::sys::process::boot_id()?, contents, timeline })
    }

    /// What it says, with what was added since it was opened.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What was found wrong with it when it was opened.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.contents.damage
    }

    /// Whether records may be missing at its end: it is torn, has none, or the machine was started since the last was written.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.contents.damage.torn > 0 || self.timeline.last_boot() != Some(&self.boot)
    }

    /// The record that `what` would be now, for a ref to carry.
    #[must_use]
    pub fn next(&self, what: What) -> Record {
        let n = self.timeline.last_number() + 1;
        Record { n, at_ms: crate::sys::id::now_ms(), from: self.timeline.needed().min(n), boot: self.boot.clone(), what }
    }

    /// An id for a new checkpoint: sorts after every one that the log names, whatever the clock says.
    ///
    /// # Errors
    /// `Io` where the kernel has no random bytes.
    pub fn next_checkpoint(&self) -> Result<CheckpointId> {
        crate::sys::id::sortable_after(self.timeline.newest_checkpoint().map(String::as_str))
    }

    /// Adds what happened. Not synced.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`, `Io`; the log is then as it was.
    pub fn append(&mut self, what: What) -> Result<()> {
        let record = self.next(what);
        self.append_record(record, None)
    }

    /// As [`TimelineLog::append`], durable when it returns: for what no ref carries soon.
    ///
    /// # Errors
    /// As [`TimelineLog::append`].
    pub fn append_synced(&mut self, what: What, syncs: &Syncs) -> Result<()> {
        let record = self.next(what);
        self.append_record(record, Some(syncs))
    }

    /// Adds a record that was made by [`TimelineLog::next`] or that a ref carried. One whose number is not the next is refused.
    ///
    /// # Errors
    /// As [`TimelineLog::append`]; `Internal` for a wrong number.
    pub fn append_record(&mut self, record: Record, syncs: Option<&Syncs>) -> Result<()> {
        if record.n <= self.timeline.last_number() {
            return Err(Error::new(ErrorKind::Internal, format!("record {} of the timeline is written twice", record.n)));
        }
        let mut bytes = Vec::new();
        if self.contents.good == 0 {
            bytes.extend_from_slice(self.header(Vec::new())?.as_bytes());
        }
        bytes.extend_from_slice(encode(&record)?.as_bytes());
        let file = self.file()?;
        let written = file.write_all_at(&bytes, self.contents.good).map_err(|source| Error::io("write", &self.path, source));
        if let Err(error) = written {
            // What cannot be taken back is a torn end, which the next writer cuts off.
            drop(file.set_len(self.contents.good));
            return Err(error);
        }
        self.contents.good += bytes.len() as u64;
        self.timeline.add(record);
        match syncs {
            Some(syncs) => syncs.file(&file, &self.path),
            None => Ok(()),
        }
    }

    /// Notes the ref that is about to be published with records that are not in the log yet; `None` once they are.
    pub fn announce(&self, checkpoint: Option<&str>) {
        // Where it cannot be written, a ref that a killed process published is found after the next boot, or by a rebuild.
        let file = self.lock.file();
        drop(file.set_len(0).and_then(|()| file.write_all_at(checkpoint.unwrap_or_default().as_bytes(), 0)));
    }

    /// The ref that a writer was about to publish when it was killed.
    #[must_use]
    pub fn announced(&self) -> Option<CheckpointId> {
        let bytes = fs::read(self.lock.path()).ok()?;
        String::from_utf8(bytes).ok().filter(|id| !id.is_empty())
    }

    /// Replaces the log by these records, in order of their numbers. The old one is kept beside it, by the name that is given back.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; the log is then as it was.
    pub fn replace(&mut self, records: BTreeMap<u64, Record>, syncs: &Syncs) -> Result<Option<PathBuf>> {
        let lost = super::rebuild::gaps(records.keys().copied(), 0);
        let mut bytes = self.header(lost)?.into_bytes();
        for record in records.values() {
            bytes.extend_from_slice(encode(record)?.as_bytes());
        }
        let kept = self.contents.exists.then(|| self.path.with_file_name(format!("log.damaged.{}", self.timeline.last_number())));
        if let Some(kept) = &kept {
            fs::remove_file(kept)?;
            std::fs::hard_link(&self.path, kept).map_err(|source| Error::io("link to", kept, source))?;
        }
        fs::replace(&self.path, &bytes, 0o600, syncs)?;
        self.contents = load(&self.path)?;
        self.timeline = Timeline::of(std::mem::take(&mut self.contents.records));
        Ok(kept)
    }

    /// Every good record of the file, by number.
    ///
    /// # Errors
    /// As [`Timeline::open`].
    pub fn records(&self) -> Result<BTreeMap<u64, Record>> {
        Ok(load(&self.path)?.records.into_iter().map(|record| (record.n, record)).collect())
    }

    fn header(&self, lost: Vec<(u64, u64)>) -> Result<String> {
        encode(&Header { magic: MAGIC.to_owned(), version: VERSION, project: self.project.clone(), lost })
    }

    /// The file, with what is torn at its end cut off.
    fn file(&mut self) -> Result<File> {
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path);
        let file = file.map_err(|source| Error::io("open", &self.path, source))?;
        self.contents.exists = true;
        let length = file.metadata().map_err(|source| Error::io("stat", &self.path, source))?.len();
        if length != self.contents.good {
            file.set_len(self.contents.good).map_err(|source| Error::io("cut", &self.path, source))?;
            self.contents.damage.torn = 0;
        }
        Ok(file)
    }
}

/// Reads what is good; a file that is not there is empty.
pub(super) fn load(path: &Path) -> Result<Contents> {
    let Some(bytes) = fs::read_optional(path)? else { return Ok(Contents::default()) };
    parse(path, &bytes, 0)
}

/// Reads the end of a long log, as far back as its last record says is needed. `None` where all of it has to be read.
fn load_end(path: &Path) -> Result<Option<Contents>> {
    let file = match fs::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata().map_err(|source| Error::io("stat", path, source))?.len();
    let mut wanted = BLOCK;
    while wanted < length {
        let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
        let read = fs::read_at(&file, path, &mut bytes, length - wanted)?;
        bytes.truncate(read);
        let Some(first) = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1) else { return Ok(None) };
        let contents = parse(path, bytes.get(first..).unwrap_or_default(), length - wanted + first as u64)?;
        if contents.damage.bad_lines > 0 || !contents.damage.missing.is_empty() {
            return Ok(None);
        }
        if let (Some(first), Some(last)) = (contents.records.first(), contents.records.last())
            && first.n <= last.from
        {
            return Ok(Some(contents));
        }
        wanted = wanted.saturating_mul(4);
    }
    Ok(None)
}

/// Reads lines that begin at this offset of the file.
fn parse(path: &Path, bytes: &[u8], offset: u64) -> Result<Contents> {
    let mut contents = Contents { exists: true, ..Contents::default() };
    let (mut at, mut pending_bad, mut header) = (offset, 0_u64, offset > 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        at += line.len() as u64;
        let Some(body) = body(line) else {
            pending_bad += 1;
            continue;
        };
        if start == 0 {
            contents.damage.lost = check_header(path, &body)?;
            header = true;
        } else {
            let record: Record = serde_json::from_str(&body).map_err(|error| newer(path, &error))?;
            match contents.records.last().map(|last| last.n) {
                // A number that was there already: one of them is of another time.
                Some(last) if record.n <= last => {
                    contents.damage.bad_lines += 1;
                    continue;
                }
                last => {
                    // At the end of a log it is not known what came before.
                    let first = if offset > 0 { record.n } else { 1 };
                    let expected = last.map_or(first, |last| last + 1);
                    let run = (expected, record.n.saturating_sub(1));
                    if record.n > expected && !contents.damage.lost.contains(&run) {
                        contents.damage.missing.push(run);
                    }
                }
            }
            contents.records.push(record);
        }
        contents.damage.bad_lines += std::mem::take(&mut pending_bad);
        contents.good = at;
    }
    if !header && contents.good > 0 {
        contents.damage.bad_lines = contents.damage.bad_lines.max(1);
    }
    contents.damage.torn = (offset + bytes.len() as u64).saturating_sub(contents.good);
    Ok(contents)
}

fn check_header(path: &Path, body: &str) -> Result<Vec<(u64, u64)>> {
    let header: Header = serde_json::from_str(body).map_err(|error| newer(path, &error))?;
    if header.magic == MAGIC && header.version == VERSION {
        return Ok(header.lost);
    }
    Err(newer(path, &format_args!("{} {}", header.magic, header.version)))
}

fn newer(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::UnsupportedFormat, format!("{}: another version of forklift wrote it: {why}", path.display()))
        .with("path", path.display())
        .hint("use a newer forklift")
}
