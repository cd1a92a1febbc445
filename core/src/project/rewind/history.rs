//! From the timeline to the steps that are taken back.

use serde::{Deserialize, Serialize};

use super::asked::{Asked, RedoOptions, RewindOptions, RewindTo};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Snapshot, Step};
use crate::project::Project;
use crate::project::checkpoints::files_of;
use crate::store::Ref;
use crate::timeline::{RangeStart, Rewind, RewindId, SpanKind, Timeline, WindowId};

/// What the journal keeps of a rewind, for its record in the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::project) struct JournalRewind {
    pub(in crate::project) session: String,
    /// What it is, for messages.
    pub(in crate::project) what: String,
    pub(in crate::project) turns: Vec<String>,
    pub(in crate::project) windows: Vec<WindowId>,
    pub(in crate::project) undoes: Option<RewindId>,
    /// As the timeline keeps them with it.
    #[serde(default)]
    pub(in crate::project) facts: serde_json::Value,
}

/// The edges of one step.
#[derive(Debug)]
pub(super) struct Edges {
    pub(super) before: Ref,
    pub(super) after: Ref,
    /// Somebody else was at work too.
    pub(super) shared: bool,
    /// What it is, for messages.
    pub(super) name: String,
}

/// What is taken back.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) record: JournalRewind,
    pub(super) target: Ref,
    pub(super) steps: Vec<Edges>,
    /// What others said they edited meanwhile.
    pub(super) claimed: Vec<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

impl Past {
    /// Finds it in the timeline.
    pub(super) fn find(project: &Project, asked: &Asked) -> Result<Self> {
        let (timeline, damage) = project.timeline()?;
        let mut past = match asked {
            Asked::Rewind(options) => Self::of_turns(project, &timeline, options)?,
            Asked::Redo(options) => Self::of_rewind(project, &timeline, options)?,
        };
        if !damage.is_none() {
            past.warnings.push("the timeline is damaged: records are missing from it, and turns may be too".to_owned());
        }
        Ok(past)
    }

    fn of_turns(project: &Project, timeline: &Timeline, options: &RewindOptions) -> Result<Self> {
        let session = &options.session;
        let (name, start) = match &options.to {
            RewindTo::Before(turn) => (turn, RangeStart::Before(turn)),
            RewindTo::After(turn) => (turn, RangeStart::After(turn)),
        };
        let turn = timeline.turn(session, name)?;
        let range = timeline.range(session, start)?;
        let mut warnings = Vec::new();
        if !range.unknown.is_empty() {
            warnings.push("some tool calls have no checkpoint of their start: what they changed is nobody's and stays".to_owned());
        }
        let mut steps = Vec::new();
        for span in &range.spans {
            let name = match &span.kind {
                SpanKind::Windows => format!("turn {}", span.turns.join(", ")),
                SpanKind::Rewind(id) => format!("rewind {id}"),
            };
            if span.interrupted {
                warnings.push(format!("{name} was interrupted: what was edited before that was noticed counts as its work"));
            }
            let (before, after) = (edge(project, &span.start, &name)?, edge(project, &span.end, &name)?);
            steps.push(Edges { before, after, shared: !span.ours, name });
        }
        let left = match options.to {
            RewindTo::Before(_) => turn.start.clone(),
            // Windows of one turn may end in another order than they began.
            RewindTo::After(_) => turn
                .windows
                .iter()
                .filter_map(|id| timeline.window(id))
                .max_by_key(|window| window.closed)
                .and_then(|window| window.end.clone()),
        };
        let target = match (left, steps.first()) {
            (Some(id), _) => edge(project, &id, &format!("turn {}", turn.turn))?,
            (None, Some(first)) => first.before.clone(),
            (None, None) => {
                return Err(Error::new(ErrorKind::NotFound, format!("turn {} of session {session} has no checkpoint", turn.turn))
                    .with("session", session)
                    .with("turn", &turn.turn)
                    .hint("its capture was broken off; rewind to another turn"));
            }
        };
        let windows = range.windows.iter().filter(|id| timeline.window(id).is_some_and(|window| window.rewound.is_none()));
        let fresh: Vec<WindowId> = windows.cloned().collect();
        let turns = range.turns.iter().filter(|name| {
            timeline.windows().iter().any(|window| fresh.contains(&window.id) && window.turn == **name && window.session == *session)
        });
        let what = match options.to {
            RewindTo::Before(_) => format!("rewind of session {session} to before turn {}", turn.turn),
            RewindTo::After(_) => format!("rewind of session {session} to after turn {}", turn.turn),
        };
        let turns = turns.cloned().collect();
        let record = JournalRewind { session: session.clone(), what, turns, windows: fresh, undoes: None, facts: serde_json::Value::Null };
        let claimed = range.edits.into_iter().flat_map(|edited| edited.paths).collect();
        Ok(Self { record, target, steps, claimed, warnings })
    }

