//! Copying a cleanly stopped cluster.

use std::path::Path;

use super::{CopyReport, Sink};
use crate::error::Result;
use crate::progress::Control;

/// Copies a cluster that pg_control calls shut down and that no process has open: all files but temporary ones, of WAL only
/// what it needs, tablespaces as real folders below `pg_tblspc/<oid>`, pg_control last. `Capture` where it is not stopped.
pub fn copy_stopped(data: &Path, sink: &mut dyn Sink, control: &Control) -> Result<CopyReport> { let _ = (data, sink, control); todo!() }
