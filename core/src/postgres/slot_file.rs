//! The state files of replication slots: which WAL they hold back.

use std::path::Path;

use super::control_file::Fields;
use super::crc32c::crc32c;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

const MAGIC: u32 = 0x0105_1CA1;
/// The checksum covers everything behind itself.
const COVERED_FROM: usize = 8;
const SLOT_DATA: usize = 16;

/// The oldest `restart_lsn` of the slots in `data` that still hold WAL: persistent ones that were not invalidated.
///
/// # Errors
/// `Corrupt` names a slot whose file Postgres would refuse too.
pub(super) fn oldest_restart_lsn(data: &Path, catalog_version: u32) -> Result<Option<u64>> {
    let folder = data.join("pg_replslot");
    let mut oldest: Option<u64> = None;
    for name in fs::names(&folder)? {
        // What a killed server left of making or dropping a slot; the next start removes it.
        if name.as_encoded_bytes().ends_with(b".tmp") {
            continue;
        }
        let path = folder.join(name).join("state");
        let Some(bytes) = fs::read_optional(&path)? else { continue };
        let lsn = restart_lsn(&bytes, catalog_version).map_err(|error| error.while_doing(path.display()).with("path", path.display()))?;
        oldest = match (oldest, lsn) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    Ok(oldest)
}

/// `restart_lsn` of one slot, `None` where it holds no WAL.
fn restart_lsn(bytes: &[u8], catalog_version: u32) -> Result<Option<u64>> {
    let fields = Fields(bytes);
    let damaged = |why: &str| {
        Error::new(ErrorKind::Corrupt, format!("the slot's state file is damaged: {why}"))
            .hint("stop the server and drop the slot's folder from pg_replslot, or restore a checkpoint")
    };
    let number = |at: usize| fields.u32(at).map_err(|_| damaged("it is too short"));
    let long = |at: usize| fields.u64(at).map_err(|_| damaged("it is too short"));
    if number(0)? != MAGIC {
        return Err(damaged("its magic number is wrong"));
    }
    let length = usize::try_from(number(12)?).unwrap_or(usize::MAX);
    let covered = bytes.get(COVERED_FROM..SLOT_DATA.saturating_add(length)).ok_or_else(|| damaged("it is too short"))?;
    if number(4)? != crc32c(&[covered]) {
        return Err(damaged("its CRC does not match"));
    }
    let persistent = number(84)? == 0;
    let restart_lsn = long(96)?;
    // 13 to 15 move the LSN of an invalidated slot to another field; 16 and later keep it and write a cause here.
    let invalidated = catalog_version >= super::cluster::catalog_version_of(16).unwrap_or(u32::MAX) && number(104)? != 0;
    Ok((persistent && restart_lsn != 0 && !invalidated).then_some(restart_lsn))
}
