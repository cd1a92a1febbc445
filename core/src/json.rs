//! Records on disk as JSON, each with the number of its format.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs::{self, Syncs};

/// Reads a record of the one `format` that is known. `corrupt` is what to say of a file that is no such record.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, format: u32, corrupt: impl Fn(serde_json::Error) -> Error) -> Result<T> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let bytes = fs::read(path)?;
    let Format { format: found } = serde_json::from_slice(&bytes).map_err(&corrupt)?;
    if found != format {
        let message = format!("{} has format {found}, this forklift knows {format}", path.display());
        return Err(Error::new(ErrorKind::UnsupportedFormat, message)
            .with("path", path.display())
            .hint("use the forklift that wrote it, or a newer one"));
    }
    serde_json::from_slice(&bytes).map_err(corrupt)
}

/// A record that need not be there.
pub(crate) fn optional<T>(loaded: Result<T>) -> Result<Option<T>> {
    match loaded {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record so that it is there whole or not at all, durably.
pub(crate) fn save<T: Serialize>(path: &Path, value: &T, mode: u32, syncs: &Syncs) -> Result<()> {
    fs::replace(path, &encode(path, value)?, mode, syncs)
}

/// The bytes of the record at `path`.
pub(crate) fn encode<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|source| Error::new(ErrorKind::Internal, format!("cannot write {} as JSON: {source}", path.display())))?;
    bytes.push(b'\n');
    Ok(bytes)
}
