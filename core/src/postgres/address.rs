//! Addresses: what belongs to a project or named branch for life.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Role;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// Name of the socket in both folders: the port in it is fixed, as nothing else is in them.
const SOCKET: &str = ".s.PGSQL.5432";

/// Longest name of a socket without its closing NUL.
const SOCKET_PATH: usize = if cfg!(target_os = "macos") { 103 } else { 107 };

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
    /// Longest name of a socket that the system takes, in bytes.
    pub const LONGEST_PATH: usize = SOCKET_PATH;

    /// Bytes of the longer one of its sockets' names.
    #[must_use]
    pub fn longest_path(&self) -> usize {
        self.private_socket().as_os_str().len().max(self.public_socket().as_os_str().len())
    }

    /// A new address for `id` below `preferred` where the socket path stays within 107 bytes (103 on macOS), else below
    /// `/tmp/forklift-<uid>`; `tcp` also picks a free port outside the ephemeral range. Makes nothing.
    ///
    /// # Errors
    /// `Unsupported` where no port is free.
    pub fn new(preferred: &Path, id: &str, tcp: bool) -> Result<Self> {
        let hash = blake3::hash(id.as_bytes());
        let name = hash.to_hex().get(..12).unwrap_or_default().to_owned();
        let below = |base: &Path| (base.join(&name), base.join(format!("{name}p")));
        let (mut public, mut private) = below(preferred);
        if !preferred.is_absolute() || private.join(SOCKET).as_os_str().len() > SOCKET_PATH {
            (public, private) = below(&fallback());
        }
        let port = if tcp { Some(free_port(u64::from_le_bytes(first_eight(hash.as_bytes())))?) } else { None };
        Ok(Self { public, private, port })
    }

    /// Makes its folders where they are missing (a cleaned `/tmp`) and checks that they are ours and closed to others.
    ///
    /// # Errors
    /// `Permission` naming a folder that is a link, belongs to someone else or is open to others; `NoSpace`, `Io`.
    pub fn ensure(&self) -> Result<()> {
        if let Some(base) = self.public.parent() {
            // Others may pass it (an account's server must) but not write in it, so what lies in it is trusted.
            make(base, 0o711)?;
            check_folder(base, 0o022, false)?;
        }
        make(&self.public, 0o700)?;
        check_folder(&self.public, 0o077, false)?;
        make(&self.private, 0o700)?;
        check_folder(&self.private, 0o077, true)
    }

    /// The URL for a client; everything that is not plain in it is percent-encoded, but the `/` of the folder.
    ///
    /// # Errors
    /// `InvalidArgument` for `Tcp` where there is no port.
    pub fn url(&self, form: UrlForm, role: &Role, database: &str) -> Result<String> {
        let login = format!("{}:{}", encode(role.name.as_bytes(), ""), encode(role.password.as_bytes(), ""));
        let database = encode(database.as_bytes(), "");
        let folder = encode(self.public.as_os_str().as_bytes(), "/");
        match (form, self.port) {
            (UrlForm::Socket, _) => Ok(format!("postgresql://{login}@/{database}?host={folder}")),
            (UrlForm::Localhost, _) => Ok(format!("postgresql://{login}@localhost/{database}?host={folder}")),
            (UrlForm::Tcp, Some(port)) => Ok(format!("postgresql://{login}@127.0.0.1:{port}/{database}")),
            (UrlForm::Tcp, None) => Err(Error::new(ErrorKind::InvalidArgument, "this branch has no TCP port")
                .hint("use the socket form, or make a branch with one: `forklift branch create --tcp`; for a project's branch write `\"connection\": \"tcp\"` into .forklift.json before `forklift project setup`")),
        }
    }

    /// Whether the public socket is there, so that clients reach the server.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.public_socket().symlink_metadata().is_ok()
    }

    /// Takes the public socket away; clients that are connected stay.
    ///
    /// # Errors
    /// `Permission`, `Io`.
    pub fn hide(&self) -> Result<()> {
        sys::fs::remove_file(&self.public_socket())
    }

    /// Links the private socket into the public folder, in place of whatever was there.
    ///
    /// # Errors
    /// `NotFound` where there is no server; `Permission`, `Io`.
    pub fn publish(&self) -> Result<()> {
        self.hide()?;
        let (from, to) = (self.private_socket(), self.public_socket());
        std::fs::hard_link(&from, &to).map_err(|source| Error::io("link the server's socket to", &to, source))
    }

    /// The socket clients use.
    pub(super) fn public_socket(&self) -> PathBuf {
        self.public.join(SOCKET)
    }

    /// The socket the server makes.
    pub(super) fn private_socket(&self) -> PathBuf {
        self.private.join(SOCKET)
    }

    /// The lock file the server makes beside its socket.
    pub(super) fn private_lock(&self) -> PathBuf {
        self.private.join(format!("{SOCKET}.lock"))
    }
}

fn fallback() -> PathBuf {
    PathBuf::from(format!("/tmp/forklift-{}", rustix::process::geteuid().as_raw()))
}

fn make(path: &Path, mode: u32) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        make(parent, 0o711)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Error::io("create folder", path, error)),
        _ => Ok(()),
    }
}

fn check_folder(path: &Path, closed: u32, may_be_given: bool) -> Result<()> {
    let metadata = path.symlink_metadata().map_err(|source| Error::io("examine", path, source))?;
    let own = rustix::process::geteuid().as_raw();
    let refused = if metadata.is_symlink() {
        "is a symbolic link".to_owned()
    } else if !metadata.is_dir() {
        "is not a folder".to_owned()
    } else if metadata.uid() != own && !(may_be_given && own == 0) {
        format!("belongs to uid {}", metadata.uid())
    } else if metadata.mode() & closed != 0 {
        format!("is open to others (mode {:04o})", metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Permission, format!("the socket folder {} {refused}", path.display()))
        .with("path", path.display())
        .hint("find out who made it, then remove it or close it, and try again"))
}

fn encode(bytes: &[u8], plain: &str) -> String {
    let mut text = String::new();
    for byte in bytes {
        let letter = char::from(*byte);
        if letter.is_ascii_alphanumeric() || "-._~".contains(letter) || (letter.is_ascii() && plain.contains(letter)) {
            text.push(letter);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A port that nobody listens on now, outside the range that the kernel hands out to clients, starting at a place of its own.
fn free_port(seed: u64) -> Result<u16> {
    let ephemeral = ephemeral_range();
    let candidates: Vec<u16> = (20_000..30_000).chain(10_000..20_000).filter(|port| !ephemeral.contains(port)).collect();
    let length = u64::try_from(candidates.len()).unwrap_or(u64::MAX).clamp(1, 10_000);
    for step in 0..length.min(1_000) {
        let index = usize::try_from((seed.wrapping_add(step)) % length).unwrap_or(0);
        if let Some(port) = candidates.get(index).filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, **port)).is_ok()) {
            return Ok(*port);
        }
    }
    Err(Error::new(ErrorKind::Unsupported, "no local TCP port outside the ephemeral range is free").hint("use the socket form of the URL"))
}

fn ephemeral_range() -> Range<u16> {
    let text = sys::fs::read(Path::new("/proc/sys/net/ipv4/ip_local_port_range")).unwrap_or_default();
    let numbers: Vec<u16> = String::from_utf8_lossy(&text).split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [low, high] => *low..high.saturating_add(1),
        _ => 32_768..u16::MAX,
    }
}

fn first_eight(bytes: &[u8; 32]) -> [u8; 8] {
    bytes.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
