//! Who wrote each line of a file: by the checkpoints of all edges, in order.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::Serialize;
use similar::{Algorithm, DiffOp};

use super::super::Project;
use super::super::checkpoints::files_of;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::{ChunkRef, EntryKind, Reader};
use crate::sys::tree::Root;
use crate::timeline::{Author, CheckpointId, Timeline, Window};

/// The largest file whose lines are told.
const MAX_BYTES: u64 = 64 << 20;
/// A NUL byte in this many first ones means that it is no text.
const PROBE: usize = 8000;
/// How long the lines of two states are compared before the rest counts as new.
const PATIENCE: Duration = Duration::from_secs(2);

/// Every line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlameReport {
    /// Relative path, escaped as everywhere.
    pub path: String,
    /// The lines as they are on disk.
    pub lines: Vec<BlameLine>,
    /// Edges whose checkpoint was forgotten: what changed at one is attributed to the next that is there.
    pub forgotten: u64,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlameLine {
    /// From 1.
    pub line: u64,
    /// Its text without the end; bytes that are not UTF-8 as U+FFFD.
    pub text: String,
    /// Who wrote it.
    #[serde(flatten)]
    pub author: Author,
    /// Milliseconds since 1970 at which it was first seen; absent where it was there before the first turn.
    pub seen_ms: Option<u64>,
}

/// Who made the lines of one change.
#[derive(Debug, Clone)]
struct Hand {
    author: Author,
    seen_ms: Option<u64>,
}

/// What is known of the lines so far.
#[derive(Default)]
struct State {
    chunks: Option<Vec<ChunkRef>>,
    lines: Vec<Vec<u8>>,
    /// Of each line, the hand that made it.
    hands: Vec<usize>,
}

impl Project {
    /// Who wrote each line of a file: which turn with which tools, somebody by name (`project edited`, `rewind`), or nobody known. Relative
    /// paths start from the folder that the project was opened from. A file that was renamed begins anew.
    ///
    /// # Errors
    /// `InvalidArgument` for a path outside the worktree and for what is no text; `NotFound` for no file; `Unsupported` above 64 MiB;
    /// `Corrupt` where a checkpoint cannot be read.
    pub fn blame(&self, path: &Path, control: &Control) -> Result<BlameReport> {
        self.check_root()?;
        let name = self.inside_of(path)?;
        let disk = self.text_on_disk(&name)?;
        let (timeline, _) = self.timeline()?;
        let reader = self.store.reader(control)?;
        let chain = Chain::of(&timeline);
        let mut hands = vec![Hand { author: Author::Unknown, seen_ms: None }];
        let mut state = State::default();
        let mut before: HashMap<Vec<ChunkRef>, Vec<usize>> = HashMap::new();
        let rewinds = timeline.rewinds().next().is_some();
        let mut previous: Option<&CheckpointId> = None;
        let mut forgotten = 0;
        for (checkpoint, (n, seen_ms)) in &chain.edges {
            control.check()?;
            let reference = match self.store.find_ref(checkpoint) {
                Ok(reference) => reference,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    forgotten += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let chunks = chunks_of(&reader, &files_of(&reference)?.root, &name)?;
            if previous.is_some() && chunks == state.chunks {
                previous = Some(checkpoint);
                continue;
            }
            let hand = match previous {
                None => 0,
                Some(previous) => {
                    hands.push(Hand { author: chain.author(&timeline, previous, Some((checkpoint, *n)), &name), seen_ms: Some(*seen_ms) });
                    hands.len() - 1
                }
            };
            let rewound = previous.is_some_and(|previous| chain.is_rewind(&timeline, previous, checkpoint));
            let content = chunks.as_ref().map(|chunks| content(&reader, chunks)).transpose()?.flatten().unwrap_or_default();
            let known = chunks.as_ref().and_then(|chunks| before.get(chunks)).filter(|_| rewound);
            match known {
                // What a rewind brings back is its author's again.
                Some(hands) => state = State { chunks, lines: lines_of(&content), hands: hands.clone() },
                None => {
                    state.turn_into(lines_of(&content), hand);
                    state.chunks = chunks;
                }
            }
            if let Some(chunks) = state.chunks.as_ref().filter(|_| rewinds) {
                before.insert(chunks.clone(), state.hands.clone());
            }
            previous = Some(checkpoint);
        }
        let author = previous.map_or(Author::Unknown, |previous| chain.author(&timeline, previous, None, &name));
        hands.push(Hand { author, seen_ms: None });
        state.turn_into(lines_of(&disk), hands.len() - 1);
        let lines = (1..).zip(state.lines.iter().zip(&state.hands)).map(|(line, (text, hand))| {
            let hand = hands.get(*hand).cloned().unwrap_or(Hand { author: Author::Unknown, seen_ms: None });
            BlameLine { line, text: String::from_utf8_lossy(text).into_owned(), author: hand.author, seen_ms: hand.seen_ms }
        });
        Ok(BlameReport { path: crate::report::escape(&name), lines: lines.collect(), forgotten })
    }

    fn text_on_disk(&self, name: &[u8]) -> Result<Vec<u8>> {
        let root = Root::open(&self.root)?;
        let shown = self.root.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        let file = root.file(name).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => {
                Error::new(ErrorKind::NotFound, format!("{} is no file", shown.display())).with("path", shown.display())
            }
            errno => Error::io("open", &shown, errno),
        })?;
        if !file.metadata().map_err(|source| Error::io("stat", &shown, source))?.is_file() {
            return Err(Error::new(ErrorKind::NotFound, format!("{} is no file", shown.display())).with("path", shown.display()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|source| Error::io("read", &shown, source))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(
                Error::new(ErrorKind::Unsupported, format!("{} has more than 64 MiB", shown.display())).with("path", shown.display())
            );
        }
        if !is_text(&bytes) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is no text", shown.display()))
                .with("path", shown.display())
                .hint("`forklift project log --turns` tells which turns changed what"));
        }
        Ok(bytes)
    }
}

