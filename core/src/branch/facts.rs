//! What a checkpoint says of the cluster in it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{ClusterFacts, CopyReport, DatabaseLocale, Mark, SafeMode, Server, Sql};
use crate::store::Half;

/// The facts of a cluster half.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CapturedCluster {
    /// The 12 mode bits of the data folder.
    pub(super) root_mode: u32,
    /// The branch, and which of its clusters it was: a mark means nothing for another.
    pub(super) branch: String,
    /// See `branch`.
    pub(super) cluster: String,
    /// Bootstrap superuser.
    pub(super) superuser: String,
    /// Role of the URL.
    pub(super) user: String,
    /// Database of the URL.
    pub(super) database: String,
    /// It is a fork.
    pub(super) fork: bool,
    /// Its server was kept from reaching outside: so are forks of the checkpoint where nothing else is said.
    #[serde(default)]
    pub(super) safe: SafeMode,
    /// Versions, locales, extensions.
    pub(super) facts: ClusterFacts,
    /// Sequences to put back and the like.
    pub(super) report: CopyReport,
    /// The mark that a later capture compares: of the server as it ran when the copy was made, or after it was started again.
    pub(super) mark: Mark,
}

impl CapturedCluster {
    pub(super) fn of(half: &Half) -> Result<Self> {
        serde_json::from_value(half.facts.clone()).map_err(|source| {
            Error::new(ErrorKind::Corrupt, format!("the checkpoint's facts about its cluster are not readable: {source}"))
        })
    }

    pub(super) fn to_value(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|source| Error::new(ErrorKind::Internal, format!("cannot write the cluster's facts: {source}")))
    }
}

/// A session in a database that is always there: `postgres` may have been dropped.
pub(super) fn session(server: &Server) -> Result<Sql> {
    server.connect("postgres").or_else(|_| server.connect("template1"))
}

/// Fills in what only SQL knows, database by database; no session stays. A database that cannot be asked is left out.
pub(super) fn ask(server: &Server, facts: &mut ClusterFacts) -> Result<()> {
    let major = facts.version.major;
    let provider = if major >= 15 { "datlocprovider::text" } else { "'c'" };
    let version = if major >= 15 { "datcollversion" } else { "null" };
    let locale = match major {
        0..=14 => "datcollate::text",
        15 | 16 => "coalesce(daticulocale, datcollate)",
        _ => "coalesce(datlocale, datcollate)",
    };
    let sql = format!("select datname, datallowconn, {provider}, {locale}, datctype, {version} from pg_catalog.pg_database order by 1");
    let rows = session(server)?.rows(&sql)?;
    facts.locales.clear();
    facts.extensions.clear();
    for row in rows {
        let Ok([Some(database), open, Some(provider), Some(locale), Some(ctype), version]) = <[Option<String>; 6]>::try_from(row) else {
            continue;
        };
        if open.as_deref() == Some("t")
            && let Ok(mut session) = server.connect(&database)
        {
            for row in session.rows("select extname, extversion from pg_catalog.pg_extension order by 1")? {
                if let Ok([Some(name), Some(version)]) = <[Option<String>; 2]>::try_from(row) {
                    facts.extensions.push((database.clone(), name, version));
                }
            }
        }
        facts.locales.push(DatabaseLocale { database, provider, locale, ctype, version });
    }
    Ok(())
}
