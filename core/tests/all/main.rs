//! Tests of the library as a whole, with real servers: one binary per crate.

mod server;
mod support;
