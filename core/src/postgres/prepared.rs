//! Prepared transactions of a stopped cluster, read from their state files.

use std::path::Path;

use super::cluster::catalog_version_of;
use super::control_file::Fields;
use crate::error::Result;
use crate::sys::fs;

/// The identifiers given to PREPARE TRANSACTION, sorted; `transaction <xid>` where a state file does not say.
pub(super) fn prepared_transactions(data: &Path, catalog_version: u32) -> Result<Vec<String>> {
    let folder = data.join("pg_twophase");
    let with_statistics = catalog_version >= catalog_version_of(15).unwrap_or(u32::MAX);
    let mut prepared = Vec::new();
    for name in fs::names(&folder)? {
        let bytes = fs::read(&folder.join(&name))?;
        prepared.push(gid(&bytes, with_statistics).unwrap_or_else(|| format!("transaction {}", name.display())));
    }
    prepared.sort_unstable();
    Ok(prepared)
}

/// The header has counts of the lists behind it (two more since 15), a flag, the length of the identifier and two longs; then comes the identifier.
fn gid(bytes: &[u8], with_statistics: bool) -> Option<String> {
    let (length_at, gid_at) = if with_statistics { (54, 72) } else { (46, 64) };
    let length = usize::try_from(Fields(bytes).u32(length_at).ok()? & 0xFFFF).ok()?;
    let text = bytes.get(gid_at..gid_at + length)?;
    let text = std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}
