//! Branches: list, inspect, url, start, stop, delete.

use forklift::branch::{BranchInfo, ServerState, StartOptions};
use forklift::postgres::{self, SafeMode};
use serde::Serialize;
use serde_json::json;

use super::create::create;
use crate::arguments::{BranchCommand, UrlArguments, UrlForm};
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

pub(crate) fn run(context: &Context, output: &mut Output<'_>, command: BranchCommand) -> Result<u8, Failure> {
    match command {
        BranchCommand::Create(arguments) => create(context, output, *arguments)?,
        BranchCommand::List => list(context, output)?,
        BranchCommand::Inspect(named) => {
            let info = context.branches_with(&named.name)?.find(&named.name)?.info()?;
            output.result(&info, details)?;
        }
        BranchCommand::Url(arguments) => url(context, output, &arguments)?,
        BranchCommand::Start(named) => {
            let branch = context.branches_with(&named.name)?.find(&named.name)?;
            let info = branch.start(StartOptions::default(), &context.control())?;
            output.result(&info, |info| format!("{} runs (pid {})", info.name, info.pid.unwrap_or_default()))?;
            output.hint(format!("`forklift branch url {}` prints its URL", info.name));
        }
        BranchCommand::Stop(named) => {
            let branch = context.branches_with(&named.name)?.find(&named.name)?;
            branch.stop(&context.control())?;
            output.result(&branch.info()?, |info| format!("{} is stopped", info.name))?;
        }
        BranchCommand::Restart(named) => {
            let branch = context.branches_with(&named.name)?.find(&named.name)?;
            let info = branch.restart(StartOptions::default(), &context.control())?;
            output.result(&info, |info| format!("{} runs again (pid {})", info.name, info.pid.unwrap_or_default()))?;
        }
        BranchCommand::Rename(arguments) => {
            let branch = context.branches_with(&arguments.name)?.find(&arguments.name)?;
            let before = branch.record().name.clone();
            branch.rename(&arguments.to)?;
            output.result(&branch.info()?, |info| format!("{before} is called {} now", info.name))?;
        }
        BranchCommand::Protect(named) => protect(context, output, &named.name, true)?,
        BranchCommand::Unprotect(named) => protect(context, output, &named.name, false)?,
        BranchCommand::Delete(named) => {
            let branches = context.branches_with(&named.name)?;
            let name = branches.find(&named.name)?.record().name.clone();
            let warnings = branches.delete(&name, &context.control())?;
            output.warnings(&warnings);
            output.result(&json!({ "name": name, "deleted": true }), |_| format!("{name} is deleted"))?;
        }
    }
    Ok(exit::DONE)
}

fn protect(context: &Context, output: &mut Output<'_>, name: &str, protected: bool) -> Result<(), Failure> {
    let branch = context.branches_with(name)?.find(name)?;
    branch.protect(protected)?;
    let verb = if protected { "is protected" } else { "can be deleted" };
    output.result(&branch.info()?, |info| format!("{} {verb}", info.name))
}

fn list(context: &Context, output: &mut Output<'_>) -> Result<(), Failure> {
    let branches = match context.existing_branches()? {
        Some(branches) => branches.list()?,
        None => Vec::new(),
    };
    if branches.is_empty() {
        output.hint("there is no branch yet: make one with `forklift branch create NAME`");
    }
    output.result(&branches, |branches| if branches.is_empty() { String::new() } else { table(branches) })
}

fn table(branches: &[BranchInfo]) -> String {
    let mut table = Table::new(["NAME", "STATE", "POSTGRES", "FROM", "SIZE", "PORT", "CREATED"]);
    for info in branches {
        table.row([
            info.name.clone(),
            state(info).to_owned(),
            info.version.clone(),
            info.parent.clone().unwrap_or_else(|| format!("({})", info.origin)),
            text::bytes(info.bytes),
            info.port.map_or_else(|| "-".to_owned(), |port| port.to_string()),
            info.created.clone(),
        ]);
    }
    table.render()
}

fn details(info: &BranchInfo) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("name", info.name.clone());
    row("id", info.id.clone());
    row("created", info.created.clone());
    row("origin", info.origin.clone());
    if let Some(parent) = &info.parent {
        row("parent", parent.clone());
    }
    row("state", info.pid.map_or_else(|| state(info).to_owned(), |pid| format!("{} (pid {pid})", state(info))));
    if let Some(reason) = &info.held {
        row("held", text::plain(reason).into_owned());
    }
    row("postgres", info.version.clone());
    row("database", text::plain(&info.database).into_owned());
    row("user", text::plain(&info.user).into_owned());
    row("socket", text::path(&info.socket));
    if let Some(port) = info.port {
        row("port", port.to_string());
    }
    row("data", text::path(&info.data));
    row("size", text::bytes(info.bytes));
    if info.safe != SafeMode::Off {
        row("safe", if info.safe == SafeMode::Strict { "strict" } else { "best effort" }.to_owned());
    }
    for (name, limit) in [("ttl", info.limits.ttl_ms), ("idle stop", info.limits.idle_ms)] {
        if let Some(limit) = limit {
            row(name, text::milliseconds(limit));
        }
    }
    if info.protected {
        row("protected", "yes".to_owned());
    }
    if let Some(project) = &info.project {
        row("project", project.clone());
    }
    table.render()
}

fn state(info: &BranchInfo) -> &'static str {
    match info.state {
        ServerState::Stopped if info.held.is_some() => "held",
        ServerState::Stopped => "stopped",
        ServerState::Running => "running",
        ServerState::InTransition => "in transition",
    }
}

#[derive(Serialize)]
struct Url {
    name: String,
    form: &'static str,
    url: String,
}

fn url(context: &Context, output: &mut Output<'_>, arguments: &UrlArguments) -> Result<(), Failure> {
    let branch = context.branches_with(&arguments.name)?.find(&arguments.name)?;
    let (form, name) = match arguments.form {
        UrlForm::Socket => (postgres::UrlForm::Socket, "socket"),
        UrlForm::Localhost => (postgres::UrlForm::Localhost, "localhost"),
        UrlForm::Tcp => (postgres::UrlForm::Tcp, "tcp"),
    };
    let url = Url { name: branch.record().name.clone(), form: name, url: branch.url(form)? };
    output.result(&url, |url| url.url.clone())
}
