//! Starting, keeping, finding and stopping real servers. `row N` is a row of the table of public failures.
#![allow(clippy::disallowed_methods, reason = "tests look at files with the standard library's own means")]

mod account;
mod host;
mod keeper;
mod leftovers;
mod relay;
mod session;
mod start;
