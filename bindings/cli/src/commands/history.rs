//! Checkpoints: log, show, diff, forget, prune.

use forklift::files::ChangeKind;
use forklift::project::{CheckpointInfo, ForgetReport, HalfSize, PathChange, PruneReport};
use serde_json::Value;

use crate::arguments::{Diff, Forget};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

pub(super) fn log(context: &Context, output: &mut Output<'_>) -> Result<(), Failure> {
    let (checkpoints, unreadable) = context.project()?.log()?;
    for name in unreadable {
        output.warning(format!("the ref {name} of the store cannot be read"));
    }
    if checkpoints.is_empty() {
        output.hint("there is no checkpoint yet: `forklift project capture NAME` makes one");
    }
    output.result(&checkpoints, |checkpoints| if checkpoints.is_empty() { String::new() } else { table(checkpoints) })
}

pub(super) fn show(info: &CheckpointInfo, output: &mut Output<'_>) -> Result<(), Failure> {
    output.result(info, details)
}

pub(super) fn diff(context: &Context, output: &mut Output<'_>, arguments: &Diff) -> Result<(), Failure> {
    let changes = context.project()?.diff(&arguments.first, arguments.second.as_deref(), &context.control())?;
    output.result(&changes, |changes| {
        let mut table = Table::plain();
        for PathChange { path, kind } in changes {
            table.row([word(*kind).to_owned(), text::plain(path).into_owned()]);
        }
        table.render()
    })
}

pub(super) fn forget(context: &Context, output: &mut Output<'_>, arguments: &Forget) -> Result<(), Failure> {
    let report = context.project()?.forget(&arguments.checkpoints, arguments.yes, &context.control())?;
    output.result(&report, |ForgetReport { applied, checkpoints, .. }| {
        let what = text::count(len(checkpoints), "checkpoint");
        format!("{}{what} {}", table(checkpoints), if *applied { "forgotten" } else { "would be forgotten" })
    })?;
    if !report.windows.is_empty() {
        let verb = if report.applied { "can" } else { "could" };
        let names: Vec<_> = report.windows.iter().map(|window| format!("{} of {}", window.turn, window.session)).collect();
        output.warning(format!("turns that {verb} not be taken back then: {}", names.join(", ")));
    }
    if report.applied {
        output.hint("`forklift project prune` frees their space");
    } else {
        output.hint("nothing was done: add --yes to forget them");
    }
    Ok(())
}

pub(super) fn prune(context: &Context, output: &mut Output<'_>, apply: bool, orphans: &[String]) -> Result<(), Failure> {
    let report = context.project()?.prune(apply, orphans, &context.control())?;
    output.result(&report, describe_prune)?;
    if !report.applied {
        output.hint("nothing was done: add --yes to remove it");
    }
    if report.orphans.iter().any(|orphan| !orphan.goes) {
        output.hint("a project whose worktree was not found stays; if that is gone for good, name its id with --orphan");
    }
    Ok(())
}

fn describe_prune(report: &PruneReport) -> String {
    let mut table = Table::plain();
    for checkpoint in &report.safety {
        table.row(["safety checkpoint".to_owned(), format!("{} {}", checkpoint.id, checkpoint.created)]);
    }
    for checkpoint in &report.kept {
        table.row(["stays: a rewind needs it".to_owned(), format!("{} {}", checkpoint.id, checkpoint.created)]);
    }
    for cluster in &report.clusters {
        table.row(["replaced cluster".to_owned(), cluster.clone()]);
    }
    if report.kept_bytes > 0 {
        table.row(["clone of the last capture".to_owned(), format!("{}, mostly shared with the database", text::bytes(report.kept_bytes))]);
    }
    for orphan in &report.orphans {
        let branch = orphan.branch.as_deref().map(|branch| format!(", branch {branch}")).unwrap_or_default();
        let checkpoints = text::count(u64::try_from(orphan.checkpoints.len()).unwrap_or(u64::MAX), "checkpoint");
        let what = if orphan.goes { "project that goes" } else { "stays: worktree not found" };
        table.row([what.to_owned(), format!("{} ({}){branch}, {checkpoints}", text::path(&orphan.root), orphan.id)]);
    }
    let verb = if report.applied { "freed" } else { "would be freed" };
    let emptied =
        if report.trash_emptied > 0 { format!(", and {} of the trash", text::bytes(report.trash_emptied)) } else { String::new() };
    format!("{}{} and {}{emptied} {verb}", table.render(), text::count(report.packs, "pack"), text::bytes(report.bytes))
}

fn table(checkpoints: &[CheckpointInfo]) -> String {
    let mut table = Table::new(["NAME", "ID", "CREATED", "KIND", "FILES", "DATABASE"]);
    for info in checkpoints {
        let size = |half: &Option<HalfSize>| half.map_or_else(|| "-".to_owned(), |half| text::bytes(half.bytes));
        table.row([
            info.name.as_deref().map_or_else(|| "-".to_owned(), |name| text::plain(name).into_owned()),
            info.id.clone(),
            info.created.clone(),
            info.kind.clone(),
            size(&info.files),
            size(&info.cluster),
        ]);
    }
    table.render()
}

fn details(info: &CheckpointInfo) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    if let Some(name) = &info.name {
        row("name", text::plain(name).into_owned());
    }
    row("id", info.id.clone());
    row("created", info.created.clone());
    row("kind", info.kind.clone());
    if let (Some(session), Some(turn)) = (&info.session, &info.turn) {
        let tool = info.tool.as_deref().map(|tool| format!(", {tool}")).unwrap_or_default();
        row("turn", text::plain(&format!("{turn} of {session}{tool}")).into_owned());
    }
    let half = |half: HalfSize| format!("{}, {}", text::count(half.entries, "name"), text::bytes(half.bytes));
    row("files", info.files.map_or_else(|| "none".to_owned(), half));
    row("database", info.cluster.map_or_else(|| "none".to_owned(), half));
    let mut facts = Vec::new();
    flatten("", &info.facts, &mut facts);
    for (name, value) in facts {
        row(&name, value);
    }
    table.render()
}

/// The facts as lines `a.b  value`, an array's elements under one name.
fn flatten(name: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) if !fields.values().any(|field| field.is_object() || field.is_array()) && name.contains('.') => {
            let fields: Vec<String> = fields.iter().map(|(key, field)| format!("{key} {}", scalar(field))).collect();
            lines.push((name.to_owned(), fields.join(", ")));
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, field, lines);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                flatten(name, element, lines);
            }
        }
        _ => lines.push((name.to_owned(), scalar(value))),
    }
}

fn scalar(value: &Value) -> String {
    text::plain(value.as_str().map_or_else(|| value.to_string(), str::to_owned).as_str()).into_owned()
}

pub(super) fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Modified => "modified",
        ChangeKind::Metadata => "metadata",
        ChangeKind::Type => "type",
    }
}

fn len<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}