impl State {
    /// The lines become these; those that are new are of `hand`.
    fn turn_into(&mut self, lines: Vec<Vec<u8>>, hand: usize) {
        let mut hands = vec![hand; lines.len()];
        for operation in similar::capture_diff_slices_deadline(Algorithm::Myers, &self.lines, &lines, Some(Instant::now() + PATIENCE)) {
            if let DiffOp::Equal { old_index, new_index, len } = operation {
                for step in 0..len {
                    if let (Some(new), Some(old)) = (hands.get_mut(new_index + step), self.hands.get(old_index + step)) {
                        *new = *old;
                    }
                }
            }
        }
        self.lines = lines;
        self.hands = hands;
    }
}

/// The checkpoints of all edges in order, with the record that first named each and its time.
struct Chain {
    edges: BTreeMap<CheckpointId, (u64, u64)>,
}

impl Chain {
    fn of(timeline: &Timeline) -> Self {
        let mut edges: BTreeMap<CheckpointId, (u64, u64)> = BTreeMap::new();
        let mut note = |checkpoint: &CheckpointId, n: u64, ms: u64| {
            let known = edges.entry(checkpoint.clone()).or_insert((n, ms));
            *known = (*known).min((n, ms));
        };
        for window in timeline.windows() {
            if let Some(start) = &window.start {
                // The start of an instant window may have been captured after it opened.
                let at = if window.instant { (window.closed, window.ended_ms) } else { (Some(window.opened), Some(window.began_ms)) };
                note(start, at.0.unwrap_or(window.opened), at.1.unwrap_or(window.began_ms));
            }
            if let (Some(end), Some(closed)) = (&window.end, window.closed) {
                note(end, closed, window.ended_ms.unwrap_or(window.began_ms));
            }
        }
        for event in timeline.events() {
            if let crate::timeline::EventKind::Rewound(rewind) = &event.kind {
                note(&rewind.before, event.n, event.at_ms);
                note(&rewind.after, event.n, event.at_ms);
            }
        }
        Self { edges }
    }

    fn is_rewind(&self, timeline: &Timeline, before: &CheckpointId, after: &CheckpointId) -> bool {
        timeline.rewinds().any(|rewind| rewind.before <= *before && rewind.after >= *after)
    }

    /// Whose a change of `path` is that happened after `before` was captured, and before `after` was (with the number of its record), or now.
    fn author(&self, timeline: &Timeline, before: &CheckpointId, after: Option<(&CheckpointId, u64)>, path: &[u8]) -> Author {
        if after.is_some_and(|(after, _)| self.is_rewind(timeline, before, after)) {
            return Author::Named { name: "rewind".to_owned() };
        }
        let spans = |window: &&Window| {
            let begun = !window.instant && window.start.as_ref().is_some_and(|start| start <= before);
            begun && window.end.as_ref().is_none_or(|end| after.is_some_and(|(after, _)| end >= after))
        };
        let windows: Vec<&Window> = timeline.windows().iter().filter(spans).collect();
        let from = self.edges.get(before).map_or(0, |(n, _)| *n);
        let until = after.map_or(u64::MAX, |(_, n)| n);
        let told = timeline.edits().filter(|(n, edited)| (from..=until).contains(n) && edited.covers(path)).last();
        match (windows.as_slice(), told) {
            ([], Some((_, edited))) => Author::Named { name: edited.author.clone() },
            ([first, rest @ ..], None) if rest.iter().all(|other| other.session == first.session) && !first.overlaps_other_session => {
                let mut tools: Vec<String> = Vec::new();
                for tool in windows.iter().filter_map(|window| window.tool.clone()) {
                    if !tools.contains(&tool) {
                        tools.push(tool);
                    }
                }
                Author::Agent { session: first.session.clone(), turn: first.turn.clone(), tools }
            }
            _ => Author::Unknown,
        }
    }
}

/// The chunks of a regular file in a checkpoint.
fn chunks_of(reader: &Reader, root: &crate::store::ChunkId, name: &[u8]) -> Result<Option<Vec<ChunkRef>>> {
    Ok(match reader.entry(root, name)?.map(|entry| entry.kind) {
        Some(EntryKind::File { chunks, .. }) => Some(chunks),
        _ => None,
    })
}

/// The content; `None` for what is no text or too large: its lines count as gone.
fn content(reader: &Reader, chunks: &[ChunkRef]) -> Result<Option<Vec<u8>>> {
    if chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>() > MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    reader.copy(chunks, &mut bytes)?;
    Ok(Some(bytes).filter(|bytes| is_text(bytes)))
}

fn is_text(bytes: &[u8]) -> bool {
    !bytes.iter().take(PROBE).any(|byte| *byte == 0)
}

/// Lines without their ends.
fn lines_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() { Vec::new() } else { text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect() }
}
