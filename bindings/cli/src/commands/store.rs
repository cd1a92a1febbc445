//! The store as a whole: verify, repair, prune, stats.

use forklift::branch::Branches;
use forklift::store::{
    FindingKind, Loss, PruneOptions, PruneReport, RepairOptions, RepairReport, StatsReport, VerifyLevel, VerifyOptions, VerifyReport,
};
use serde::Serialize;

use crate::arguments::{Level, Repair, StoreCommand, StorePrune, Verify};
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

/// What ends the findings of chunks that no pack holds any more.
const WAY_OUT: &str = "chunks that are in no pack cannot be repaired: put the pack back from a copy of the store, or forget the checkpoints \
     named above with `forklift project forget ID --yes`";

/// A report and its verdict.
#[derive(Serialize)]
struct Judged<R> {
    /// Whether nothing is lost or damaged.
    whole: bool,
    #[serde(flatten)]
    report: R,
}

/// A report of what was, or would be, done.
#[derive(Serialize)]
struct Applied<R> {
    applied: bool,
    #[serde(flatten)]
    report: R,
}

pub(super) fn run(context: &Context, output: &mut Output<'_>, command: StoreCommand) -> Result<u8, Failure> {
    match command {
        StoreCommand::Verify(arguments) => verify(context, output, &arguments),
        StoreCommand::Repair(arguments) => repair(context, output, &arguments),
        StoreCommand::Prune(arguments) => prune(context, output, &arguments),
        StoreCommand::Stats => stats(context, output),
    }
}

fn verify(context: &Context, output: &mut Output<'_>, arguments: &Verify) -> Result<u8, Failure> {
    let level = match arguments.level {
        Level::Refs => VerifyLevel::Refs,
        Level::Metadata => VerifyLevel::Metadata,
        Level::Packs => VerifyLevel::Packs,
        Level::Full => VerifyLevel::Full,
        Level::Drill => VerifyLevel::Drill,
    };
    let scratch = arguments.scratch.as_ref().map(|scratch| context.folder().join(scratch));
    let options = VerifyOptions { level, budget: arguments.budget, scratch };
    let store = context.existing_store()?;
    let report = match level {
        VerifyLevel::Drill => Branches::open(&store, context.environment())?.drill(&options, &context.control())?,
        _ => store.verify(&options, &context.control())?,
    };
    let (whole, lost) = (report.is_whole(), !report.losses.is_empty());
    output.result(&Judged { whole, report }, |judged| describe_verify(&judged.report))?;
    if whole {
        return Ok(exit::DONE);
    }
    output.hint("`forklift store repair` puts right what can be");
    if lost {
        output.hint(WAY_OUT);
    }
    Ok(exit::NO)
}

fn describe_verify(report: &VerifyReport) -> String {
    let mut table = Table::plain();
    for finding in &report.findings {
        let what = match finding.kind {
            FindingKind::Format => "format",
            FindingKind::Layout => "layout",
            FindingKind::Ref => "ref",
            FindingKind::Index => "index",
            FindingKind::PackMissing => "pack missing",
            FindingKind::PackDamaged if finding.detail.ends_with("is in no pack") => "in no pack",
            FindingKind::PackDamaged => "pack damaged",
            FindingKind::Stray => "not forklift's",
            FindingKind::Drill => "drill",
        };
        let (path, detail) = (text::plain(&finding.path), text::plain(&finding.detail));
        table.row([
            what.to_owned(),
            if what == "in no pack" || detail.contains(&*path) { detail.into_owned() } else { format!("{path}: {detail}") },
        ]);
    }
    let mut lines = format!("{}{}", table.render(), losses(&report.losses));
    let mut read = format!("{}, {}", text::count(report.checkpoints, "checkpoint"), text::count(report.packs, "pack"));
    if report.packs_read > 0 {
        read.push_str(&format!(", {} read", text::bytes(report.bytes_read)));
    }
    if report.packs_left > 0 {
        read.push_str(&format!(", {} left for another time", text::count(report.packs_left, "pack")));
    }
    if report.level == VerifyLevel::Drill {
        read.push_str(&format!(", {} restored", text::count(report.drilled, "checkpoint")));
        if report.drills_left > 0 {
            read.push_str(&format!(", {} left for another time", text::count(report.drills_left, "checkpoint")));
        }
    }
    let verdict = if !report.is_whole() {
        let mut damaged: Vec<_> = report.losses.iter().map(|loss| &loss.checkpoint).collect();
        damaged.sort_unstable();
        damaged.dedup();
        let findings = text::count(report.findings.len() as u64, "finding");
        match damaged.len() as u64 {
            0 => findings,
            lost => format!("{findings}; {} lost something", text::count(lost, "checkpoint")),
        }
    } else {
        match report.level {
            VerifyLevel::Refs => "whole as far as refs tell; no content was read: --level full reads it",
            VerifyLevel::Metadata => "whole as far as names, sizes and metadata tell; no content was read: --level full reads it",
            VerifyLevel::Packs | VerifyLevel::Full | VerifyLevel::Drill => "whole",
        }
        .to_owned()
    };
    lines.push_str(&format!("{read}: {verdict}"));
    lines
}

/// What each checkpoint lost, the first names of each.
fn losses(losses: &[Loss]) -> String {
    const SHOWN: usize = 10;
    let mut lines = String::new();
    for loss in losses {
        let what = if loss.half == "files" { "files" } else { "database" };
        lines.push_str(&format!("checkpoint {} lost {} of its {what}\n", loss.checkpoint, text::count(loss.lost, "name")));
        for path in loss.paths.iter().take(SHOWN) {
            lines.push_str(&if path.is_empty() { "  all of them\n".to_owned() } else { format!("  {}\n", text::plain(path)) });
        }
        if loss.paths.len() > SHOWN {
            lines.push_str("  and more: --json lists them\n");
        }
    }
    lines
}

