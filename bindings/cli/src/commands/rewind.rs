//! `project rewind`, its dry run, and `project redo`.

use forklift::project::{
    DatabaseChoice, DatabaseFate, PathVerdict, RedoOptions, RewindOptions, RewindPlan, RewindPreview, RewindReport, RewindTo,
};
use forklift::{Error, ErrorKind};

use super::restore::{listed, paths};
use crate::arguments::{Database, Plan, Redo, Rewind};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::text;

pub(super) fn rewind(context: &Context, output: &mut Output<'_>, arguments: Rewind) -> Result<(), Failure> {
    let to = match (arguments.to, arguments.after) {
        (Some(turn), None) => RewindTo::Before(turn),
        (None, Some(turn)) => RewindTo::After(turn),
        _ => {
            return Err(Error::new(ErrorKind::InvalidArgument, "say either --to or --after")
                .hint("--to TURN goes back to before it")
                .into());
        }
    };
    let plan = arguments.plan;
    let options = RewindOptions {
        keep_edited: plan.keep_edited,
        paths: (!arguments.paths.is_empty()).then_some(arguments.paths),
        limit: plan.limit,
        database: choice(plan.database),
        ..RewindOptions::new(arguments.session, to)
    };
    let project = context.project()?;
    let planned = project.plan_rewind(options, &context.control())?;
    carry_out(context, output, &planned, &plan)
}

pub(super) fn redo(context: &Context, output: &mut Output<'_>, arguments: Redo) -> Result<(), Failure> {
    let plan = arguments.plan;
    let options =
        RedoOptions { session: arguments.session, keep_edited: plan.keep_edited, limit: plan.limit, database: choice(plan.database) };
    let project = context.project()?;
    let planned = project.plan_redo(options, &context.control())?;
    carry_out(context, output, &planned, &plan)
}

fn carry_out(context: &Context, output: &mut Output<'_>, planned: &RewindPlan<'_>, plan: &Plan) -> Result<(), Failure> {
    if plan.dry_run {
        output.warnings(&planned.preview.warnings);
        output.result(&planned.preview, describe_plan)?;
        match planned.way_out() {
            Some(way) => output.hint(format!("it would be refused as it is: {way}")),
            None if planned.is_nothing() => output.hint("nothing to do"),
            None => output.hint(format!("nothing was touched: --plan {} in place of --dry-run does just this", planned.preview.id)),
        }
        return Ok(());
    }
    if !planned.preview.refused.is_empty() && !output.is_json() {
        for line in table(&planned.preview.paths).lines() {
            output.note(line);
        }
    }
    let report = match &plan.plan {
        Some(id) => planned.apply_if(id, &context.control())?,
        None => planned.apply(&context.control())?,
    };
    output.warnings(&report.warnings);
    let quiet = output.is_quiet();
    output.result(&report, |report| describe_report(report, quiet))?;
    if report.id.is_some() {
        output.hint(format!("`forklift project redo --session {}` takes it back", text::word(&report.session)));
    }
    Ok(())
}

fn choice(database: Database) -> DatabaseChoice {
    match database {
        Database::Refuse => DatabaseChoice::Refuse,
        Database::Discard => DatabaseChoice::Discard,
        Database::Keep => DatabaseChoice::Keep,
    }
}

fn table(all: &[PathVerdict]) -> String {
    listed(all, paths)
}

fn describe_plan(plan: &RewindPreview) -> String {
    let database = match plan.database {
        DatabaseFate::None => "",
        DatabaseFate::Unchanged => "\nthe database is as it was",
        DatabaseFate::Replace => "\nthe database would be put back",
        DatabaseFate::Keep => "\nthe database would stay as it is: a partial rewind",
    };
    let refused: String = plan.refused.iter().map(|why| format!("\nrefused: {}", text::plain(why))).collect();
    let turns = if plan.turns.is_empty() { "no turn".to_owned() } else { format!("turn {}", plan.turns.join(", ")) };
    format!(
        "{}{}: {} would be touched, of {}{database}{refused}\nplan {}",
        table(&plan.paths),
        text::plain(&plan.what),
        text::count(plan.touched, "path"),
        text::plain(&turns),
        plan.id
    )
}

/// What was done; with `quiet` only its one line.
fn describe_report(report: &RewindReport, quiet: bool) -> String {
    let database = match report.database {
        DatabaseFate::None => "",
        DatabaseFate::Unchanged => ", the database was as it was",
        DatabaseFate::Replace => ", the database was put back",
        DatabaseFate::Keep => ", the database stays as it is",
    };
    let kept = report.paths.iter().filter(|path| path.verdict.is_kept()).count();
    let kept = if kept == 0 { String::new() } else { format!("; kept as edited: {}", text::count(kept as u64, "path")) };
    let aside = report
        .kept
        .as_ref()
        .map(|folder| format!("\ncontent that is in no checkpoint is kept in {}", text::path(folder)))
        .unwrap_or_default();
    let what = text::plain(&report.what);
    if report.id.is_none() {
        let summary = format!("{what}: nothing to do{kept}");
        return if quiet { summary } else { format!("{}{summary}", table(&report.paths)) };
    }
    let summary = format!("{what} in {}{database}{kept}", text::milliseconds(report.total_ms));
    if quiet { summary } else { format!("{}{summary}{aside}\n{}", table(&report.paths), text::plain(&report.message)) }
}
