//! What agent hosts call: their events open and close turns.
//!
//! Read in this order: `event` (what a host says), `turn` (what is done), `settings` (how a host is told to call us). A host is never
//! kept from working by a failure of ours: it is warned, and the exit code is 0.

mod event;
mod settings;
mod turn;

use std::io::Read;

use serde_json::{Value, json};

use crate::arguments::{HookCommand, HostName};
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;

/// The longest event: it may hold all that a tool wrote.
const MAX_EVENT: u64 = 256 << 20;

pub(crate) fn run(context: &Context, output: &mut Output<'_>, stdin: &mut dyn Read, command: HookCommand) -> Result<u8, Failure> {
    let host = match command {
        HookCommand::ClaudeCode => HostName::ClaudeCode,
        HookCommand::Codex => HostName::Codex,
        HookCommand::Gemini => HostName::Gemini,
        HookCommand::Cursor => HostName::Cursor,
        HookCommand::Install(arguments) => return settings::install(context, output, &arguments, true).map(|()| exit::DONE),
        HookCommand::Uninstall(arguments) => return settings::install(context, output, &arguments, false).map(|()| exit::DONE),
    };
    let mut bytes = Vec::new();
    let read = stdin.take(MAX_EVENT).read_to_end(&mut bytes).map_err(|error| format!("its event could not be read: {error}"));
    let parsed = read.and_then(|_| serde_json::from_slice::<Value>(&bytes).map_err(|error| format!("its event is no JSON: {error}")));
    let (name, warnings) = match parsed.and_then(|value| Ok((event::name(&value), event::of(host, &value)?))) {
        Ok((name, event)) => (name, turn::perform(context, &event)),
        Err(why) => (String::new(), vec![why]),
    };
    for warning in &warnings {
        output.warning(format!("forklift: {warning}"));
    }
    if let Some(answer) = answer(host, &name, &warnings) {
        output.raw(&answer.to_string())?;
    }
    Ok(exit::DONE)
}

/// What the host takes as "go on". Never a permission: that is the user's.
fn answer(host: HostName, event: &str, warnings: &[String]) -> Option<Value> {
    match host {
        HostName::Cursor if event == "beforeSubmitPrompt" => Some(json!({ "continue": true })),
        HostName::Cursor => Some(json!({})),
        // What Claude Code reads after a prompt it shows to the model, so an answer is only given where there is something to say.
        HostName::ClaudeCode | HostName::Codex if warnings.is_empty() => None,
        HostName::Gemini if warnings.is_empty() => Some(json!({})),
        _ => Some(json!({ "systemMessage": format!("forklift: {}", warnings.join("; ")) })),
    }
}
