//! Addresses: what belongs to a project or named branch for life.

use std::path::{Path, PathBuf};

use super::Role;
use crate::error::Result;

/// The address of one branch, stored with it and never changed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Address {
    /// Folder (0700) in which clients find the socket `.s.PGSQL.5432`; short enough for a socket path.
    pub public: PathBuf,
    /// Folder (0700) in which the server makes its socket; only forklift connects there.
    pub private: PathBuf,
    /// Local TCP port of the keeper's relay, where the branch has one.
    pub port: Option<u16>,
}

/// How a URL names the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UrlForm {
    /// `postgresql://user:password@/db?host=DIR`: libpq, psycopg, asyncpg, SQLAlchemy, node-postgres.
    #[default]
    Socket,
    /// `postgresql://user:password@localhost/db?host=DIR`: Prisma.
    Localhost,
    /// `postgresql://user:password@127.0.0.1:PORT/db`: everything that knows TCP only.
    Tcp,
}

impl Address {
    /// A new address for `id` below `preferred` where the socket path stays within 107 bytes (103 on macOS), else below
    /// `/tmp/forklift-<uid>`; `tcp` also picks a free port outside the ephemeral range.
    pub fn new(preferred: &Path, id: &str, tcp: bool) -> Result<Self> { let _ = (preferred, id, tcp); todo!() }
    /// Makes its folders where they are missing (a cleaned `/tmp`) and checks that they are ours and closed to others.
    pub fn ensure(&self) -> Result<()> { todo!() }
    /// The URL for a client. `InvalidArgument` for `Tcp` where there is no port.
    pub fn url(&self, form: UrlForm, role: &Role, database: &str) -> Result<String> { let _ = (form, role, database); todo!() }
    /// Whether the public socket is there, so that clients reach the server.
    pub fn is_public(&self) -> bool { todo!() }
    /// Takes the public socket away; clients that are connected stay.
    pub fn hide(&self) -> Result<()> { todo!() }
    /// Links the private socket into the public folder.
    pub fn publish(&self) -> Result<()> { todo!() }
}
