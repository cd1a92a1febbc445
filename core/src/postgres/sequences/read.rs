//! Reading sequences without holding many locks and without waiting for anybody.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::SequenceState;
use crate::error::{ErrorKind, Result};
use crate::postgres::Sql;
use crate::postgres::databases::{column, number};

/// Each sequence in a statement costs a lock until its end.
const PER_STATEMENT: usize = 100;

/// How long the locks of others are waited for in all, in one database.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which sequences of a database are meant.
pub(crate) enum Scope {
    /// All but temporary ones.
    All,
    /// Those with these oids.
    Oids(Vec<u32>),
}

/// One sequence as it was read.
pub(crate) struct Reading {
    /// What was read.
    pub(crate) state: SequenceState,
    /// UNLOGGED: never written to WAL, reset by a crash.
    pub(crate) unlogged: bool,
    /// CACHE.
    pub(crate) cache: i64,
}

/// What a look at one database gave.
pub(crate) struct Found {
    /// In the order of the oids.
    pub(crate) readings: Vec<Reading>,
    /// Names of those that somebody keeps locked.
    pub(crate) unreadable: Vec<String>,
    /// How many there were, with those that were dropped or rewritten meanwhile.
    pub(crate) listed: usize,
}

/// Reads sequences of the session's database, which is called `database`.
///
/// One that is dropped or rewritten meanwhile (ALTER SEQUENCE, TRUNCATE RESTART IDENTITY) is left out.
pub(crate) fn read_database(sql: &mut Sql, database: &str, scope: &Scope) -> Result<Found> {
    let listed = list(sql, scope)?;
    let count = listed.len();
    sql.run("SET lock_timeout = '50ms'")?;
    let mut values = HashMap::new();
    let mut unreadable = Vec::new();
    let mut waited = Duration::ZERO;
    for part in listed.chunks(PER_STATEMENT) {
        match read_values(sql, part) {
            Ok(rows) => values.extend(rows),
            Err(error) if error.kind() == ErrorKind::Sql => {
                for one in part {
                    if waited > PATIENCE {
                        sql.run("SET lock_timeout = '1ms'")?;
                    }
                    let start = Instant::now();
                    match read_values(sql, std::slice::from_ref(one)) {
                        Ok(rows) => values.extend(rows),
                        Err(error) if error.kind() == ErrorKind::Sql => {
                            waited += start.elapsed();
                            if !list(sql, &Scope::Oids(vec![one.oid]))?.is_empty() {
                                unreadable.push(one.name.clone());
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    let readings = listed
        .into_iter()
        .filter_map(|one| {
            let (filenode, last_value, is_called, log_cnt) = *values.get(&one.oid)?;
            let state = SequenceState {
                database: database.to_owned(),
                oid: one.oid,
                filenode,
                last_value,
                is_called,
                log_cnt,
                increment: one.increment,
                cycle: one.cycle,
            };
            (filenode == one.filenode).then_some(Reading { state, unlogged: one.unlogged, cache: one.cache })
        })
        .collect();
    Ok(Found { readings, unreadable, listed: count })
}

struct Listed {
    oid: u32,
    filenode: u32,
    name: String,
    increment: i64,
    cycle: bool,
    cache: i64,
    unlogged: bool,
}

fn list(sql: &mut Sql, scope: &Scope) -> Result<Vec<Listed>> {
    let only = match scope {
        Scope::All => String::new(),
        Scope::Oids(oids) => format!(" AND c.oid = ANY ('{{{}}}')", oids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    };
    let rows = sql.rows(&format!(
        "SELECT c.oid, c.relfilenode, format('%I.%I', n.nspname, c.relname), s.seqincrement, s.seqcycle, s.seqcache, \
         c.relpersistence = 'u' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid WHERE c.relkind = 'S' AND c.relpersistence <> 't'{only} ORDER BY c.oid"
    ))?;
    rows.iter()
        .map(|row| {
            Ok(Listed {
                oid: number(row, 0)?,
                filenode: number(row, 1)?,
                name: column(row, 2)?.to_owned(),
                increment: number(row, 3)?,
                cycle: column(row, 4)? == "t",
                cache: number(row, 5)?,
                unlogged: column(row, 6)? == "t",
            })
        })
        .collect()
}

type Values = (u32, (u32, i64, bool, i64));

/// One statement, hence one transaction. The filenode is asked for after the sequence was opened, so that it is never older
/// than the file the value was read from.
fn read_values(sql: &mut Sql, listed: &[Listed]) -> Result<Vec<Values>> {
    let parts: Vec<String> = listed
        .iter()
        .map(|one| format!("SELECT tableoid, pg_catalog.pg_relation_filenode(tableoid), last_value, is_called, log_cnt FROM {}", one.name))
        .collect();
    let rows = sql.rows(&parts.join(" UNION ALL "))?;
    rows.iter()
        // A sequence that is being dropped has no filenode any more.
        .filter(|row| matches!(row.get(1), Some(Some(_))))
        .map(|row| Ok((number(row, 0)?, (number(row, 1)?, number(row, 2)?, column(row, 3)? == "t", number(row, 4)?))))
        .collect()
}
