//! Where everything lies in a store's folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunk::{from_hex, hex};
use super::disk::Disk;
use crate::error::{ErrorKind, Result};
use crate::sys::id;

/// Folders at the top of a store.
pub(super) const FOLDERS: [&str; 9] = ["packs", "index", "refs", "tmp", "trash", "quarantine", "branches", "projects", "caches"];

/// The name of a pack: BLAKE3 of all its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PackId(pub(super) [u8; 32]);

impl PackId {
    /// The pack of a file name, where it is one.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        name.strip_suffix(".pack").and_then(from_hex).map(Self)
    }

    /// `<64 hex>.pack`.
    pub(super) fn file_name(&self) -> String {
        format!("{self}.pack")
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackId({self})")
    }
}

/// The paths of one store, and the disk they are on.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Layout {
    pub(super) fn new(disk: Arc<dyn Disk>, root: PathBuf) -> Self {
        Self { root, disk }
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn format(&self) -> PathBuf {
        self.root.join("FORMAT")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn gate(&self) -> PathBuf {
        self.root.join("gate")
    }

    pub(super) fn folder(&self, name: &'static str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.root.join("packs")
    }

    pub(super) fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    pub(super) fn refs(&self) -> PathBuf {
        self.root.join("refs")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// `packs/<first byte>`.
    pub(super) fn pack_folder(&self, first: u8) -> PathBuf {
        self.packs().join(format!("{first:02x}"))
    }

    pub(super) fn pack(&self, id: &PackId) -> PathBuf {
        let [first, ..] = id.0;
        self.pack_folder(first).join(id.file_name())
    }

    /// Whether a pack is in its place, with the size that the index knows.
    pub(super) fn has_pack(&self, id: &PackId, size: u64) -> bool {
        self.disk.stat(&self.pack(id)).is_ok_and(|found| found.is_some_and(|found| found.len == size))
    }

    /// A new, unique path in `tmp/`.
    pub(super) fn temporary(&self, extension: &str) -> Result<PathBuf> {
        Ok(self.tmp().join(format!("{}.{extension}", id::sortable()?)))
    }

    /// The generation that prune bumps; `None` where the file does not parse, which no cache may be believed against.
    pub(super) fn generation(&self) -> Result<Option<u64>> {
        // More than any number has is as good as anything else that is no number.
        let file = self.generation_file();
        let text = match self.disk.read_optional(&file, 64) {
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
            // Whatever else has its name, such as a pipe.
            Err(error) if error.kind() == ErrorKind::Io && error.os().is_none() => return Ok(None),
            Err(_) if self.disk.is_folder(&file)? => return Ok(None),
            other => other?.unwrap_or_default(),
        };
        Ok(std::str::from_utf8(&text).ok().and_then(|text| text.trim_end().parse().ok()))
    }

    /// Moves a folder that has the name of a file of the store to the quarantine. `false` where there is none.
    pub(super) fn put_folder_aside(&self, path: &Path) -> Result<bool> {
        if !self.disk.is_folder(path)? {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.disk.rename_new(path, &self.folder("quarantine").join(format!("{name}.{}", id::sortable()?)))?;
        Ok(true)
    }

    pub(super) fn generation_file(&self) -> PathBuf {
        self.root.join("gc_generation")
    }

    /// Every file in the pack folders that has a pack's name; other names are given to `stray`.
    pub(super) fn list_packs(&self, mut stray: impl FnMut(PathBuf)) -> Result<Vec<PackId>> {
        let mut packs = Vec::new();
        for first in 0..=u8::MAX {
            let folder = self.pack_folder(first);
            let names = match self.disk.names(&folder) {
                // Its packs are missed one by one, by name, when they are needed.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            for name in names {
                match name.to_str().and_then(PackId::of_name).filter(|id| id.0.first() == Some(&first)) {
                    Some(id) => packs.push(id),
                    None => stray(folder.join(&name)),
                }
            }
        }
        Ok(packs)
    }
}