fn repair(context: &Context, output: &mut Output<'_>, arguments: &Repair) -> Result<u8, Failure> {
    let options = RepairOptions { set_aside_refs: arguments.set_aside_refs, ..RepairOptions::default() };
    let report = context.existing_store()?.repair(&options, &context.control())?;
    let (whole, unreadable, lost) = (report.is_whole(), !report.refs_unreadable.is_empty(), !report.losses.is_empty());
    output.result(&Judged { whole, report }, |judged| describe_repair(&judged.report))?;
    if whole {
        return Ok(exit::DONE);
    }
    output.hint("capturing the same content again heals what is lost, and so does putting packs or refs back from a copy of the store");
    if lost {
        output.hint(WAY_OUT);
    }
    if unreadable && !arguments.set_aside_refs {
        output.hint("`forklift store repair --set-aside-refs` puts refs that cannot be read aside, so that the store can be pruned");
    }
    Ok(exit::NO)
}

fn describe_repair(report: &RepairReport) -> String {
    let mut lines = String::new();
    let mut line = |text: String| lines.push_str(&format!("{text}\n"));
    if report.segments_rebuilt > 0 {
        line(format!("{} of the index rebuilt", text::count(report.segments_rebuilt, "segment")));
    }
    if report.chunks_salvaged > 0 {
        line(format!("{} ({}) copied to new packs", text::count(report.chunks_salvaged, "chunk"), text::bytes(report.bytes_salvaged)));
    }
    if report.packs_put_back > 0 {
        line(format!("{} taken back from the trash", text::count(report.packs_put_back, "pack")));
    }
    report.remade.iter().for_each(|path| line(format!("made anew: {}", text::plain(path))));
    report.quarantined.iter().for_each(|path| line(format!("put aside: {}", text::plain(path))));
    report.packs_missing.iter().for_each(|path| line(format!("missing: {}", text::plain(path))));
    report.refs_unreadable.iter().for_each(|path| line(format!("cannot be read: {}", text::plain(path))));
    lines.push_str(&losses(&report.losses));
    let verdict = if report.is_whole() { "every checkpoint is whole" } else { "not every checkpoint is whole" };
    lines.push_str(&format!("{} read: {verdict}", text::count(report.packs, "pack")));
    lines
}

fn prune(context: &Context, output: &mut Output<'_>, arguments: &StorePrune) -> Result<u8, Failure> {
    let part = |percent: u8| f64::from(percent) / 100.0;
    let options = PruneOptions {
        apply: arguments.yes,
        tolerated_in_pack: part(arguments.max_unused),
        tolerated_in_all: part(arguments.max_unused_in_all),
        most_rewritten: arguments.max_rewrite.unwrap_or(u64::MAX),
        empty_trash: arguments.now,
        ..PruneOptions::default()
    };
    let report = context.existing_store()?.prune(&options, &context.control())?;
    let unreadable = report.packs_unreadable.len() as u64;
    let kept = report.unlinked || report.packs_removed + report.packs_rewritten == 0;
    output.result(&Applied { applied: arguments.yes, report }, |applied| describe_prune(applied.applied, &applied.report))?;
    if unreadable > 0 {
        output.warning(format!("{} cannot be read and was left alone: see `forklift store verify`", text::count(unreadable, "pack")));
    }
    if !arguments.yes {
        output.hint("nothing was done: add --yes to do it");
    } else if !kept {
        output.hint("it lies in the trash until the next prune: --now frees it at once");
    }
    Ok(exit::DONE)
}

fn describe_prune(applied: bool, report: &PruneReport) -> String {
    let mut table = Table::plain();
    let mut row = |name: &str, packs: u64, bytes: u64| {
        if packs > 0 {
            table.row([name.to_owned(), text::count(packs, "pack"), text::bytes(bytes)]);
        }
    };
    row("not needed", report.packs_removed, report.bytes_removed);
    row("needed in part", report.packs_rewritten, report.bytes_rewritten);
    row("written for them", report.packs_written, report.bytes_written);
    let gone = (report.bytes_removed + report.bytes_rewritten).saturating_sub(report.bytes_written);
    let verb = if applied { "freed" } else { "would be freed" };
    let emptied =
        if report.trash_emptied > 0 { format!(", and {} of the trash", text::bytes(report.trash_emptied)) } else { String::new() };
    format!("{}{}{emptied} {verb}", table.render(), text::bytes(gone))
}

fn stats(context: &Context, output: &mut Output<'_>) -> Result<u8, Failure> {
    let report = context.existing_store()?.stats(&context.control())?;
    for name in &report.refs_unreadable {
        output.warning(format!("the ref {name} of the store cannot be read"));
    }
    output.result(&report, describe_stats)?;
    Ok(exit::DONE)
}

fn describe_stats(report: &StatsReport) -> String {
    let mut table = Table::new(["CHECKPOINT", "HOLDS", "NEW IN IT", "STORED"]);
    for of in &report.checkpoints {
        table.row([of.id.clone(), text::bytes(of.logical_bytes), text::bytes(of.unique_bytes), text::bytes(of.stored_bytes)]);
    }
    let all = [report.logical_bytes, report.unique_bytes, report.stored_bytes].map(text::bytes);
    let [logical, unique, stored] = all;
    table.row(["all".to_owned(), logical, unique, stored]);
    let packs = format!("{}, {}", text::count(report.packs, "pack"), text::bytes(report.pack_bytes));
    let index = format!("{} of {}", text::bytes(report.index_memory), text::count(report.chunks, "chunk"));
    let trash = text::bytes(report.trash_bytes);
    format!("{}{packs}; index {index}; trash {trash}", table.render())
}
