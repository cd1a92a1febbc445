//! The settings of a host: that it calls us, beside whatever else is there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use forklift::sys::fs::{self, Syncs};
use forklift::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::arguments::{HookSettings, HostName};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::text;

/// Seconds that a host lets a call take: a first capture reads everything.
const PATIENCE: u64 = 600;

/// What was, or would be, written.
#[derive(Debug, Serialize)]
struct SettingsReport {
    /// `claude-code` and so on.
    host: &'static str,
    /// The settings file.
    path: String,
    /// Something changes.
    changes: bool,
    /// It was written.
    applied: bool,
    /// Events of which the host tells us then.
    events: Vec<String>,
    /// The file's content then.
    content: Value,
}

pub(super) fn install(context: &Context, output: &mut Output<'_>, arguments: &HookSettings, add: bool) -> std::result::Result<(), Failure> {
    let host = arguments.host;
    let path = file(context, host, arguments.user)?;
    let before = load(&path)?;
    let after = if add { with(host, before.clone(), &path)? } else { without(host, before.clone()) };
    let changes = before != after;
    let applied = changes && arguments.yes;
    if applied {
        save(&path, &after)?;
    }
    let report = SettingsReport {
        host: word(host),
        path: text::path(&path),
        changes,
        applied,
        events: if add { events(host).iter().map(|event| (*event).to_owned()).collect() } else { Vec::new() },
        content: after,
    };
    output.result(&report, |report| {
        let verb = match (report.changes, report.applied) {
            (false, _) => return format!("{} needs no change", report.path),
            (true, true) => "is",
            (true, false) => "would be",
        };
        let content = serde_json::to_string_pretty(&report.content).unwrap_or_default();
        format!("{content}\n{} {verb} written so", report.path)
    })?;
    if changes && !applied {
        output.hint("nothing was done: add --yes to write it");
    } else if applied && add && host == HostName::Codex {
        output.hint("Codex asks before it trusts new hooks: answer it at its next start");
    }
    Ok(())
}

fn word(host: HostName) -> &'static str {
    match host {
        HostName::ClaudeCode => "claude-code",
        HostName::Codex => "codex",
        HostName::Gemini => "gemini",
        HostName::Cursor => "cursor",
    }
}

fn events(host: HostName) -> &'static [&'static str] {
    match host {
        HostName::ClaudeCode => &["UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd"],
        HostName::Codex => &["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"],
        HostName::Gemini => &["BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"],
        HostName::Cursor => &["beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure", "stop", "sessionEnd"],
    }
}

fn file(context: &Context, host: HostName, user: bool) -> Result<PathBuf> {
    let base = if user {
        context.environment().get("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "HOME is not an absolute path").hint("leave --user out for the worktree's settings")
        })?
    } else {
        context.project()?.root().to_owned()
    };
    Ok(base.join(match (host, user) {
        (HostName::ClaudeCode, true) => ".claude/settings.json",
        // The one that a worktree does not share: not everybody has forklift.
        (HostName::ClaudeCode, false) => ".claude/settings.local.json",
        (HostName::Codex, _) => ".codex/hooks.json",
        (HostName::Gemini, _) => ".gemini/settings.json",
        (HostName::Cursor, _) => ".cursor/hooks.json",
    }))
}

fn load(path: &Path) -> Result<Value> {
    let Some(bytes) = fs::read_optional(path)? else { return Ok(json!({})) };
    let value: Value = if bytes.iter().all(u8::is_ascii_whitespace) {
        json!({})
    } else {
        serde_json::from_slice(&bytes).map_err(|error| wrong(path, &format!("is no plain JSON: {error}")))?
    };
    if value.is_object() { Ok(value) } else { Err(wrong(path, "is no JSON object")) }
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Config, format!("{} {what}", path.display()))
        .with("path", path.display())
        .hint("mend it, or add the hooks by hand: `forklift hook HOST` takes the events")
}

/// Replaces the file, where it is a link what that names, with the mode it has.
fn save(path: &Path, value: &Value) -> Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        std::fs::create_dir(folder).map_err(|source| Error::io("create folder", folder, source))?;
    }
    let mode = path.metadata().map_or(0o644, |metadata| metadata.permissions().mode() & 0o7777);
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    bytes.push(b'\n');
    fs::replace(&path, &bytes, mode, &Syncs::new())
}

/// The settings with our hooks, each once.
fn with(host: HostName, settings: Value, path: &Path) -> Result<Value> {
    let mut settings = without(host, settings);
    let root = settings.as_object_mut().ok_or_else(|| wrong(path, "is no JSON object"))?;
    if host == HostName::Cursor {
        root.entry("version").or_insert(json!(1));
    }
    let hooks = root.entry("hooks").or_insert_with(|| json!({}));
    let hooks = hooks.as_object_mut().ok_or_else(|| wrong(path, "has `hooks` that are no object"))?;
    for event in events(host) {
        let list = hooks.entry(*event).or_insert_with(|| json!([]));
        let list = list.as_array_mut().ok_or_else(|| wrong(path, &format!("has hooks of {event} that are no array")))?;
        list.push(entry(host, event));
    }
    Ok(settings)
}

fn entry(host: HostName, event: &str) -> Value {
    let command = format!("{} hook {}", program(), word(host));
    let of_tool = event.to_ascii_lowercase().contains("tool");
    match host {
        HostName::Cursor => json!({ "command": command }),
        HostName::Gemini => {
            let hook = json!({ "name": "forklift", "type": "command", "command": command, "timeout": PATIENCE * 1000 });
            if of_tool { json!({ "matcher": ".*", "hooks": [hook] }) } else { json!({ "hooks": [hook] }) }
        }
        HostName::ClaudeCode | HostName::Codex => {
            let hook = json!({ "type": "command", "command": command, "timeout": PATIENCE });
            let matcher = if host == HostName::ClaudeCode { "*" } else { ".*" };
            if of_tool { json!({ "matcher": matcher, "hooks": [hook] }) } else { json!({ "hooks": [hook] }) }
        }
    }
}

/// This program, as a shell finds it.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "forklift".to_owned() };
    let text = path.to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The settings without our hooks, and without what is empty then.
fn without(host: HostName, mut settings: Value) -> Value {
    let Some(root) = settings.as_object_mut() else { return settings };
    let Some(hooks) = root.get_mut("hooks").and_then(Value::as_object_mut) else { return settings };
    let mut emptied = false;
    for list in hooks.values_mut().filter_map(Value::as_array_mut) {
        let before = list.len();
        for group in list.iter_mut() {
            if let Some(inner) = group.get_mut("hooks").and_then(Value::as_array_mut) {
                inner.retain(|hook| !is_ours(host, hook));
            }
        }
        list.retain(|group| !is_ours(host, group) && group.get("hooks").and_then(Value::as_array).is_none_or(|inner| !inner.is_empty()));
        emptied |= list.len() < before;
    }
    if emptied {
        drop_empty(hooks);
        if hooks.is_empty() {
            root.remove("hooks");
        }
    }
    settings
}

fn drop_empty(hooks: &mut Map<String, Value>) {
    hooks.retain(|_, list| list.as_array().is_none_or(|list| !list.is_empty()));
}

fn is_ours(host: HostName, hook: &Value) -> bool {
    let ending = format!(" hook {}", word(host));
    hook.get("command").and_then(Value::as_str).and_then(|command| command.strip_suffix(&ending)).is_some_and(|program| {
        let name = program.trim_end_matches('\'').rsplit('/').next().unwrap_or_default();
        name == "forklift"
    })
}
