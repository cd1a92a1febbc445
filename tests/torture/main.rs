//! Tortures the store with real kernels, processes and servers, and prints what it went through.
//!
//! `forklift-torture run` divides a time among the kinds of faults. Read in this order: `enclosure` (nothing outlives a run),
//! `content`, `operations`, `worker` (the processes that are tortured), `children`, `model` (what must hold), `image`,
//! `clusters`, then the kinds: `power`, `writeback`, `space`, `inject`, `kills`, `flips`, `simulated`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: it fails by panicking and looks at files with the standard library's own means"
)]

mod children;
mod clusters;
mod content;
mod enclosure;
mod flips;
mod image;
mod inject;
mod kills;
mod model;
mod operations;
mod power;
mod run;
mod simulated;
mod space;
mod tally;
mod worker;
mod writeback;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", rest @ ..] => enclosure::run(rest),
        ["enclose", rest @ ..] => enclosure::enclose(rest),
        ["enclosed", rest @ ..] => run::main(rest),
        ["work", rest @ ..] => worker::main(rest),
        _ => {
            eprintln!(
                "usage: forklift-torture run --work FOLDER --keep FOLDER [--seconds N] [--kinds A,B] [--seed N] [--core-tests PROGRAM]"
            );
            ExitCode::from(2)
        }
    }
}
