//! Which WAL a cleanly stopped cluster needs.

use std::path::Path;

use super::ControlFile;
use crate::error::Result;

/// The names in `pg_wal` that a cleanly stopped cluster needs, sorted: every segment from the checkpoint's redo point to the
/// last byte of its record, from the oldest `restart_lsn` in pg_replslot on, every segment with a `.ready` file, and all
/// `.history` files. `Corrupt` names a segment that is missing.
pub fn needed_segments(data: &Path, control: &ControlFile) -> Result<Vec<String>> { let _ = (data, control); todo!() }
