//! A project: setup, status, run, capture, recover.

use forklift::branch;
use forklift::files::Coverage;
use forklift::project::{
    CaptureOptions, CaptureReport, Project, ReadsByHalf, RecoverOutcome, RecoverReport, RunOptions, SetupOptions, StatusReport,
};
use forklift::{Error, ErrorKind, Reads, Reasons};

use super::{history, restore, rewind, turn};
use crate::arguments::{Capture, CaptureMode, ProjectCommand, Setup};
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

/// How many left-out paths a capture lists before it only counts them.
const LEFT_OUT: usize = 10;

pub(super) fn run(context: &Context, output: &mut Output<'_>, command: ProjectCommand) -> Result<u8, Failure> {
    match command {
        ProjectCommand::Setup(arguments) => setup(context, output, arguments)?,
        ProjectCommand::Status => {
            let status = context.project()?.status(&context.control())?;
            output.warnings(&status.warnings);
            output.result(&status, describe_status)?;
        }
        ProjectCommand::Run(arguments) => {
            let outcome = context.project()?.run(&RunOptions { command: arguments.command }, &context.control_of_command())?;
            return Ok(exit::of_command(outcome.code, outcome.signal));
        }
        ProjectCommand::Capture(arguments) => capture(context, output, &arguments)?,
        ProjectCommand::Restore(arguments) => restore::run(context, output, &arguments)?,
        ProjectCommand::Rewind(arguments) => rewind::rewind(context, output, arguments)?,
        ProjectCommand::Redo(arguments) => rewind::redo(context, output, arguments)?,
        ProjectCommand::Recover => {
            let report = context.project()?.recover(&context.control())?;
            output.warnings(&report.warnings);
            output.result(&report, describe_recovery)?;
        }
        ProjectCommand::Log(arguments) if arguments.turns || arguments.rebuild || arguments.session.is_some() => {
            turn::log(context, output, &arguments)?;
        }
        ProjectCommand::Log(_) => history::log(context, output)?,
        ProjectCommand::Show(arguments) => turn::show(context, output, &arguments)?,
        ProjectCommand::Turn(command) => turn::run(context, output, command)?,
        ProjectCommand::Blame(arguments) => turn::blame(context, output, &arguments)?,
        ProjectCommand::Replay(arguments) => turn::replay(context, output, &arguments)?,
        ProjectCommand::Edited(arguments) => turn::edited(context, output, arguments)?,
        ProjectCommand::Diff(arguments) => history::diff(context, output, &arguments)?,
        ProjectCommand::Forget(arguments) => history::forget(context, output, &arguments)?,
        ProjectCommand::Prune(arguments) => history::prune(context, output, arguments.yes, &arguments.orphans)?,
    }
    Ok(exit::DONE)
}

fn setup(context: &Context, output: &mut Output<'_>, arguments: Setup) -> Result<(), Failure> {
    let folder = context.folder().join(arguments.worktree.unwrap_or_default());
    if !folder.is_dir() {
        let what = if folder.exists() { "is no folder" } else { "does not exist" };
        let error = Error::new(ErrorKind::NotFound, format!("the worktree {} {what}", folder.display())).with("path", folder.display());
        return Err(error.hint("name an existing folder: `forklift project setup DIR`, or run it in the worktree").into());
    }
    let options = SetupOptions { from: arguments.from, branch: arguments.branch, files_only: arguments.files_only };
    let (_, report) = Project::setup(&folder, &options, &context.project_options(), context.environment(), &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |report| {
        let branch = report.branch.as_ref().map_or_else(|| "files only".to_owned(), |name| format!("branch {name}"));
        format!("{} is set up: {branch}, store {}", text::path(&report.root), text::path(&report.store))
    })?;
    if report.configuration_written {
        output.hint("its settings are in .forklift.json, which belongs in version control");
    }
    output.hint("`forklift project capture NAME` saves it, `forklift project run CMD` runs a command with its database");
    Ok(())
}

