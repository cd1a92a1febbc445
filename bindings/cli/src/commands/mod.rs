//! What each command does: one call of the library, told to people or as JSON.

mod branch;
mod checkpoint;
mod create;
mod doctor;
mod history;
mod pool;
mod postgres;
mod project;
mod restore;
mod rewind;
mod store;
mod turn;

use std::io::Read;

use crate::arguments::Command;
use crate::context::Context;
use crate::failure::Failure;
use crate::hook;
use crate::output::Output;

/// Runs one command and gives the exit code.
pub(crate) fn run(context: &Context, output: &mut Output<'_>, stdin: &mut dyn Read, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Project(command) => project::run(context, output, command),
        Command::Branch(command) => branch::run(context, output, command),
        Command::Short(command) => branch::run(context, output, command.into()),
        Command::Postgres(command) => postgres::run(context, output, command),
        Command::Pool(command) => pool::run(context, output, command),
        Command::Doctor => doctor::run(context, output),
        Command::Store(command) => store::run(context, output, command),
        Command::Hook(command) => hook::run(context, output, stdin, command),
    }
}