    fn of_rewind(project: &Project, timeline: &Timeline, options: &RedoOptions) -> Result<Self> {
        let session = options.session.as_deref();
        if let Some(session) = session.filter(|session| !timeline.sessions().contains(session)) {
            // Says which sessions there are.
            timeline.turn(session, "")?;
        }
        // Never by surprise an older one of another session.
        let newest = || timeline.rewinds().next_back().map(|rewind| rewind.session.as_str());
        let undone = session.or_else(newest).and_then(|session| undone_by_redo(timeline, session)).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no rewind that a redo could take back")
                .hint("`forklift project rewind` makes one; name a session with --session for one of its own")
        })?;
        let name = format!("rewind {}", undone.id);
        let (before, after) = (edge(project, &undone.before, &name)?, edge(project, &undone.after, &name)?);
        let again = undone.undoes.is_some();
        let record = JournalRewind {
            session: undone.session.clone(),
            what: format!("redo of session {}", undone.session),
            turns: undone.turns.clone(),
            windows: undone.windows.clone(),
            // What takes a redo back is a rewind again.
            undoes: (!again).then(|| undone.id.clone()),
            facts: serde_json::json!({ "takes_back": undone.id }),
        };
        let steps = vec![Edges { before: before.clone(), after, shared: false, name }];
        Ok(Self { record, target: before, steps, claimed: Vec::new(), warnings: Vec::new() })
    }

    /// The files of the target and of the steps.
    pub(super) fn snapshots(&self, project: &Project) -> Result<(Snapshot, Vec<Step>)> {
        let snapshot = |reference: &Ref| {
            let half = files_of(reference)?;
            Ok::<_, Error>(Snapshot { root: half.root, scope: project.scope_in(half)? })
        };
        let step = |step: &Edges| Ok(Step { before: snapshot(&step.before)?, after: snapshot(&step.after)?, shared: step.shared });
        Ok((snapshot(&self.target)?, self.steps.iter().map(step).collect::<Result<_>>()?))
    }
}

/// The newest rewind of a session that is in force; where there is none, its newest redo, as long as it did nothing since.
fn undone_by_redo<'t>(timeline: &'t Timeline, session: &str) -> Option<&'t Rewind> {
    let of = |rewind: &&Rewind| rewind.session == session;
    let taken_back: Vec<&str> = timeline.rewinds().filter_map(takes_back).collect();
    let in_force = |rewind: &&Rewind| !taken_back.contains(&rewind.id.as_str());
    if let Some(found) = timeline.rewinds().rev().find(|rewind| of(rewind) && rewind.undoes.is_none() && in_force(rewind)) {
        return Some(found);
    }
    let redo = timeline.rewinds().rev().find(of).filter(|rewind| rewind.undoes.is_some() && in_force(rewind))?;
    let at = timeline
        .events()
        .iter()
        .find(|event| matches!(&event.kind, crate::timeline::EventKind::Rewound(rewind) if rewind.id == redo.id))?
        .n;
    let later = timeline.windows().iter().any(|window| window.session == redo.session && window.opened > at);
    (!later).then_some(redo)
}

/// The rewind or redo that one takes back.
fn takes_back(rewind: &Rewind) -> Option<&str> {
    rewind.facts.get("takes_back").and_then(serde_json::Value::as_str).or(rewind.undoes.as_deref())
}

fn edge(project: &Project, id: &str, of: &str) -> Result<Ref> {
    let reference = project.store.find_ref(id).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("checkpoint {id} of {of} was forgotten"))
            .with("checkpoint", id)
            .hint("rewind to a later turn, or restore a checkpoint of `forklift project log`"),
        _ => error,
    })?;
    if reference.project.as_deref() == Some(project.id()) {
        return Ok(reference);
    }
    Err(Error::new(ErrorKind::Corrupt, format!("checkpoint {id} of {of} belongs to another project")).with("checkpoint", id))
}
