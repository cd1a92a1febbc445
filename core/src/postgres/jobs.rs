//! Jobs that a scheduler in the cluster would run.

use super::Server;
use super::databases::{column, connectable, maintenance, visit};
use crate::error::Result;

/// The active jobs of pg_cron, by number, command name or none, and database.
///
/// # Errors
/// `Sql`.
pub fn scheduled_jobs(server: &Server) -> Result<Vec<String>> {
    let names = connectable(&mut maintenance(server)?)?;
    let mut jobs = Vec::new();
    visit(server, &names, |database, sql| {
        if sql.value("SELECT count(*) FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'")? != "0" {
            for row in sql.rows("SELECT jobid FROM cron.job WHERE active ORDER BY 1")? {
                jobs.push(format!("pg_cron job {} in database {database}", column(&row, 0)?));
            }
        }
        Ok(())
    })?;
    Ok(jobs)
}
