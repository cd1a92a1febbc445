//! What an event does to the turns of a project.

use std::path::{Path, PathBuf};

use forklift::project::{Project, TurnData, TurnEnd, TurnOptions};
use forklift::sys::process;
use forklift::{ErrorKind, Result};

use super::event::{Call, Event, Kind, Outcome};
use crate::context::Context;

/// Programs that live as long as a session. Another parent may be a shell that ends with this very call.
const HOSTS: &[&str] = &["claude", "codex", "gemini", "node", "bun", "cursor", "Cursor", "cursor-agent"];

/// Does it in every project that the host works in; gives what went wrong. A folder that is no project's is none of our business.
pub(super) fn perform(context: &Context, event: &Event) -> Vec<String> {
    if event.kind == Kind::Other {
        return Vec::new();
    }
    let mut folders: Vec<PathBuf> = event.folders.iter().filter(|folder| folder.is_absolute() && folder.is_dir()).cloned().collect();
    if folders.is_empty() {
        folders.push(context.folder().to_owned());
    }
    let mut warnings = Vec::new();
    let mut done: Vec<String> = Vec::new();
    for folder in folders {
        let result = open(context, &folder).and_then(|project| match project {
            Some(project) if !done.contains(&project.id().to_owned()) => {
                done.push(project.id().to_owned());
                in_project(context, &project, event)
            }
            _ => Ok(Vec::new()),
        });
        match result {
            Ok(found) => warnings.extend(found),
            Err(error) => warnings.push(match error.hint_text() {
                Some(hint) => format!("{} ({hint})", error.message()),
                None => error.message().to_owned(),
            }),
        }
    }
    warnings
}

/// The project of a folder; `None` where it was never set up.
fn open(context: &Context, folder: &Path) -> Result<Option<Project>> {
    match Project::open(folder, &context.project_options(), context.environment()) {
        Ok(project) => Ok(Some(project)),
        Err(error) if error.kind() == ErrorKind::NotFound && error.message().ends_with("belongs to no forklift project") => Ok(None),
        Err(error) => Err(error),
    }
}

fn in_project(context: &Context, project: &Project, event: &Event) -> Result<Vec<String>> {
    match &event.kind {
        Kind::Prompt => {
            let options = TurnOptions {
                session: event.session.clone(),
                turn: turn_of(project, event, true)?,
                background: true,
                instant: true,
                ..TurnOptions::default()
            };
            Ok(project.turn_begin(&options, &context.control())?.warnings)
        }
        Kind::Before(Call { tool, id }) => {
            let options = TurnOptions {
                session: event.session.clone(),
                turn: turn_of(project, event, false)?,
                tool: Some(tool.clone()),
                call: id.clone(),
                owner: host(),
                ..TurnOptions::default()
            };
            Ok(project.turn_begin(&options, &context.control())?.warnings)
        }
        Kind::After(Call { tool, id }, outcome) => {
            let options = TurnEnd {
                session: event.session.clone(),
                turn: turn_of(project, event, false)?,
                tool: Some(tool.clone()),
                call: id.clone(),
                failed: *outcome == Outcome::Failed,
                data: TurnData::Auto,
            };
            Ok(project.turn_end(&options, &context.control())?.warnings)
        }
        Kind::Over => end_all(context, project, &event.session),
        Kind::Other => Ok(Vec::new()),
    }
}

/// Closes what a tool left open whose end the host did not tell.
fn end_all(context: &Context, project: &Project, session: &str) -> Result<Vec<String>> {
    let (timeline, _) = project.timeline()?;
    let mut warnings = Vec::new();
    for window in timeline.open_windows().filter(|window| window.session == session) {
        if window.instant {
            warnings.extend(project.turn_wait(session, TurnData::Auto, &context.control())?.warnings);
            continue;
        }
        let options = TurnEnd {
            session: session.to_owned(),
            turn: window.turn.clone(),
            tool: window.tool.clone(),
            call: window.call.clone(),
            failed: false,
            data: TurnData::Auto,
        };
        warnings.extend(project.turn_end(&options, &context.control())?.warnings);
    }
    Ok(warnings)
}

/// The host's name for the turn; where it has none, its place in the session.
fn turn_of(project: &Project, event: &Event, new: bool) -> Result<String> {
    if let Some(turn) = &event.turn {
        return Ok(turn.clone());
    }
    let turns = project.timeline()?.0.turns(&event.session);
    Ok(match turns.last() {
        Some(last) if !new => last.turn.clone(),
        _ => format!("prompt-{}", turns.len() + 1),
    })
}

/// The process of the host, where it is one that is known to outlive the call.
fn host() -> Option<u32> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..4 {
        let stat = process::stat(pid)?;
        if HOSTS.contains(&&*stat.name) {
            return Some(pid);
        }
        pid = Some(stat.parent).filter(|parent| *parent > 1)?;
    }
    None
}
