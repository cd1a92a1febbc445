//! Turns of agents: what was there before and after each tool call.
//!
//! Read in this order: `options` (what is asked and told), `log` (opening and mending the timeline), `edge` (a checkpoint, or
//! the last one where nothing moved), `begin`, `end`, `background`, `edited`, `history` (what there was),
//! `blame` (line by line), `replay` (any state into a folder).

mod background;
mod begin;
mod blame;
mod edge;
mod edited;
mod end;
mod history;
mod log;
mod options;
mod replay;

pub use background::background_task;
pub use blame::{BlameLine, BlameReport};
pub use edited::EditedReport;
pub use history::{TurnDetails, TurnInfo, TurnPath, WindowInfo};
pub use log::TimelineReport;
pub use options::{TurnData, TurnEnd, TurnOptions, TurnReport, WaitReport};
pub use replay::ReplayReport;
