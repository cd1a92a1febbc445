//! Tests of the library as a whole, with real servers: one binary per crate.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, also in their helpers, and look at files with the standard library's own means"
)]

mod branch;
mod copying;
mod mark;
mod online;
mod project;
mod sequences;
mod server;
mod support;
