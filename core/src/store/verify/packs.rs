//! Looking at one pack as a whole: its name, its footer, and every chunk in it.

use crate::error::{ErrorKind, Result};
use crate::store::layout::{Layout, PackId};
use crate::store::pack::{self, BLOB_HEADER, Blob, MAX_BYTES};

/// What one pack turned out to be.
#[derive(Debug)]
pub(in crate::store) struct Examined {
    pub(in crate::store) id: PackId,
    pub(in crate::store) size: u64,
    /// Why it is damaged.
    pub(in crate::store) problem: Option<String>,
    /// Its bytes could not be had: nothing is known of them, and another attempt may succeed.
    pub(in crate::store) unread: bool,
    /// The chunks in it that are whole; where nothing is wrong and not every chunk was to be read, those of the footer.
    pub(in crate::store) whole: Vec<Blob>,
    /// Chunks that the footer, or a header in it, names and that are not whole.
    pub(in crate::store) broken: Vec<[u8; 16]>,
}

/// Reads a pack in its place. `None` where there is none any more.
pub(in crate::store) fn examine(layout: &Layout, uuid: &[u8; 16], id: &PackId, every_chunk: bool) -> Result<Option<Examined>> {
    let path = layout.pack(id);
    let size = match layout.disk().stat(&path)? {
        Some(found) if !found.folder => found.len,
        Some(_) => return Ok(Some(Examined::lost(*id, 0, "it is a folder"))),
        None => return Ok(None),
    };
    if size > MAX_BYTES {
        return Ok(Some(Examined::lost(*id, size, "it is too long")));
    }
    match layout.disk().read(&path) {
        Ok(bytes) => Ok(Some(of_bytes(&bytes, uuid, id, every_chunk))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::Io => Ok(Some(Examined { unread: true, ..Examined::lost(*id, size, error.message()) })),
        Err(error) => Err(error),
    }
}

impl Examined {
    fn lost(id: PackId, size: u64, problem: &str) -> Self {
        Self { id, size, problem: Some(problem.to_owned()), unread: false, whole: Vec::new(), broken: Vec::new() }
    }
}

/// As [`examine`], for bytes that were to be the pack `id`.
pub(in crate::store) fn of_bytes(bytes: &[u8], uuid: &[u8; 16], id: &PackId, every_chunk: bool) -> Examined {
    let named = blake3::hash(bytes).as_bytes() == &id.0;
    let footer = pack::parse(bytes, uuid);
    let mut problem = match (&footer, named) {
        (Err(why), _) => Some(why.to_string()),
        (Ok(_), false) => Some("its bytes do not match its name".to_owned()),
        (Ok(_), true) => None,
    };
    let listed = footer.unwrap_or_default();
    let size = bytes.len() as u64;
    if problem.is_none() && !every_chunk {
        return Examined { id: *id, size, problem, unread: false, whole: listed, broken: Vec::new() };
    }
    let (mut whole, mut broken) = (Vec::new(), Vec::new());
    let mut headless = 0_u64;
    for blob in listed {
        let sound = pack::payload(bytes, &blob).is_some_and(|payload| pack::check(&blob, payload).is_ok());
        let own = bytes.get(blob.offset as usize..).map(|rest| Blob::parse(rest.get(..BLOB_HEADER).unwrap_or(rest), blob.offset));
        headless += u64::from(!matches!(own, Some(Ok(own)) if own == blob));
        if sound { whole.push(blob) } else { broken.push(blob.id.prefix()) }
    }
    if problem.is_some() {
        // What the footer does not tell is found by the headers.
        let have: std::collections::HashSet<u32> = whole.iter().map(|blob| blob.offset).collect();
        whole.extend(pack::salvage(bytes).into_iter().filter(|blob| !have.contains(&blob.offset)));
    }
    if problem.is_none() && (!broken.is_empty() || headless > 0) {
        problem = Some(format!("{} of its chunks are damaged", broken.len().max(headless as usize)));
    }
    Examined { id: *id, size, problem, unread: false, whole, broken }
}
