//! The timeline of a project: sessions of agents, their turns, and the windows in which a turn may change files.
//!
//! Read in this order: `window` (the words), `record` (one line of the log), `log` (the file), `view` (from records to
//! windows), `range` (what a rewind has to look at), `rebuild` (the log from the refs). The format is in `ARCHITECTURE.md`.

mod log;
mod range;
mod rebuild;
mod record;
mod view;
mod window;

#[cfg(test)]
mod tests;

pub use log::{Damage, TimelineLog};
pub use range::{Range, RangeStart, Span, SpanKind};
pub use rebuild::{FACT, Rebuilt, rebuild, records_of};
pub use record::{Begin, Captured, Edited, End, Owner, Record, Rewind, What};
pub use view::Timeline;
pub use window::{Author, CheckpointId, Event, EventKind, RewindId, Turn, Window, WindowId, WindowState};

/// What a line of the log holds, for tests of other layers.
#[cfg(test)]
pub(crate) fn tests_body(line: &[u8]) -> String {
    record::body(line).unwrap()
}

/// The line that holds this.
#[cfg(test)]
pub(crate) fn tests_line(body: &str) -> String {
    record::encode(&serde_json::from_str::<Record>(body).unwrap()).unwrap()
}

/// The bytes of an escaped name.
#[cfg(test)]
pub(crate) fn tests_unescape(text: &str) -> Vec<u8> {
    record::unescape(text).unwrap()
}
