//! Tests of the library as a whole, with real servers: one binary per crate.

mod branch;
mod copying;
mod mark;
mod online;
mod sequences;
mod server;
mod support;
