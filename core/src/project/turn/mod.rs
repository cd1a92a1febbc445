//! Turns of agents: what was there before and after each tool call.
//!
//! Read in this order: `log` (opening and mending the timeline).

mod log;

pub use log::TimelineReport;
