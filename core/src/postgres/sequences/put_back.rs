//! Putting sequences back to where they were, in a copy that was just replayed.

use std::collections::BTreeMap;

use super::{Reading, Scope, SequenceState, databases, read_database};
use crate::error::Result;
use crate::postgres::Server;

/// Values that nextval writes to WAL ahead of those it hands out (SEQ_LOG_VALS).
const LOGGED_AHEAD: i128 = 32;

/// Sequences set by one statement.
const PER_STATEMENT: usize = 100;

/// Before any client can connect: per sequence with the same database, oid and relfilenode, puts back the earlier of the
/// recorded and the replayed value in the direction of the increment; after a wrap (CYCLE) the replayed one stays. Gives how many were put back.
///
/// An unlogged sequence, which replay resets, gets the recorded value. One that a client set back between the instant of the
/// copy and the reading stays as replayed.
///
/// # Errors
/// `Sql`; those put back until then stay so, and a second call does the rest.
pub fn put_back(server: &Server, recorded: &[SequenceState]) -> Result<u64> {
    let mut by_database: BTreeMap<&str, BTreeMap<u32, &SequenceState>> = BTreeMap::new();
    for state in recorded {
        by_database.entry(&state.database).or_default().insert(state.oid, state);
    }
    if by_database.is_empty() {
        return Ok(0);
    }
    let mut names = databases::connectable(&mut databases::maintenance(server)?)?;
    names.retain(|name| by_database.contains_key(name.as_str()));
    let mut count = 0;
    databases::visit(server, &names, |database, sql| {
        let Some(states) = by_database.get(database) else { return Ok(()) };
        let found = read_database(sql, database, &Scope::Oids(states.keys().copied().collect()))?;
        let calls: Vec<String> = found
            .readings
            .iter()
            .filter_map(|replayed| {
                let recorded = states.get(&replayed.state.oid)?;
                is_earlier(recorded, replayed)
                    .then(|| format!("pg_catalog.setval({}::regclass, {}, {})", recorded.oid, recorded.last_value, recorded.is_called))
            })
            .collect();
        for part in calls.chunks(PER_STATEMENT) {
            sql.run(&format!("SELECT {}", part.join(", ")))?;
            count += part.len() as u64;
        }
        Ok(())
    })?;
    Ok(count)
}

/// Whether the recorded value is to replace the replayed one.
fn is_earlier(recorded: &SequenceState, replayed: &Reading) -> bool {
    let now = &replayed.state;
    if recorded.filenode != now.filenode || (recorded.last_value, recorded.is_called) == (now.last_value, now.is_called) {
        return false;
    }
    if replayed.unlogged {
        return true;
    }
    let step = i128::from(recorded.increment);
    let ahead = (position(now, step) - position(recorded, step)) * step.signum();
    if recorded.cycle {
        // Only what the recorded state itself had logged is known to belong to the same lap.
        return ahead >= 0 && ahead == i128::from(recorded.log_cnt) * step.abs();
    }
    (0..=(LOGGED_AHEAD + i128::from(replayed.cache)) * step.abs()).contains(&ahead)
}

/// The value that was handed out last, or would have been before the first.
fn position(state: &SequenceState, step: i128) -> i128 {
    i128::from(state.last_value) - if state.is_called { 0 } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(last_value: i64, is_called: bool, increment: i64) -> SequenceState {
        SequenceState { database: "app".into(), oid: 1, filenode: 7, last_value, is_called, log_cnt: 0, increment, cycle: false }
    }

    fn replayed(state: SequenceState) -> Reading {
        Reading { state, unlogged: false, cache: 1 }
    }

    #[test]
    fn the_earlier_value_wins_in_the_direction_of_the_increment() {
        assert!(is_earlier(&state(5, true, 1), &replayed(state(33, true, 1))));
        assert!(!is_earlier(&state(40, true, 1), &replayed(state(33, true, 1))));
        assert!(is_earlier(&state(-5, true, -1), &replayed(state(-33, true, -1))));
        assert!(!is_earlier(&state(-40, true, -1), &replayed(state(-33, true, -1))));
        assert!(is_earlier(&state(50, true, 10), &replayed(state(330, true, 10))));
    }

    #[test]
    fn a_sequence_that_was_never_called_counts_as_one_step_before_its_value() {
        assert!(is_earlier(&state(1, false, 1), &replayed(state(33, true, 1))));
        assert!(is_earlier(&state(1, false, 1), &replayed(state(1, true, 1))));
        assert!(!is_earlier(&state(1, true, 1), &replayed(state(1, false, 1))));
        assert!(is_earlier(&state(i64::MIN, false, 1), &replayed(state(i64::MIN, true, 1))));
        assert!(is_earlier(&state(i64::MAX, false, -1), &replayed(state(i64::MAX, true, -1))));
    }

    #[test]
    fn what_is_equal_or_of_another_file_is_left() {
        assert!(!is_earlier(&state(5, true, 1), &replayed(state(5, true, 1))));
        let mut other = state(5, true, 1);
        other.filenode = 8;
        assert!(!is_earlier(&other, &replayed(state(33, true, 1))));
    }

    #[test]
    fn a_value_that_was_set_back_after_the_instant_is_left() {
        assert!(!is_earlier(&state(1, true, 1), &replayed(state(20_000, true, 1))));
        assert!(is_earlier(&state(1, true, 1), &Reading { state: state(1001, true, 1), unlogged: false, cache: 1000 }));
    }

    #[test]
    fn after_a_wrap_the_replayed_value_stays() {
        let wrapped = SequenceState { cycle: true, log_cnt: 7, ..state(3, true, 1) };
        assert!(!is_earlier(&wrapped, &replayed(state(30, true, 1))));
        let same_lap = SequenceState { cycle: true, log_cnt: 7, ..state(3, true, 1) };
        assert!(is_earlier(&same_lap, &replayed(state(10, true, 1))));
    }

    #[test]
    fn an_unlogged_sequence_gets_what_was_recorded() {
        assert!(is_earlier(&state(70, true, 1), &Reading { state: state(1, false, 1), unlogged: true, cache: 1 }));
    }
}
