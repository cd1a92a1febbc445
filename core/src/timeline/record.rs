//! One record of the log: a line of JSON that ends with a hash of itself.

use serde::{Deserialize, Serialize};

use super::window::{CheckpointId, RewindId, WindowId, WindowState};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::process::Identity;

/// The longest line.
pub(super) const MAX_LINE: usize = 1 << 20;
/// What stands before and after the hash at the end of a line.
const BEFORE: &str = ",\"hash\":\"";
const AFTER: &str = "\"}\n";
/// Hexadecimal digits of the hash: 128 bits.
const DIGITS: usize = 32;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its number: one more than that of the record before.
    pub n: u64,
    /// Milliseconds since 1970: for people.
    pub at_ms: u64,
    /// Number of the first record that a writer has to know besides this one: windows that are open, records that no ref carries.
    pub from: u64,
    /// Boot in which it was written.
    pub boot: String,
    /// What happened.
    pub what: What,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A window opened.
    Begin(Begin),
    /// The capture in the background of a window that opened without one is there.
    Captured(Captured),
    /// A window closed.
    End(End),
    /// Somebody said that they edited paths.
    Edited(Edited),
    /// Turns were taken back, or a rewind was.
    Rewound(Rewind),
}

/// A window opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// Window.
    pub window: WindowId,
    /// Session.
    pub session: String,
    /// Turn.
    pub turn: String,
    /// Tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Id of the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The process whose death ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The files before; absent where they are captured in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<CheckpointId>,
    /// It closes by itself as soon as it has its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instant: bool,
}

/// The start of a window that was captured in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// Window.
    pub window: WindowId,
    /// The files before.
    pub start: CheckpointId,
}

/// A window closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Window.
    pub window: WindowId,
    /// The files after.
    pub end: CheckpointId,
    /// `Ended`, `Failed` or `Interrupted`.
    pub state: WindowState,
}

/// Paths that somebody said they edited just now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edited {
    /// Who, such as `human`.
    pub author: String,
    /// Raw bytes, relative to the root; a folder stands for all that is in it.
    #[serde(with = "names")]
    pub paths: Vec<Vec<u8>>,
}

impl Edited {
    /// Whether it names this path, or a folder above it.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        self.paths
            .iter()
            .any(|named| path.strip_prefix(named.as_slice()).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/')))
    }
}

/// Turns that were taken back; or, with `undoes`, a rewind that was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewind {
    /// Id.
    pub id: RewindId,
    /// Session whose turns they are.
    pub session: String,
    /// Turns, in order.
    pub turns: Vec<String>,
    /// Windows that it took back (or, with `undoes`, put in force again).
    pub windows: Vec<WindowId>,
    /// All that was there before: the safety checkpoint.
    pub before: CheckpointId,
    /// All that was there after; what changed from `before` to it is this rewind's.
    pub after: CheckpointId,
    /// The rewind that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<RewindId>,
    /// Anything that the layers above keep with it (verdicts, kept paths, what became of the database).
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub facts: serde_json::Value,
}

/// A process, in the boot in which it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Process number.
    pub pid: u32,
    /// Clock ticks since boot at its start.
    pub ticks: u64,
    /// Boot.
    pub boot: String,
}

impl Owner {
    /// The living process `pid`.
    ///
    /// # Errors
    /// `NotFound` where there is none; `Unsupported` without `/proc`.
    pub fn of(pid: u32) -> Result<Self> {
        let Some(Identity { pid, ticks }) = Identity::of(pid) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no process {pid} to own the window"))
                .with("pid", pid)
                .hint("name a process that lives as long as the tool call, or none"));
        };
        Ok(Self { pid, ticks, boot: crate::sys::process::boot_id()? })
    }

    /// Whether that very process lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        crate::sys::process::boot_id().is_ok_and(|boot| boot == self.boot) && Identity { pid: self.pid, ticks: self.ticks }.is_alive()
    }
}

/// The line of a record, with its end.
pub(super) fn encode<T: Serialize>(record: &T) -> Result<String> {
    let mut text = serde_json::to_string(record)
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("a record of the timeline: {error}")))?;
    let hash = blake3::hash(text.as_bytes()).to_hex();
    text.pop();
    text.push_str(BEFORE);
    text.push_str(hash.get(..DIGITS).unwrap_or_default());
    text.push_str(AFTER);
    if text.len() > MAX_LINE {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a record of the timeline takes {} bytes, more than {MAX_LINE}", text.len()),
        )
        .hint("name fewer paths at once, or a folder that holds them"));
    }
    Ok(text)
}

/// What a whole line (with its end) holds; `None` where its hash is wrong.
pub(super) fn body(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix(AFTER)?;
    let (text, hash) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    let mut body = text.strip_suffix(BEFORE)?.to_owned();
    body.push('}');
    (blake3::hash(body.as_bytes()).to_hex().get(..DIGITS) == Some(hash)).then_some(body)
}

/// Raw names as text that can be turned back: a backslash as `\\`, what is not UTF-8 and control characters as `\xNN`.
pub(super) mod names {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(paths: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| crate::report::escape(path)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| super::unescape(text).ok_or_else(|| D::Error::custom(format!("{text:?} is no escaped path")))).collect()
    }
}

/// The bytes that [`crate::report::escape`] made this text of.
pub(super) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(rest.get(..at)?.as_bytes());
        rest = rest.get(at + 1..)?;
        if let Some(after) = rest.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = rest.strip_prefix('x')?.get(..2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?);
            rest = rest.get(3..)?;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}
