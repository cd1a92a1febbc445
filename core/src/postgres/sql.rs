//! Our own sessions in a server.

use std::path::Path;

use super::Address;
use crate::error::Result;

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
    /// With a new random password.
    pub fn random(name: &str) -> Result<Self> { let _ = name; todo!() }
}

impl Credentials {
    /// Reads them.
    pub fn load(path: &Path) -> Result<Self> { let _ = path; todo!() }
    /// Writes them (0600, durable).
    pub fn save(&self, path: &Path) -> Result<()> { let _ = path; todo!() }
}

/// One session of ours over the private socket: `application_name=forklift`, `event_triggers=off` (17+), `lock_timeout`,
/// no statement_timeout, fixed DateStyle and search_path.
pub struct Sql {}

impl Sql {
    /// Connects as `role` to `database` by the private socket.
    pub fn connect(address: &Address, role: &Role, database: &str) -> Result<Self> { let _ = (address, role, database); todo!() }
    /// Server version as a number, such as 150018.
    pub fn server_version(&mut self) -> Result<u32> { todo!() }
    /// Rows as text columns (NULL is `None`), by the simple protocol; several statements may be given and the rows of the last are returned.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> { let _ = sql; todo!() }
    /// The one value of the one row. `Sql` where there is none.
    pub fn value(&mut self, sql: &str) -> Result<String> { let _ = sql; todo!() }
    /// Runs statements for their effect.
    pub fn run(&mut self, sql: &str) -> Result<()> { let _ = sql; todo!() }
    /// A literal for use in a statement.
    #[must_use]
    pub fn literal(text: &str) -> String { let _ = text; todo!() }
    /// An identifier for use in a statement.
    #[must_use]
    pub fn identifier(text: &str) -> String { let _ = text; todo!() }
}
