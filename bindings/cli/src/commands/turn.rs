//! Turns: begin, wait, end, edited, and how `log` and `show` tell them.

use forklift::ErrorKind;
use forklift::project::{self, BlameReport, EditedReport, TurnDetails, TurnInfo, TurnOptions, TurnReport, WaitReport, WindowInfo};
use forklift::timeline::{Author, Damage, Turn, Window, WindowState};

use super::history;
use crate::arguments::{Blame, Edited, Log, Replay, Show, TurnBegin, TurnCommand, TurnData, TurnEnd, TurnWait};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;
use crate::text;

pub(super) fn run(context: &Context, output: &mut Output<'_>, command: TurnCommand) -> Result<(), Failure> {
    match command {
        TurnCommand::Begin(arguments) => begin(context, output, arguments),
        TurnCommand::Wait(arguments) => wait(context, output, &arguments),
        TurnCommand::End(arguments) => end(context, output, arguments),
    }
}

fn begin(context: &Context, output: &mut Output<'_>, arguments: TurnBegin) -> Result<(), Failure> {
    let TurnBegin { names, background, instant, owner } = arguments;
    let options = TurnOptions {
        session: names.session,
        turn: names.turn,
        tool: names.tool,
        call: names.call,
        background,
        instant,
        owner,
        data: data(names.data),
    };
    let report = context.project()?.turn_begin(&options, &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |report| describe("begun", report))
}

fn wait(context: &Context, output: &mut Output<'_>, arguments: &TurnWait) -> Result<(), Failure> {
    let report = context.project()?.turn_wait(&arguments.session, data(arguments.data), &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |WaitReport { captured, total_ms, .. }| {
        let windows = u64::try_from(captured.len()).unwrap_or(u64::MAX);
        format!("ready in {}: {} captured meanwhile", text::milliseconds(*total_ms), text::count(windows, "window"))
    })
}

fn end(context: &Context, output: &mut Output<'_>, arguments: TurnEnd) -> Result<(), Failure> {
    let TurnEnd { names, failed } = arguments;
    let options =
        project::TurnEnd { session: names.session, turn: names.turn, tool: names.tool, call: names.call, failed, data: data(names.data) };
    let report = context.project()?.turn_end(&options, &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |report| describe("ended", report))
}

pub(super) fn edited(context: &Context, output: &mut Output<'_>, arguments: Edited) -> Result<(), Failure> {
    let paths: Vec<_> = arguments.paths.iter().map(|path| context.folder().join(path)).collect();
    let report = context.project()?.edited(&paths, &arguments.author, &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |EditedReport { author, paths, .. }| {
        format!("{} edited by {}", text::plain(&paths.join(", ")), text::plain(author))
    })
}

pub(super) fn log(context: &Context, output: &mut Output<'_>, arguments: &Log) -> Result<(), Failure> {
    let project = context.project()?;
    if arguments.rebuild {
        let report = project.rebuild_timeline(&context.control())?;
        output.note(format!("{} came back from checkpoints", text::count(report.rebuilt.recovered, "record")));
        if let Some(kept) = &report.rebuilt.kept {
            output.note(format!("the damaged log is kept as {}", text::path(kept)));
        }
    }
    let (turns, damage) = project.turns(arguments.session.as_deref(), &context.control())?;
    tell_damage(output, &damage);
    if turns.is_empty() {
        output.hint("no turn was begun yet: `forklift project turn begin` does, and a host's hooks");
    }
    output.result(&turns, |turns| table(turns))
}

