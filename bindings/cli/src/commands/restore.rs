//! `project restore` and its dry run.

use forklift::files::Verdict;
use forklift::project::{RestoreOptions, RestorePlan, RestoreReport};

use crate::arguments::Restore;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

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
    output.result(&report, describe_report)?;
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
    format!("{}{} would be restored; {unchanged} unchanged{database}", paths(&plan.paths), name(plan.name.as_deref(), &plan.id))
}

fn describe_report(report: &RestoreReport) -> String {
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
    format!(
        "{}{} is restored in {}{downtime}; {} unchanged{kept}",
        paths(&report.paths),
        name(report.name.as_deref(), &report.id),
        text::milliseconds(report.total_ms),
        text::count(report.unchanged, "path"),
    )
}

fn name(name: Option<&str>, id: &str) -> String {
    name.map_or_else(|| id.to_owned(), |name| text::plain(name).into_owned())
}

fn paths(paths: &[(String, Verdict)]) -> String {
    let mut table = Table::plain();
    for (path, verdict) in paths {
        table.row([word(*verdict).to_owned(), text::plain(path).into_owned()]);
    }
    table.render()
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Restore => "restore",
        Verdict::Create => "create",
        Verdict::Delete => "delete",
        Verdict::Unchanged => "unchanged",
        Verdict::NotCaptured => "not captured",
        Verdict::Outside => "outside",
        Verdict::Kept => "kept",
    }
}
