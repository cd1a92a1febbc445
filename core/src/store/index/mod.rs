//! Where each chunk lies: immutable sorted segments, and what a process knows of all of them.
//!
//! Read `segment` (one file), then `view` (all of them, and the packs that none covers), then `merge`.

mod merge;
mod segment;
mod view;

pub(super) use merge::{Draft, superseded_by_merge};
pub(super) use segment::{Location, Row, Segment};
pub(super) use view::{Presence, View};
