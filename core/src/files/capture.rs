//! Capturing the files of a scope into a store session.

use std::path::PathBuf;

use super::{Coverage, Scope, StatCache};
use crate::error::Result;
use crate::progress::Control;
use crate::store::{Half, Session};

/// A captured tree.
#[derive(Debug, Clone)]
pub struct Captured {
    /// For the ref; its facts hold scope and coverage.
    pub half: Half,
    /// What was left out.
    pub coverage: Coverage,
    /// Regular files opened and read, because the cache did not know them.
    pub files_opened: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// Paths that changed while they were read, three times over.
    pub unstable: Vec<PathBuf>,
    /// Hash over path and stat of every entry, for [`moved_since`].
    pub fingerprint: [u8; 32],
}

/// Captures every entry of `scope`. Reads only files that `cache` does not know, and updates it.
pub fn capture(scope: &Scope, session: &Session, cache: &mut StatCache, control: &Control) -> Result<Captured> {
    let _ = (scope, session, cache, control);
    todo!()
}

/// Whether any entry of the scope was made, changed or removed since `captured`: by stat alone.
pub fn moved_since(scope: &Scope, captured: &Captured, control: &Control) -> Result<bool> {
    let _ = (scope, captured, control);
    todo!()
}
