//! `server.json` in a run folder: which processes serve this branch. Written by the keeper alone.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::process::Identity;

/// The processes of one server. Nothing in it is believed without a look at them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Record {
    pub(super) postmaster: Identity,
    pub(super) keeper: Identity,
    pub(super) boot_id: String,
    pub(super) data: PathBuf,
    pub(super) system_identifier: u64,
}

impl Record {
    /// The record of a run folder; `None` where there is none, or one of another boot or that is not whole: both say nothing.
    pub(super) fn read(run: &Path) -> Result<Option<Self>> {
        let Some(bytes) = sys::fs::read_optional(&path(run))? else { return Ok(None) };
        let record: Option<Self> = serde_json::from_slice(&bytes).ok();
        let boot_id = sys::process::boot_id()?;
        Ok(record.filter(|record| record.boot_id == boot_id))
    }

    /// Replaces it whole. Not synced: after a power cut it means nothing anyway.
    pub(super) fn write(&self, run: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "server.json cannot be written as JSON").because(error))?;
        let temporary = run.join(format!(".server.json.{}.tmp", std::process::id()));
        sys::fs::remove_file(&temporary)?;
        let mut file = sys::fs::create_new(&temporary, 0o600)?;
        file.write_all(&bytes).map_err(|source| Error::io("write", &temporary, source))?;
        let target = path(run);
        rustix::fs::rename(&temporary, &target).map_err(|errno| Error::io("rename to", &target, errno))
    }

    /// Takes it away.
    pub(super) fn remove(run: &Path) -> Result<()> {
        sys::fs::remove_file(&path(run))
    }
}

fn path(run: &Path) -> PathBuf {
    run.join("server.json")
}
