//! A sink that does something to the source while its files are copied.

use std::path::Path;

use forklift::postgres::{Sink, SourceFile};
use forklift::{Control, Result};

/// Passes everything on to `inner`, and calls `hook` after the files of the running server were copied.
pub(crate) struct Hooked<'a> {
    pub(crate) inner: &'a mut dyn Sink,
    pub(crate) hook: &'a mut dyn FnMut(),
}

impl Sink for Hooked<'_> {
    fn begin(&mut self, c0_ns: i64) {
        self.inner.begin(c0_ns);
    }

    fn folder(&mut self, path: &Path, mode: u32) -> Result<()> {
        self.inner.folder(path, mode)
    }

    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()> {
        self.inner.files(files, control)?;
        if files.iter().any(|file| file.live) {
            (self.hook)();
        }
        Ok(())
    }

    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        self.inner.bytes(path, mode, bytes)
    }

    fn copied(&self) -> u64 {
        self.inner.copied()
    }
}
