//! The mark of a running server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::configuration;
use crate::error::Result;
use crate::postgres::databases::{self, column};
use crate::postgres::sequences::{Reading, Scope, read_database};
use crate::postgres::{Server, Sql};

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Running {
    cheap: Cheap,
    /// WAL insert position: where it stands still, only nextval without WAL can have happened.
    position: String,
    /// By database; absent where they were not read, which is the same as nothing.
    sequences: Option<BTreeMap<String, Vec<Sequence>>>,
}

/// What one query and a few small files tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cheap {
    /// System identifier, start of the postmaster and of its checkpointer, which also a crash restart renews: after a crash
    /// transaction ids can be spent anew.
    server: String,
    /// `pg_current_snapshot()`: moves with every transaction that has an id and ends.
    snapshot: String,
    /// COMMIT PREPARED and its like.
    prepared: Vec<String>,
    /// Names and kinds of the permanent replication slots; their positions move all the time.
    slots: Vec<String>,
    /// Hash by name.
    configuration: BTreeMap<String, String>,
}

/// oid, relfilenode, last_value, is_called, log_cnt, unlogged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sequence(u32, u32, i64, bool, i64, bool);

impl Sequence {
    /// Whether nextval can move it without a trace in WAL.
    fn moves_silently(&self) -> bool {
        self.4 > 0 || self.5
    }
}

impl From<Reading> for Sequence {
    fn from(reading: Reading) -> Self {
        let state = reading.state;
        Self(state.oid, state.filenode, state.last_value, state.is_called, state.log_cnt, reading.unlogged)
    }
}

impl Running {
    /// Cheapest first: one query; then, where `previous` allows it, only those sequences that can have moved without WAL.
    pub(super) fn take(server: &Server, previous: Option<&Self>) -> Result<Self> {
        let (cheap, position, names) = {
            let mut sql = databases::maintenance(server)?;
            // The files come first, and the position before the snapshot: what happens in between then shows later.
            let configuration = configuration::hashes(server.data())?;
            let (cheap, position) = look(&mut sql, configuration)?;
            (cheap, position, databases::connectable(&mut sql)?)
        };
        let sequences = match previous {
            // A server in recovery has no insert position and no mark.
            _ if position.is_empty() => None,
            Some(previous) if previous.cheap != cheap || previous.sequences.is_none() => None,
            Some(Self { position: before, sequences: Some(sequences), .. }) if *before == position => reread(server, sequences)?,
            _ => read_all(server, &names)?,
        };
        Ok(Self { cheap, position, sequences })
    }

    /// A position that moved is no difference: an idle server logs a record by itself.
    pub(super) fn same(&self, later: &Self) -> bool {
        self.cheap == later.cheap && self.sequences.is_some() && self.sequences == later.sequences
    }

    /// `None` for what another version has written.
    pub(super) fn deserialize(value: &serde_json::Value) -> Option<Self> {
        Deserialize::deserialize(value).ok()
    }
}

fn look(sql: &mut Sql, configuration: BTreeMap<String, String>) -> Result<(Cheap, String)> {
    let rows = sql.rows(
        "SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_current_wal_insert_lsn()::text END, \
         concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM pg_postmaster_start_time()), \
           (SELECT string_agg(pid || '@' || extract(epoch FROM backend_start), ',') FROM pg_stat_activity WHERE backend_type = 'checkpointer'))",
    )?;
    let row = rows.first().map(Vec::as_slice).unwrap_or_default();
    let (position, server) = (column(row, 0)?.to_owned(), column(row, 1)?.to_owned());
    let snapshot = sql.value("SELECT pg_current_snapshot()::text")?;
    let mut list = |query: &str| -> Result<Vec<String>> { sql.rows(query)?.iter().map(|row| Ok(column(row, 0)?.to_owned())).collect() };
    let prepared = list("SELECT concat_ws(' ', transaction, database, gid) FROM pg_prepared_xacts ORDER BY 1")?;
    let slots =
        list("SELECT concat_ws(' ', slot_name, slot_type, plugin, database) FROM pg_replication_slots WHERE NOT temporary ORDER BY 1")?;
    Ok((Cheap { server, snapshot, prepared, slots, configuration }, position))
}

/// Reads again those that can have moved; the others are as before.
fn reread(server: &Server, before: &BTreeMap<String, Vec<Sequence>>) -> Result<Option<BTreeMap<String, Vec<Sequence>>>> {
    let suspects = |sequences: &Vec<Sequence>| -> Vec<u32> {
        sequences.iter().filter(|sequence| sequence.moves_silently()).map(|sequence| sequence.0).collect()
    };
    let names: Vec<String> = before.iter().filter(|(_, sequences)| !suspects(sequences).is_empty()).map(|(name, _)| name.clone()).collect();
    let mut after = before.clone();
    let mut complete = true;
    let mut visited = 0;
    databases::visit(server, &names, |database, sql| {
        let Some(sequences) = after.get_mut(database) else { return Ok(()) };
        let oids = suspects(sequences);
        let asked = oids.len();
        let found = read_database(sql, database, &Scope::Oids(oids))?;
        complete &= found.readings.len() == asked;
        visited += 1;
        for reading in found.readings.into_iter().map(Sequence::from) {
            // They are sorted by oid.
            let index = sequences.binary_search_by_key(&reading.0, |sequence| sequence.0);
            if let Some(sequence) = index.ok().and_then(|index| sequences.get_mut(index)) {
                *sequence = reading;
            }
        }
        Ok(())
    })?;
    Ok((complete && visited == names.len()).then_some(after))
}

fn read_all(server: &Server, names: &[String]) -> Result<Option<BTreeMap<String, Vec<Sequence>>>> {
    let mut all = BTreeMap::new();
    let mut complete = true;
    databases::visit(server, names, |database, sql| {
        let found = read_database(sql, database, &Scope::All)?;
        complete &= found.unreadable.is_empty() && found.readings.len() == found.listed;
        if !found.readings.is_empty() {
            all.insert(database.to_owned(), found.readings.into_iter().map(Sequence::from).collect());
        }
        Ok(())
    })?;
    Ok(complete.then_some(all))
}
