//! What this machine can do.

use forklift::doctor::{Check, Report, State, examine};

use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

pub(super) fn run(context: &Context, output: &mut Output<'_>) -> Result<u8, Failure> {
    let report = examine(&context.store_path()?, context.environment(), &context.control())?;
    output.result(&report, describe)?;
    for line in &report.lacking {
        output.warning(format!("lacking: {line}"));
    }
    if report.best.clone.as_deref() == Some("copy") {
        output.hint("clones are whole copies here: `forklift pool create --size 50G` (root) makes a file system that shares blocks");
    }
    if report.postgres.is_empty() {
        output.hint("for databases: `forklift postgres install` puts a Postgres into your data folder");
    }
    Ok(if report.able { exit::DONE } else { exit::NO })
}

fn describe(report: &Report) -> String {
    let there = if report.exists { "" } else { " (not there yet)" };
    let mut lines = format!("store     {}{there}\nexamined  {}\n\n", text::path(&report.store), text::path(&report.examined));
    let mut table = Table::new(["WHAT", "", "FOUND"]);
    for check in &report.checks {
        let found = if check.found.is_empty() { "-" } else { &check.found };
        table.row([format!("{} {}", check.group, check.name.replace('_', " ")), state(check).to_owned(), text::plain(found).into_owned()]);
    }
    lines.push_str(&table.render());
    if !report.postgres.is_empty() {
        let mut table = Table::new(["POSTGRES", "FOUND", "EXTENSIONS", "PROGRAMS"]);
        for found in &report.postgres {
            table.row([found.name.clone(), found.origin.clone(), found.extensions.len().to_string(), text::path(&found.bin)]);
        }
        lines.push_str(&format!("\n{}", table.render()));
    }
    let none = || "nothing".to_owned();
    let best = &report.best;
    let containment = if best.containment.is_empty() { none() } else { best.containment.join(", ").replace('_', " ") };
    let mut table = Table::plain();
    table.row(["best clone".to_owned(), best.clone.clone().unwrap_or_else(none)]);
    table.row(["best Postgres".to_owned(), best.postgres.clone().unwrap_or_else(none)]);
    table.row(["servers run as".to_owned(), best.servers.clone().unwrap_or_else(none).replace('_', " ")]);
    table.row(["containment".to_owned(), containment]);
    lines.push_str(&format!("\n{}", table.render()));
    lines.push_str(if report.able { "\nthis machine can run it" } else { "\nthis machine cannot run it" });
    lines
}

fn state(check: &Check) -> &'static str {
    match check.state {
        State::Available => "yes",
        State::Limited => "limited",
        State::Unavailable if check.required => "NO",
        State::Unavailable => "no",
        State::Unknown => "unknown",
    }
}
