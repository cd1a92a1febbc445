//! Which databases a server has, and short visits to each of them.

use super::{Server, Sql};
use crate::error::{Error, ErrorKind, Result};

/// A session for work that concerns the whole cluster, in a database that clients rarely drop or copy.
///
/// `postgres` where it exists, else a database that is no template: a session in `template1` makes CREATE DATABASE wait
/// and then fail. While it lasts, its database cannot be dropped, renamed or used as a template.
pub(super) fn maintenance(server: &Server) -> Result<Sql> {
    let first = match server.connect("postgres") {
        Ok(mut sql) => {
            steady(&mut sql)?;
            return Ok(sql);
        }
        Err(error) => error,
    };
    let Ok(mut template) = server.connect("template1") else { return Err(first) };
    let other = template
        .rows("SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 AND NOT datistemplate ORDER BY datname LIMIT 1")?;
    let mut sql = match other.into_iter().flatten().next().flatten() {
        Some(name) => server.connect(&name)?,
        None => template,
    };
    steady(&mut sql)?;
    Ok(sql)
}

/// Every database that takes connections, sorted.
pub(super) fn connectable(sql: &mut Sql) -> Result<Vec<String>> {
    let rows = sql.rows("SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY datname")?;
    Ok(rows.into_iter().flatten().flatten().collect())
}

/// Calls `look` with a session in each of these databases, one at a time; no session stays. A database that is dropped
/// meanwhile is passed over.
pub(super) fn visit(server: &Server, names: &[String], mut look: impl FnMut(&str, &mut Sql) -> Result<()>) -> Result<()> {
    for name in names {
        let visited = server.connect(name).and_then(|mut sql| {
            steady(&mut sql)?;
            look(name, &mut sql)
        });
        if let Err(error) = visited
            && connectable(&mut maintenance(server)?)?.contains(name)
        {
            return Err(error.with("database", name));
        }
    }
    Ok(())
}

/// The value of a column that cannot be NULL.
pub(super) fn column(row: &[Option<String>], index: usize) -> Result<&str> {
    row.get(index)
        .and_then(Option::as_deref)
        .ok_or_else(|| Error::new(ErrorKind::Sql, format!("the server sent a row without column {}", index + 1)))
}

/// A column that holds a number.
pub(super) fn number<T: std::str::FromStr>(row: &[Option<String>], index: usize) -> Result<T> {
    let text = column(row, index)?;
    text.parse().map_err(|_| Error::new(ErrorKind::Sql, format!("the server sent {text:?} where a number was expected")))
}

/// Switches off what the server's configuration may end an idle session with, and parallel workers.
fn steady(sql: &mut Sql) -> Result<()> {
    sql.run(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'idle_session_timeout', \
         'idle_in_transaction_session_timeout', 'transaction_timeout', 'max_parallel_workers_per_gather')",
    )
}
