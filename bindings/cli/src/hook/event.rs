//! What the events of the hosts mean.

use std::path::PathBuf;

use serde_json::Value;

use crate::arguments::HostName;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Folders that the host works in; empty where it does not say.
    pub(super) folders: Vec<PathBuf>,
    /// One conversation.
    pub(super) session: String,
    /// The user's message, where the host names it.
    pub(super) turn: Option<String>,
    /// What happened.
    pub(super) kind: Kind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// The user sent a message.
    Prompt,
    /// A tool is about to run.
    Before(Call),
    /// It has run.
    After(Call, Outcome),
    /// The agent has answered, or the session is over.
    Over,
    /// Nothing that concerns us.
    Other,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) id: Option<String>,
}

/// How a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed,
}

/// Tools that change no file themselves. An agent within the agent tells of its own tools.
const QUIET: &[&str] = &[
    "Read",
    "Glob",
    "Grep",
    "LS",
    "NotebookRead",
    "WebFetch",
    "WebSearch",
    "TodoWrite",
    "TodoRead",
    "Task",
    "Agent",
    "AskUserQuestion",
    "ExitPlanMode",
    "update_plan",
    "view_image",
    "web_search",
    "read_file",
    "read_many_files",
    "list_directory",
    "glob",
    "search_file_content",
    "grep_search",
    "google_web_search",
    "web_fetch",
];

/// The name that the host gives to an event.
pub(super) fn name(value: &Value) -> String {
    text(value, &["hook_event_name"]).unwrap_or_default()
}

/// Reads one; the error says what is wrong with it.
pub(super) fn of(host: HostName, value: &Value) -> Result<Event, String> {
    if !value.is_object() {
        return Err("its event is no JSON object".to_owned());
    }
    let name = name(value);
    if name.is_empty() {
        return Err("its event has no hook_event_name".to_owned());
    }
    let kind = kind(host, &name, value);
    let session = text(value, &["session_id", "conversation_id"]);
    let session = if kind == Kind::Other { session.unwrap_or_default() } else { session.ok_or("its event names no session")? };
    let roots = value.get("workspace_roots").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = roots.collect();
    if folders.is_empty() {
        folders.extend(text(value, &["cwd"]).map(PathBuf::from));
    }
    let turn = text(value, &["prompt_id", "turn_id", "generation_id"]);
    Ok(Event { folders, session, turn, kind })
}

fn kind(host: HostName, name: &str, value: &Value) -> Kind {
    let call = |tool: Option<&str>| {
        let tool = tool.map(str::to_owned).or_else(|| text(value, &["tool_name"])).unwrap_or_else(|| "tool".to_owned());
        Call { tool, id: text(value, &["tool_use_id"]) }
    };
    let quiet = text(value, &["tool_name"]).is_some_and(|tool| QUIET.contains(&&*tool));
    let ended = if failed(value) { Outcome::Failed } else { Outcome::Done };
    match (host, name) {
        (HostName::ClaudeCode | HostName::Codex, "UserPromptSubmit")
        | (HostName::Gemini, "BeforeAgent")
        | (HostName::Cursor, "beforeSubmitPrompt") => Kind::Prompt,
        (HostName::ClaudeCode | HostName::Codex, "Stop" | "StopFailure" | "SessionEnd")
        | (HostName::Gemini, "AfterAgent" | "SessionEnd")
        | (HostName::Cursor, "stop" | "sessionEnd") => Kind::Over,
        (HostName::ClaudeCode | HostName::Codex, "PreToolUse") | (HostName::Gemini, "BeforeTool") | (HostName::Cursor, "preToolUse")
            if !quiet =>
        {
            Kind::Before(call(None))
        }
        (HostName::ClaudeCode | HostName::Codex, "PostToolUse") | (HostName::Gemini, "AfterTool") | (HostName::Cursor, "postToolUse")
            if !quiet =>
        {
            Kind::After(call(None), ended)
        }
        (HostName::ClaudeCode | HostName::Codex, "PostToolUseFailure") | (HostName::Cursor, "postToolUseFailure") if !quiet => {
            Kind::After(call(None), Outcome::Failed)
        }
        (HostName::Cursor, "beforeShellExecution") => Kind::Before(call(Some("Shell"))),
        (HostName::Cursor, "afterShellExecution") => Kind::After(call(Some("Shell")), ended),
        (HostName::Cursor, "beforeMCPExecution") => Kind::Before(call(None)),
        (HostName::Cursor, "afterMCPExecution") => Kind::After(call(None), ended),
        _ => Kind::Other,
    }
}

/// Whether the answer of a tool says that it failed.
fn failed(value: &Value) -> bool {
    let Some(response) = value.get("tool_response").or_else(|| value.get("tool_output")) else { return false };
    let flag = |name: &str| response.get(name).and_then(Value::as_bool);
    flag("is_error") == Some(true)
        || flag("success") == Some(false)
        || flag("interrupted") == Some(true)
        || response.get("error").is_some_and(|error| !error.is_null())
}

/// The first of these members that is text and not empty; control characters would be no name.
fn text(value: &Value, names: &[&str]) -> Option<String> {
    let found = names.iter().find_map(|name| value.get(*name).and_then(Value::as_str).filter(|text| !text.is_empty()))?;
    Some(found.to_owned())
}
