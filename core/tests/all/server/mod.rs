//! Starting, keeping, finding and stopping real servers. `row N` is a row of the table of public failures.

mod account;
mod host;
mod keeper;
mod leftovers;
mod relay;
mod session;
mod start;
