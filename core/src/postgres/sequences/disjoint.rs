//! Ranges of sequences that siblings do not share: rows that two forks make can then be told apart, and brought together.

use super::{Scope, databases, read_database};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::Server;
use crate::postgres::databases::{column, number};

/// Which range of every sequence belongs to a branch, in numbers of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ranges {
    /// Which one: 0 is the range of a source that was not moved.
    pub index: u32,
    /// Values of a range of a `smallint` sequence.
    pub smallint: u64,
    /// The same for `integer`.
    pub integer: u64,
    /// The same for `bigint`.
    pub bigint: u64,
}

impl Ranges {
    /// The range with this number, of the size that is given to new branches.
    #[must_use]
    pub fn new(index: u32) -> Self {
        Self { index, smallint: 1_000, integer: 10_000_000, bigint: 1 << 40 }
    }

    fn stride(&self, kind: &str) -> u64 {
        match kind {
            "smallint" => self.smallint,
            "integer" => self.integer,
            _ => self.bigint,
        }
    }
}

/// One sequence that was given a range of its own.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MovedSequence {
    /// Database.
    pub database: String,
    /// Schema and name.
    pub name: String,
    /// The next value.
    pub next: i64,
    /// Values in the range.
    pub stride: u64,
    /// How far it was moved, in values.
    pub offset: u64,
}

/// Sequences set by one statement.
const PER_STATEMENT: usize = 100;

/// Moves every sequence of every database, those of identity columns too, from the range of its source (`from`, the first where
/// the source has none) into `to`; gives those that were moved, and the names of those without room for it, which stay.
///
/// # Errors
/// `Sql`; `InvalidArgument` where `to` does not come after `from`.
pub fn make_disjoint(server: &Server, from: Option<&Ranges>, to: &Ranges) -> Result<(Vec<MovedSequence>, Vec<String>)> {
    let index = from.map_or(0, |from| from.index);
    let steps =
        to.index.checked_sub(index).filter(|steps| *steps > 0).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("range {} of sequences does not come after {index}", to.index))
        })?;
    let names = databases::connectable(&mut databases::maintenance(server)?)?;
    let (mut moved, mut without_room) = (Vec::new(), Vec::new());
    databases::visit(server, &names, |database, sql| {
        let bounds = sql.rows(
            "SELECT s.seqrelid, pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.format_type(s.seqtypid, NULL), s.seqmin, s.seqmax \
             FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace",
        )?;
        let mut calls = Vec::new();
        for reading in read_database(sql, database, &Scope::All)?.readings {
            let state = reading.state;
            let Some(row) = bounds.iter().find(|row| number(row, 0).is_ok_and(|oid: u32| oid == state.oid)) else { continue };
            let (name, kind) = (column(row, 1)?, column(row, 2)?);
            let (least, most): (i64, i64) = (number(row, 3)?, number(row, 4)?);
            let stride = to.stride(kind);
            let offset = u64::from(steps) * stride;
            let at = i128::from(state.last_value) + if state.is_called { i128::from(state.increment) } else { 0 };
            match next(at, state.increment, offset, stride, (least, most)) {
                Some(next) => {
                    calls.push(format!("pg_catalog.setval({}::regclass, {next}, false)", state.oid));
                    moved.push(MovedSequence { database: database.to_owned(), name: name.to_owned(), next, stride, offset });
                }
                None => without_room.push(format!("{name} in {database}")),
            }
        }
        for part in calls.chunks(PER_STATEMENT) {
            sql.run(&format!("SELECT {}", part.join(", ")))?;
        }
        Ok(())
    })?;
    Ok((moved, without_room))
}

/// The first value of the range, where all of the range lies within the bounds.
fn next(at: i128, increment: i64, offset: u64, stride: u64, (least, most): (i64, i64)) -> Option<i64> {
    let step = i128::from(increment);
    let first = at + i128::from(offset) * step;
    let last = first + (i128::from(stride) - 1) * step;
    let bounds = i128::from(least)..=i128::from(most);
    (bounds.contains(&first) && bounds.contains(&last)).then(|| i64::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_begins_behind_those_before_it_and_ends_within_the_bounds() {
        let all = (1, i64::MAX);
        assert_eq!(next(101, 1, 1000, 1000, all), Some(1101));
        assert_eq!(next(101, 10, 1000, 1000, all), Some(10_101), "the phase of an increment stays");
        assert_eq!(next(-5, -1, 1000, 1000, (i64::MIN, -1)), Some(-1005));
        assert_eq!(next(101, 1, 1000, 1000, (1, 2000)), None, "its end is out of bounds");
        assert_eq!(next(i128::from(i64::MAX), i64::MAX, 1 << 60, 1 << 40, all), None);
    }

    #[test]
    fn a_table_of_ids_has_room_for_many_siblings() {
        let first =
            |index: u32| next(1, 1, u64::from(index) * Ranges::new(index).integer, Ranges::new(index).integer, (1, i64::from(i32::MAX)));
        assert!(first(200).is_some() && first(300).is_none());
    }
}
