//! Our own sessions in a server.

use std::path::Path;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, SimpleQueryMessage};

use super::Address;
use super::session::{Refused, Session};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::fs::Syncs;

/// How long the server may take to answer a new session.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of every session, stronger than those of the role and the database.
const OPTIONS: &[&str] = &[
    "search_path=pg_catalog",
    "DateStyle=ISO",
    "IntervalStyle=postgres",
    "TimeZone=UTC",
    "extra_float_digits=1",
    "bytea_output=hex",
    "lock_timeout=10000",
    "statement_timeout=0",
    "idle_in_transaction_session_timeout=0",
    "default_transaction_read_only=off",
    "default_transaction_isolation=read\\ committed",
    "default_transaction_deferrable=off",
    "role=none",
    "exit_on_error=off",
    "local_preload_libraries=",
    // A standby that is configured but not there must not make us wait.
    "synchronous_commit=local",
    "client_min_messages=error",
];

/// A role and its password.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Role {
    /// Name.
    pub name: String,
    /// Password.
    pub password: String,
}

/// The passwords of a branch; kept in a 0600 file in the store, never in an argument, a log or a Debug text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Credentials {
    /// The bootstrap superuser, for forklift itself.
    pub ours: Role,
    /// The role of the URL.
    pub url: Role,
    /// The database of the URL.
    pub database: String,
}

impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Role").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Role {
    /// With a new random password (32 letters and digits of the kernel's randomness).
    ///
    /// # Errors
    /// `Io` where the kernel has none.
    pub fn random(name: &str) -> Result<Self> {
        let bytes: [u8; 16] = sys::id::random()?;
        let password = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: name.to_owned(), password })
    }
}

impl Credentials {
    /// Reads them.
    ///
    /// # Errors
    /// `NotFound`, `Permission`, `Io`; `Corrupt` where the file is not what [`Credentials::save`] wrote.
    pub fn load(path: &Path) -> Result<Self> {
        // The parser's own message would quote the file.
        serde_json::from_slice(&sys::fs::read(path)?).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("{} does not hold credentials (line {})", path.display(), error.line()))
                .with("path", path.display())
                .hint("restore the file from a backup of the store, or reset the branch's passwords")
        })
    }

    /// Writes them (0600, durable).
    ///
    /// # Errors
    /// `NoSpace`, `Permission`, `Io`; what was there before is then still there.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "credentials cannot be written as JSON").because(error))?;
        sys::fs::replace(path, &bytes, 0o600, &Syncs::new())
    }
}

/// One session of ours over the private socket: `application_name=forklift`, `event_triggers=off` (17+), `lock_timeout`,
/// no statement_timeout, no other role, no preloaded libraries of its own, fixed DateStyle and search_path. Notices are dropped. Dropping it ends the session.
pub struct Sql {
    session: Session,
    version: Option<u32>,
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

impl Sql {
    /// Connects as `role` to `database` by the private socket.
    ///
    /// # Errors
    /// `Sql` with the server's message and SQLSTATE, `Timeout` where the server does not answer, `NotFound` or `Io` where
    /// there is none.
    pub fn connect(address: &Address, role: &Role, database: &str) -> Result<Self> {
        // Known before the session exists: a login event trigger would run otherwise, and older servers refuse the setting.
        let newer = super::lock_file::LockFile::read(&address.private_lock())?
            .and_then(|lock| super::lock_file::major_of(&lock.data))
            .is_some_and(|major| major >= 17);
        let privileged: &[&str] =
            if newer { &["session_preload_libraries=", "event_triggers=off"] } else { &["session_preload_libraries="] };
        match Self::open(address, role, database, privileged) {
            // Only a superuser may switch them off.
            Err(Refused::Error(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                Self::open(address, role, database, &[])
            }
            opened => opened,
        }
        .map_err(|refused| {
            let action = format!("connect to database {database} as {}", role.name);
            match refused {
                Refused::Error(error) => with_login_hint(build(&error, &action)),
                Refused::Silent => Error::new(ErrorKind::Timeout, format!("{action}: the server does not answer"))
                    .hint("look whether the server or its machine is halted, then try again"),
                Refused::Io(source) => Error::new(ErrorKind::Io, format!("{action}: {source}")).because(source),
            }
            .with("path", address.private.display())
        })
    }

    fn open(address: &Address, role: &Role, database: &str, more: &[&str]) -> std::result::Result<Self, Refused> {
        let options: Vec<String> = OPTIONS.iter().chain(more).map(|option| format!("-c {option}")).collect();
        let mut config = Config::new();
        config
            .host_path(&address.private)
            .port(5432)
            .user(&role.name)
            .password(&role.password)
            .dbname(database)
            .application_name("forklift")
            .options(options.join(" "));
        Ok(Self { session: Session::open(&config, PATIENCE)?, version: None })
    }

    /// Server version as a number, such as 150018.
    ///
    /// # Errors
    /// As [`Sql::value`].
    pub fn server_version(&mut self) -> Result<u32> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let text = self.value("SHOW server_version_num")?;
        let version = text.parse().map_err(|_| Error::new(ErrorKind::Sql, format!("the server calls its version {text}")))?;
        self.version = Some(version);
        Ok(version)
    }

