//! Refs: the small files that make checkpoints exist.

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};

use super::ChunkId;
use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs::Syncs;

/// What made a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// A capture that somebody asked for.
    Capture,
    /// What a restore or rewind was about to replace.
    Safety,
    /// The state of one branch, without files: a fork's or a template's origin.
    Branch,
}

/// One checkpoint, as its ref file holds it (JSON with a BLAKE3 of itself).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ref {
    /// Sorts by time; see [`crate::sys::id::sortable`].
    pub id: String,
    /// The name somebody gave it, unique within its project by the project layer.
    pub name: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// What made it.
    pub kind: RefKind,
    /// The project it belongs to.
    pub project: Option<String>,
    /// The branch whose cluster it holds.
    pub branch: Option<String>,
    /// Agent session.
    pub session: Option<String>,
    /// Turn in that session.
    pub turn: Option<String>,
    /// Tool call in that turn.
    pub tool: Option<String>,
    /// The files.
    pub files: Option<Half>,
    /// The cluster.
    pub cluster: Option<Half>,
    /// Anything the layers above want to keep with the pair (coverage, mode, warnings).
    #[serde(default)]
    pub facts: serde_json::Value,
    /// Boot in which it was written.
    pub boot_id: String,
}

/// One half of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Half {
    /// Root block of the manifest.
    pub root: ChunkId,
    /// Entries.
    pub entries: u64,
    /// Plain bytes.
    pub bytes: u64,
    /// What the layer above must know to put it back: scope of files; versions, sequences, mark of a cluster.
    #[serde(default)]
    pub facts: serde_json::Value,
}

/// The longest ref file.
const MAX_BYTES: usize = 4 << 20;
/// What stands before and after the hash at the end of a ref file.
const BEFORE: &str = ",\"hash\":\"";
const AFTER: &str = "\"}\n";

/// Checks that `id` may be the name of a ref: 1 to 128 of `a-z`, `A-Z`, `0-9`, `-` and `_`, no `-` first.
pub(super) fn check_id(id: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=128).contains(&id.len()) && id.bytes().all(allowed) && !id.starts_with('-') {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::InvalidArgument, format!("{id:?} is not the id of a checkpoint"))
            .hint("list the checkpoints to see their ids"))
    }
}

/// The file of a ref: its JSON on one line, with the member `hash` added at the end: BLAKE3 of the text without it.
pub(super) fn encode(reference: &Ref) -> Result<Vec<u8>> {
    check_id(&reference.id)?;
    let refused = |why: &dyn std::fmt::Display| Error::new(ErrorKind::InvalidArgument, format!("checkpoint {}: {why}", reference.id));
    let text = serde_json::to_string(reference).map_err(|error| refused(&error))?;
    let text = seal(&text).ok_or_else(|| refused(&"it is no JSON object"))?;
    if text.len() > MAX_BYTES {
        return Err(refused(&format_args!("its facts take {} bytes, more than {MAX_BYTES}", text.len())));
    }
    // What cannot be read back must not become a checkpoint.
    decode(text.as_bytes()).map_err(|(_, why)| refused(&why))?;
    Ok(text.into_bytes())
}

/// The JSON of a ref with its hash as the last member.
pub(super) fn seal(json: &str) -> Option<String> {
    let hash = blake3::hash(json.as_bytes()).to_hex();
    Some([json.strip_suffix('}')?, BEFORE, &hash, AFTER].concat())
}

