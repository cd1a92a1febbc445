//! The sink that makes a folder: reflinks where the file system has them, else copies.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::sink::{STEP, check_path, open_source};
use super::{Sink, SourceFile};
use crate::clone::{Backend, Method, choose, make_folder, remove_tree};
use crate::error::{Error, Result};
use crate::progress::{Control, Unit};
use crate::sys::{fs, parallel};

/// A sink that clones into a new folder, by the cheapest backend. Modes are kept, owners are the caller's; nothing is
/// synced: the caller syncs the file system once. After a failure the caller removes the folder.
pub struct TreeSink {
    target: PathBuf,
    backend: Box<dyn Backend>,
    copied: AtomicU64,
}

impl TreeSink {
    /// Into `target`, which is made, as a subvolume on btrfs, so that it can be cloned whole. `source` is the data folder that will be copied (to probe for reflink).
    ///
    /// # Errors
    /// `AlreadyExists` where `target` is there, `NotFound` where its parent is not, `NoSpace`, `Permission`, `Io`.
    pub fn new(source: &Path, target: &Path) -> Result<Self> {
        make_folder(target, 0o700)?;
        match choose(source, target) {
            Ok(backend) => Ok(Self { target: target.to_owned(), backend, copied: AtomicU64::new(0) }),
            Err(error) => {
                drop(remove_tree(target));
                Err(error)
            }
        }
    }

    /// Which way it copies.
    #[must_use]
    pub fn method(&self) -> Method {
        self.backend.method()
    }

    fn file(&self, file: &SourceFile) -> Result<()> {
        check_path(&file.path)?;
        let Some(source) = open_source(file)? else { return Ok(()) };
        let metadata = source.metadata().map_err(|error| Error::io("examine", &file.source, error))?;
        let path = self.target.join(&file.path);
        let target = fs::create_new(&path, 0o600)?;
        let bytes = self.backend.clone_file(&source, &file.source, &target, &path)?;
        set_mode(&target, &path, metadata.permissions().mode())?;
        self.copied.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Sink for TreeSink {
    fn folder(&mut self, path: &Path, mode: u32) -> Result<()> {
        check_path(path)?;
        let path = self.target.join(path);
        fs::make_folder(&path, 0o700)?;
        let folder = std::fs::File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        set_mode(&folder, &path, mode)
    }

    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()> {
        let mut done = 0;
        for step in files.chunks(STEP) {
            parallel::map(step, |file| control.check().and_then(|()| self.file(file)))?;
            done += step.len();
            control.report("copy cluster", count(done), count(files.len()), Unit::Items);
        }
        Ok(())
    }

    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        check_path(path)?;
        let path = self.target.join(path);
        let mut file = fs::create_new(&path, 0o600)?;
        file.write_all(bytes).map_err(|source| Error::io("write", &path, source))?;
        self.copied.fetch_add(count(bytes.len()), Ordering::Relaxed);
        set_mode(&file, &path, mode)
    }

    fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }
}

fn set_mode(file: &std::fs::File, path: &Path, mode: u32) -> Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777)).map_err(|source| Error::io("set mode of", path, source))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
