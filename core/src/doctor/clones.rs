//! The ways to clone.

use super::place::Place;
use super::{Check, State};
use crate::clone::{Method, Trial, trials};

/// Adds a check for each way and gives the name of the best one that works.
pub(super) fn check(place: &Place, checks: &mut Vec<Check>) -> Option<String> {
    let tried = place.work().and_then(|work| trials(work).map_err(|error| error.message().to_owned()));
    match tried {
        Ok(trials) => {
            let best = trials.iter().find(|trial| trial.works).map(|trial| trial.method.name().to_owned());
            checks.extend(trials.iter().map(of_trial));
            best
        }
        Err(why) => {
            for method in [Method::Snapshot, Method::Reflink, Method::Copy] {
                let check = Check::new("clone", method.name(), State::Unknown, format!("not tried: {why}"));
                checks.push(if method == Method::Copy { check.required() } else { check });
            }
            None
        }
    }
}

fn of_trial(trial: &Trial) -> Check {
    let state = if trial.works { State::Available } else { State::Unavailable };
    let check = Check::new("clone", trial.method.name(), state, trial.found.clone())
        .fact("atomic", trial.atomic)
        .fact("cost", serde_json::to_value(trial.cost).unwrap_or_default())
        .fact("bytes", trial.bytes)
        .fact("exclusive", trial.exclusive);
    if trial.method == Method::Copy { check.required() } else { check }
}