pub(super) fn show(context: &Context, output: &mut Output<'_>, arguments: &Show) -> Result<(), Failure> {
    let project = context.project()?;
    if arguments.session.is_none() {
        match project.show(&arguments.what) {
            Ok(info) => return history::show(&info, output),
            Err(error) if error.kind() == ErrorKind::NotFound => match project.show_turn(None, &arguments.what, &context.control()) {
                Ok(details) => return output.result(&details, paths),
                Err(no_turn) if no_turn.kind() == ErrorKind::NotFound => return Err(error.while_doing(no_turn.message()).into()),
                Err(no_turn) => return Err(no_turn.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    let details = project.show_turn(arguments.session.as_deref(), &arguments.what, &context.control())?;
    output.result(&details, paths)
}

pub(super) fn blame(context: &Context, output: &mut Output<'_>, arguments: &Blame) -> Result<(), Failure> {
    let report = context.project()?.blame(&context.folder().join(&arguments.path), &context.control())?;
    if report.forgotten > 0 {
        output
            .warning(format!("{} that were forgotten: their lines count as the next turn's", text::count(report.forgotten, "checkpoint")));
    }
    output.result(&report, |BlameReport { lines, .. }| {
        let mut table = Table::plain();
        for line in lines {
            let (who, tools) = match &line.author {
                Author::Agent { session, turn, tools } => (format!("{turn} of {session}"), tools.join(", ")),
                Author::Named { name } => (name.clone(), String::new()),
                Author::Unknown => ("-".to_owned(), String::new()),
            };
            let seen = line.seen_ms.map(forklift::sys::id::rfc3339).unwrap_or_default();
            let cell = |text: &str| text::plain(text).into_owned();
            table.row([cell(&who), cell(&tools), seen, line.line.to_string(), cell(&line.text)]);
        }
        table.render()
    })
}

pub(super) fn replay(context: &Context, output: &mut Output<'_>, arguments: &Replay) -> Result<(), Failure> {
    let folder = context.folder().join(&arguments.into);
    let report = context.project()?.replay(arguments.session.as_deref(), &arguments.what, &folder, &context.control())?;
    output.warnings(&report.warnings);
    output.result(&report, |report| {
        let what = report.turn.as_ref().map_or_else(|| report.checkpoint.clone(), |turn| format!("what turn {turn} left"));
        format!("{} is in {}: {}", text::plain(&what), text::path(&report.folder), text::count(report.entries, "name"))
    })?;
    for left in report.left_out.iter().take(10) {
        output.note(format!("not there, as no checkpoint has it: {}", text::plain(left)));
    }
    Ok(())
}

fn data(data: TurnData) -> project::TurnData {
    match data {
        TurnData::Auto => project::TurnData::Auto,
        TurnData::Never => project::TurnData::Never,
    }
}

fn describe(verb: &str, report: &TurnReport) -> String {
    let window = &report.window;
    let tool = window.tool.as_deref().map(|tool| format!(" ({tool})")).unwrap_or_default();
    let checkpoint = match &report.checkpoint {
        None => "captured in the background".to_owned(),
        Some(id) if report.new_checkpoint => format!("new checkpoint {id}"),
        Some(id) => format!("unchanged since {id}"),
    };
    let interrupted = match u64::try_from(report.interrupted.len()).unwrap_or(u64::MAX) {
        0 => String::new(),
        count => format!("; {} closed as interrupted", text::count(count, "window")),
    };
    let names = format!("turn {} of {}{tool}", window.turn, window.session);
    let verb = if report.repeated { "was told already" } else { verb };
    format!("{} {verb}: {checkpoint}, {}{interrupted}", text::plain(&names), text::milliseconds(report.total_ms))
}

fn tell_damage(output: &mut Output<'_>, damage: &Damage) {
    if !damage.is_none() {
        output.warning("the log of turns is damaged; what is good of it is listed");
        output.hint("`forklift project log --rebuild` mends it from the checkpoints");
    }
    let lost: u64 = damage.lost.iter().map(|(first, last)| last.saturating_sub(*first) + 1).sum();
    if lost > 0 {
        output.note(format!("{} of turns were lost with their checkpoints", text::count(lost, "record")));
    }
}

fn table(turns: &[TurnInfo]) -> String {
    if turns.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["TURN", "SESSION", "TOOL", "STATE", "BEGAN", "CHANGED", "BEFORE", "AFTER", "NOTES"]);
    for TurnInfo { turn, changed, calls, .. } in turns {
        table.row([
            format!("#{} {}", turn.number, text::plain(&turn.turn)),
            text::plain(&turn.session).into_owned(),
            String::new(),
            state(turn.state).to_owned(),
            forklift::sys::id::rfc3339(turn.began_ms),
            changed.to_string(),
            turn.start.clone().unwrap_or_default(),
            turn.end.clone().unwrap_or_default(),
            notes_of_turn(turn),
        ]);
        for call in calls {
            let Window { tool, call: id, start, end, began_ms, .. } = &call.window;
            let tool = tool.as_deref().unwrap_or(if call.window.instant { "start" } else { "" });
            table.row([
                format!("  {}", text::plain(id.as_deref().unwrap_or("call"))),
                String::new(),
                text::plain(tool).into_owned(),
                state(call.window.state).to_owned(),
                forklift::sys::id::rfc3339(*began_ms),
                call.changed.map_or_else(|| "?".to_owned(), |changed| changed.to_string()),
                start.clone().unwrap_or_default(),
                end.clone().unwrap_or_default(),
                notes(call),
            ]);
        }
    }
    table.render()
}

fn state(state: WindowState) -> &'static str {
    match state {
        WindowState::Open => "open",
        WindowState::Ended => "ended",
        WindowState::Failed => "failed",
        WindowState::Interrupted => "interrupted",
    }
}

fn notes_of_turn(turn: &Turn) -> String {
    turn.rewound.as_ref().map(|_| "rewound".to_owned()).unwrap_or_default()
}

fn notes(call: &WindowInfo) -> String {
    let mut notes = Vec::new();
    if call.window.overlaps_other_session {
        notes.push("overlaps another session");
    }
    if call.window.rewound.is_some() {
        notes.push("rewound");
    }
    if call.window.is_abandoned() {
        notes.push("its owner is gone");
    }
    if call.database_changed == Some(true) {
        notes.push("database written");
    }
    if !call.forgotten.is_empty() {
        notes.push("checkpoint forgotten");
    }
    notes.join(", ")
}

fn paths(details: &TurnDetails) -> String {
    let mut lines = table(std::slice::from_ref(&details.info));
    let mut table = Table::plain();
    for path in &details.paths {
        let others = if path.shared_with.is_empty() { String::new() } else { format!("also {}", path.shared_with.join(", ")) };
        table.row([
            history::word(path.kind).to_owned(),
            text::plain(&path.path).into_owned(),
            text::plain(&path.tools.join(", ")).into_owned(),
            text::plain(&others).into_owned(),
        ]);
    }
    lines.push_str(&table.render());
    lines
}
