//! Taking back what a session's turns did, and taking that back.
//!
//! Read in this order: `asked` (what can be asked for), `history` (from the timeline to steps), `halves` (the database), `plan`,
//! `apply`, `told` (what a host tells its model).

mod apply;
mod asked;
mod halves;
mod history;
mod plan;
mod told;

pub use apply::RewindReport;
pub use asked::{DatabaseChoice, RedoOptions, RewindOptions, RewindTo};
pub use halves::DatabaseFate;
pub use plan::{RewindPlan, RewindPreview};

pub(super) use apply::Rewinding;
pub(super) use history::JournalRewind;