    /// Rows as text columns (NULL is `None`), by the simple protocol; several statements may be given and the rows of the
    /// last are returned. They are one transaction unless they say otherwise.
    ///
    /// # Errors
    /// `Sql` with the server's message, the SQLSTATE as context and the statement's first words.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let messages = self.session.query(sql).map_err(|error| statement_error(&error, sql))?;
        let mut rows = Vec::new();
        let mut ended = false;
        for message in messages {
            if ended {
                rows.clear();
            }
            ended = matches!(message, SimpleQueryMessage::CommandComplete(_));
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|column| row.try_get(column).ok().flatten().map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }

    /// The one value of the one row.
    ///
    /// # Errors
    /// `Sql` where there is none, and as [`Sql::rows`].
    pub fn value(&mut self, sql: &str) -> Result<String> {
        let mut rows = self.rows(sql)?;
        let row = if rows.len() == 1 { rows.pop() } else { None };
        match row.map(|mut row| if row.len() == 1 { row.pop().flatten() } else { None }) {
            Some(Some(value)) => Ok(value),
            _ => Err(Error::new(ErrorKind::Sql, format!("no single value from: {}", first_words(sql)))),
        }
    }

    /// Runs statements for their effect.
    ///
    /// # Errors
    /// As [`Sql::rows`].
    pub fn run(&mut self, sql: &str) -> Result<()> {
        self.session.query(sql).map(drop).map_err(|error| statement_error(&error, sql))
    }

    /// A literal for use in a statement, whatever `standard_conforming_strings` is.
    #[must_use]
    pub fn literal(text: &str) -> String {
        let quoted = text.replace('\'', "''");
        if text.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
    }

    /// An identifier for use in a statement.
    #[must_use]
    pub fn identifier(text: &str) -> String {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

fn statement_error(error: &tokio_postgres::Error, sql: &str) -> Error {
    build(error, &first_words(sql))
}

/// Whether the server refused a role or its password.
pub(super) fn is_login_refused(error: &Error) -> bool {
    matches!(error.sqlstate(), Some("28P01" | "28000"))
}

fn with_login_hint(error: Error) -> Error {
    if !is_login_refused(&error) {
        return error;
    }
    error.hint("the role or its password was changed: stop the branch and start it again, which gives forklift its login back (forklift branch stop NAME)")
}

/// Message, detail and SQLSTATE of the server. Never the statement itself: it may hold a password.
fn build(error: &tokio_postgres::Error, action: &str) -> Error {
    use std::error::Error as _;
    if let Some(refused) = error.as_db_error() {
        let message = refused.message().replace('\n', " ");
        let built = Error::new(ErrorKind::Sql, format!("{action}: {message}")).with("sqlstate", refused.code().code());
        return match refused.hint() {
            Some(hint) => built.hint(hint),
            None => built,
        };
    }
    match error.source().and_then(|source| source.downcast_ref::<std::io::Error>()) {
        Some(source) if matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
            Error::new(ErrorKind::NotFound, format!("{action}: no server is running")).hint("start the branch first")
        }
        Some(source) => Error::new(ErrorKind::Io, format!("{action}: {source}")).hint("see the server's log"),
        None => Error::new(ErrorKind::Sql, format!("{action}: {error}")),
    }
}

/// The beginning of a statement up to its first quote: enough to know it by, and no secret in it.
fn first_words(sql: &str) -> String {
    let line = sql.split(['\'', '$']).next().unwrap_or_default();
    let mut words: String = line.split_ascii_whitespace().take(6).collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = words.char_indices().nth(60) {
        words.truncate(cut);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_identifiers_hold_any_text() {
        assert_eq!(Sql::literal("it's"), "'it''s'");
        assert_eq!(Sql::literal("a\\'b"), " E'a\\\\''b'");
        assert_eq!(Sql::identifier("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn first_words_never_hold_a_literal() {
        assert_eq!(first_words("ALTER ROLE \"x\"  PASSWORD 'secret'"), "ALTER ROLE \"x\" PASSWORD");
        assert_eq!(first_words("SELECT $a$secret$a$"), "SELECT");
    }

    #[test]
    fn debug_text_holds_no_password() {
        let role = Role::random("app").unwrap();
        assert!(!format!("{role:?}").contains(&role.password));
        assert_eq!(role.password.len(), 32);
    }
}
