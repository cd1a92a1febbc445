//! Tests of the library as a whole, with real servers: one binary per crate.

mod copying;
mod mark;
mod online;
mod project;
mod sequences;
mod server;
mod support;
