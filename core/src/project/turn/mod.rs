//! Turns of agents: what was there before and after each tool call.
//!
//! Read in this order: `options` (what is asked and told), `log` (opening and mending the timeline), `edge` (a checkpoint, or
//! the last one where nothing moved), `begin`, `end`, `background`, `edited`, `history` (what there was).

mod background;
mod begin;
mod edge;
mod edited;
mod end;
mod history;
mod log;
mod options;

pub use background::background_task;
pub use edited::EditedReport;
pub use history::{TurnDetails, TurnInfo, TurnPath, WindowInfo};
pub use log::TimelineReport;
pub use options::{TurnData, TurnEnd, TurnOptions, TurnReport, WaitReport};