pub(super) fn decode(bytes: &[u8]) -> std::result::Result<Ref, (ErrorKind, String)> {
    let corrupt = |why: &str| (ErrorKind::Corrupt, why.to_owned());
    if bytes.len() > MAX_BYTES {
        return Err(corrupt("it is too long"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| corrupt("it is not text"))?;
    let (body, hash) = text
        .strip_suffix(AFTER)
        .and_then(|text| text.split_at_checked(text.len().checked_sub(64)?))
        .and_then(|(text, hash)| Some((text.strip_suffix(BEFORE)?, hash)))
        .ok_or_else(|| corrupt("it has no hash at its end"))?;
    let body = format!("{body}}}");
    if blake3::hash(body.as_bytes()).to_hex().as_str() != hash {
        return Err(corrupt("its hash is wrong"));
    }
    serde_json::from_str(&body).map_err(|error| (ErrorKind::UnsupportedFormat, format!("another version of forklift wrote it: {error}")))
}

fn read(layout: &Layout, id: &str) -> Result<Ref> {
    let path = layout.refs().join(id);
    let bytes = layout.disk().read_at_most(&path, MAX_BYTES as u64)?;
    let reference = decode(&bytes).and_then(|reference| {
        if reference.id == id {
            Ok(reference)
        } else {
            Err((ErrorKind::Corrupt, format!("it is the file of checkpoint {:?}", reference.id)))
        }
    });
    reference.map_err(|(kind, why)| {
        Error::new(kind, format!("ref {}: {why}", path.display()))
            .with("path", path.display())
            .with("checkpoint", id)
            .hint("put the file back from a copy of the store, or remove this checkpoint; others are not affected")
    })
}

pub(super) fn find(layout: &Layout, id: &str) -> Result<Ref> {
    check_id(id)?;
    read(layout, id).map_err(|error| if error.kind() == ErrorKind::NotFound { missing(id) } else { error })
}

fn missing(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no checkpoint {id}"))
        .with("checkpoint", id)
        .hint("list the checkpoints to see their ids")
}

/// The names of all files in the folder of refs, in the order of their bytes, which for good ids is that of time.
pub(super) fn names(layout: &Layout) -> Result<Vec<OsString>> {
    layout.disk().names(&layout.refs())
}

/// The ref in the file of this name, which may be no id.
pub(super) fn read_name(layout: &Layout, name: &OsStr) -> Result<Ref> {
    match name.to_str().filter(|id| check_id(id).is_ok()) {
        Some(id) => read(layout, id),
        None => {
            let path = layout.refs().join(name);
            Err(Error::new(ErrorKind::Corrupt, format!("{} has not the name of a ref", path.display()))
                .with("path", path.display())
                .hint("move the file out of the folder of refs"))
        }
    }
}

pub(super) fn list(layout: &Layout) -> Result<(Vec<Ref>, Vec<String>)> {
    load(layout, names(layout)?)
}

/// The `count` last by name; only they are read.
pub(super) fn last(layout: &Layout, count: usize) -> Result<(Vec<Ref>, Vec<String>)> {
    load(layout, layout.disk().last_names(&layout.refs(), count)?)
}

fn load(layout: &Layout, names: Vec<OsString>) -> Result<(Vec<Ref>, Vec<String>)> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for name in names {
        match read_name(layout, &name) {
            Ok(reference) => good.push(reference),
            // Removed since the folder was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => bad.push(name.to_string_lossy().into_owned()),
        }
    }
    good.sort_by(|a, b| a.id.cmp(&b.id));
    Ok((good, bad))
}

/// The refs after one, read one by one. See [`Store::refs_after`](super::Store::refs_after).
#[derive(Debug)]
pub struct RefsAfter<'a> {
    layout: &'a Layout,
    names: std::vec::IntoIter<OsString>,
}

pub(super) fn after<'a>(layout: &'a Layout, after: Option<&str>) -> Result<RefsAfter<'a>> {
    let mut names = names(layout)?;
    let first = after.map_or(0, |after| names.partition_point(|name| name.as_encoded_bytes() <= after.as_bytes()));
    Ok(RefsAfter { layout, names: names.split_off(first).into_iter() })
}

impl RefsAfter<'_> {
    fn read(&self, name: &OsStr) -> Option<Result<Ref>> {
        match read_name(self.layout, name) {
            // Removed since the folder was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other),
        }
    }
}

impl Iterator for RefsAfter<'_> {
    type Item = Result<Ref>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(name) = self.names.next() {
            let read = self.read(&name);
            if read.is_some() {
                return read;
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.names.len()))
    }
}

impl DoubleEndedIterator for RefsAfter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while let Some(name) = self.names.next_back() {
            let read = self.read(&name);
            if read.is_some() {
                return read;
            }
        }
        None
    }
}

pub(super) fn exists(layout: &Layout, id: &str) -> Result<bool> {
    Ok(layout.disk().stat(&layout.refs().join(id))?.is_some())
}

/// Publishes a ref's file: the commit point of a session. On failure the ref does not exist.
pub(super) fn publish(layout: &Layout, id: &str, bytes: &[u8], syncs: &Syncs) -> Result<()> {
    let (disk, path) = (layout.disk(), layout.refs().join(id));
    let temporary = layout.temporary("ref")?;
    disk.write_new(&temporary, &[bytes], 0o400, syncs)?;
    if let Err(error) = disk.rename_new(&temporary, &path) {
        disk.discard(&temporary);
        return Err(if error.kind() == ErrorKind::AlreadyExists { taken(id) } else { error });
    }
    // Nobody was told of it: what is not durable must not be found.
    disk.sync_folder(&layout.refs(), syncs).inspect_err(|_| disk.discard(&path))
}

/// The id is in use.
pub(super) fn taken(id: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("there is a checkpoint {id} already"))
        .with("checkpoint", id)
        .hint("capture again: each checkpoint gets an id of its own")
}

pub(super) fn remove(layout: &Layout, id: &str) -> Result<()> {
    check_id(id)?;
    let path = layout.refs().join(id);
    layout.disk().unlink(&path).map_err(|error| if error.kind() == ErrorKind::NotFound { missing(id) } else { error })?;
    // Without this a crash could bring it back after a prune has taken its packs.
    layout.disk().sync_folder(&layout.refs(), &Syncs::new())
}