fn capture(context: &Context, output: &mut Output<'_>, arguments: &Capture) -> Result<(), Failure> {
    let mode = match arguments.mode {
        CaptureMode::Auto => branch::CaptureMode::Auto,
        CaptureMode::Online => branch::CaptureMode::Online,
        CaptureMode::Stopped => branch::CaptureMode::Stopped,
    };
    let environment = context.environment().clone();
    let environment = if arguments.no_extents { environment.with("FORKLIFT_NO_EXTENTS", "1") } else { environment };
    let project = context.project_in(&environment)?;
    let report = project.capture(&arguments.name, &CaptureOptions { mode }, &context.control()).map_err(|error| {
        let restoring = error.context().iter().any(|(key, holder)| *key == "holder" && holder.contains("restore"));
        if restoring { error.hint("wait for the restore to end") } else { error }
    })?;
    output.warnings(&report.warnings);
    output.result(&report, describe_capture)?;
    for line in left_out(&report.coverage) {
        output.note(line);
    }
    Ok(())
}

fn describe_capture(report: &CaptureReport) -> String {
    let downtime = if report.downtime_ms == 0 {
        String::new()
    } else {
        format!(", {} without a reachable server", text::milliseconds(report.downtime_ms))
    };
    format!(
        "{} is captured as {} ({}) in {}{downtime}: {} read, {} new, {} stored{}",
        text::plain(&report.name),
        report.id,
        report.mode,
        text::milliseconds(report.total_ms),
        text::bytes(report.bytes_read),
        text::bytes(report.bytes_new),
        text::bytes(report.bytes_stored),
        describe_reads(&report.reads),
    )
}

/// A line of how many files were read, and why; nothing where none was.
fn describe_reads(reads: &ReadsByHalf) -> String {
    let half = |name: &str, reads: &Reads| {
        let Reasons { new, size_changed, times_changed, racy, other_boot, in_doubt, extents } = reads.why;
        let reasons = [
            (new, "new"),
            (size_changed, "of another size"),
            (times_changed, "touched"),
            (extents, "where their blocks changed"),
            (racy, "too young to be sure"),
            (other_boot, "of another boot"),
            (in_doubt, "in doubt"),
        ];
        let listed: Vec<_> = reasons.iter().filter(|(files, _)| *files > 0).map(|(files, why)| format!("{files} {why}")).collect();
        (reads.files_opened > 0).then(|| format!("{} of the {name} ({})", text::count(reads.files_opened, "file"), listed.join(", ")))
    };
    let halves = [half("worktree", &reads.files), reads.database.as_ref().and_then(|reads| half("database", reads))];
    let halves: Vec<_> = halves.into_iter().flatten().collect();
    if halves.is_empty() { String::new() } else { format!("\nread: {}", halves.join(", ")) }
}

/// Lines that say what of the worktree is not in a capture; that Git's own folder is not is no news.
fn left_out(coverage: &Coverage) -> Vec<String> {
    let left: Vec<_> = coverage.left_out.iter().filter(|left| left.reason != "git").collect();
    let listed = left.iter().take(LEFT_OUT).map(|left| format!("not captured: {} ({})", text::path(&left.path), left.reason));
    let rest = left.len().saturating_sub(LEFT_OUT);
    let rest = (rest > 0).then(|| format!("not captured: {rest} more; `forklift project show CHECKPOINT` lists them"));
    listed.chain(rest).collect()
}

fn describe_status(status: &StatusReport) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("project", status.id.clone());
    row("worktree", text::path(&status.root));
    row("store", text::path(&status.store));
    row(
        "branch",
        match (&status.branch, &status.server) {
            (Some(branch), Some(server)) => format!("{branch} ({})", server.replace('_', " ")),
            (Some(branch), None) => branch.clone(),
            (None, _) => "none: files only".to_owned(),
        },
    );
    for command in &status.running {
        row("running", format!("{}: {}", command.pid, text::plain(&command.command)));
    }
    if let Some(pending) = &status.pending {
        row("pending", text::plain(pending).into_owned());
    }
    match &status.last {
        Some(last) => {
            row("last", format!("{} {}", text::plain(last.name.as_deref().unwrap_or(&last.kind)), last.created));
            row("changed", format!("{} since then", text::count(status.changed, "path")));
        }
        None => row("last", "no checkpoint yet".to_owned()),
    }
    table.render()
}

fn describe_recovery(report: &RecoverReport) -> String {
    let checkpoint = report.checkpoint.as_deref().unwrap_or("a checkpoint");
    match report.outcome {
        RecoverOutcome::Clean => "nothing to recover".to_owned(),
        RecoverOutcome::RolledBack => {
            format!("rolled back: the restore of {checkpoint} was interrupted before it took effect; all is as before")
        }
        RecoverOutcome::Finished => format!("finished: {checkpoint} is in place"),
    }
}
