//! The command line as one more language over the same operations: [`run`] is the whole program, given what a process has.
//!
//! Results go to standard output, progress, warnings and hints to standard error. Exit codes are in [`exit`].
//! Read in this order: `arguments` (what can be said), `commands` (what is done), `context` (where), `output` (how it is told), `hook` (what hosts call).

mod arguments;
mod commands;
mod context;
pub mod exit;
mod failure;
mod hook;
mod output;
mod progress;
mod signals;
mod table;
mod text;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use forklift::Environment;

pub use arguments::grammar;
pub use failure::quiet_panics;
pub use signals::Signals;

use arguments::Arguments;
use context::Context;
use failure::Failure;
use output::Output;
use progress::Bar;

/// What the process around a command lends to it.
pub struct Host<'a> {
    /// What a host tells its hooks.
    pub stdin: &'a mut dyn Read,
    /// Where results go.
    pub stdout: &'a mut dyn Write,
    /// Where progress, warnings, hints and errors go.
    pub stderr: &'a mut dyn Write,
    /// Standard error is a terminal: an operation that lasts may draw a progress bar on it.
    pub progress: bool,
    /// The folder that relative paths start from.
    pub folder: PathBuf,
    /// The variables that forklift looks at.
    pub environment: Environment,
    /// Ctrl-C and its like.
    pub signals: Signals,
}

/// Runs one command line, the program's name first, and gives the exit code. It never panics.
pub fn run(arguments: impl IntoIterator<Item = OsString>, host: Host<'_>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let Host { stdin, stdout, stderr, progress, folder, environment, signals } = host;
    let bar = progress.then(|| Arc::new(Bar::new()));
    // What cannot be parsed has no `--json` flag yet; a caller that asked for JSON gets its usage errors in it too.
    let json = arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    let mut output = Output::new(stdout, stderr, json, bar.clone());
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let arguments = Arguments::try_parse_from(arguments)?;
        output.configure(&arguments.global);
        let bar = bar.filter(|_| !arguments.global.quiet);
        let context = Context::new(&arguments.global, folder, environment, signals, bar)?;
        commands::run(&context, &mut output, stdin, arguments.command)
    }));
    let answer = answer.unwrap_or_else(|panic| Err(Failure::of_panic(panic.as_ref()))).and_then(|code| output.flush().map(|()| code));
    answer.unwrap_or_else(|failure| failure.report(&mut output))
}
