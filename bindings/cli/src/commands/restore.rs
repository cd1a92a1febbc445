//! `project restore` and its dry run.

use forklift::project::{PathVerdict, RestoreOptions, RestorePlan, RestoreReport};

use crate::arguments::Restore;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

/// How many paths are listed before the others are only counted.
const LISTED: usize = 20;

pub(super) fn run(context: &Context, output: &mut Output<'_>, arguments: &Restore) -> Result<(), Failure> {
    let project = context.project()?;
    if arguments.dry_run {
        let plan = project.plan_restore(&arguments.checkpoint, &context.control())?;
        output.warnings(&plan.warnings);
        output.result(&plan, describe_plan)?;
        output.hint("nothing was touched: leave out --dry-run to restore");
        return Ok(());
    }
    let report = project.restore(&arguments.checkpoint, &RestoreOptions::default(), &context.control())?;
    output.warnings(&report.warnings);
    let quiet = output.is_quiet();
    output.result(&report, |report| describe_report(report, quiet))?;
    output.hint(format!("what was replaced is kept: `forklift project restore {}` puts it back", report.safety));
    Ok(())
}

fn describe_plan(plan: &RestorePlan) -> String {
    let clients = if plan.clients == 0 { String::new() } else { format!(", cutting {}", text::count(u64::from(plan.clients), "client")) };
    let database = match plan.database.as_str() {
        "none" => String::new(),
        "replace" => format!("\nthe database would be replaced{clients}"),
        _ => "\nthe database would stay as it is".to_owned(),
    };
    let unchanged = text::count(plan.unchanged, "path");
    format!("{}{} would be restored; {unchanged} unchanged{database}", listed(&plan.paths, paths), name(plan.name.as_deref(), &plan.id))
}

/// What was done; with `quiet` only its one line.
fn describe_report(report: &RestoreReport, quiet: bool) -> String {
    let downtime = if report.downtime_ms == 0 {
        String::new()
    } else {
        format!(", {} without a reachable server", text::milliseconds(report.downtime_ms))
    };
    let kept = report
        .kept
        .as_ref()
        .map(|folder| format!("\ncontent that is in no checkpoint is kept in {}", text::path(folder)))
        .unwrap_or_default();
    let database = match report.database.as_str() {
        "none" => "",
        "replace" => ", the database was replaced",
        _ => ", the database was the same and stays",
    };
    let summary = format!(
        "{} is restored in {}{downtime}; {} unchanged{database}",
        name(report.name.as_deref(), &report.id),
        text::milliseconds(report.total_ms),
        text::count(report.unchanged, "path"),
    );
    if quiet { summary } else { format!("{}{summary}{kept}", listed(&report.paths, paths)) }
}

/// The first of them as `show` makes lines of them, the others as a number.
pub(super) fn listed<T>(all: &[T], show: impl Fn(&[T]) -> String) -> String {
    let (first, others) = all.split_at(all.len().min(LISTED));
    let more = if others.is_empty() { String::new() } else { format!("and {} more; --json lists all\n", others.len()) };
    show(first) + &more
}

fn name(name: Option<&str>, id: &str) -> String {
    name.map_or_else(|| id.to_owned(), |name| text::plain(name).into_owned())
}

pub(super) fn paths(paths: &[PathVerdict]) -> String {
    let mut table = Table::plain();
    for found in paths {
        table.row([found.verdict.words().to_owned(), text::plain(&found.path).into_owned()]);
    }
    table.render()
}
