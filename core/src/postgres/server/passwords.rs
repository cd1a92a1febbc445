//! Passwords of a new cluster, set on the private socket while nobody else can connect.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use postgres_protocol::password::scram_sha_256;
use rustix::process::Signal;

use super::super::{Address, Credentials, Role, RunAs, Sql, sql};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::process::{Handle, Identity};

/// How long the postmaster may take to load its access file again.
const RELOAD: Duration = Duration::from_secs(10);

/// The verifier is not the password, but it need not be in the log either.
const QUIET: &str = "SET log_statement = 'none'; SET log_min_error_statement = 'panic'; SET log_min_duration_statement = -1";

/// Who may connect: with `trust`, everybody who reaches the private socket; else only by password.
pub(super) fn write_access(run: &Path, run_as: &RunAs, trust: bool) -> Result<()> {
    let method = if trust { "trust" } else { "scram-sha-256" };
    write(&run.join("ident.conf"), "", run_as)?;
    write(&run.join("hba.conf"), &format!("local all all {method}\n"), run_as)
}

/// Gives our role and the URL's role their passwords, makes the latter (a superuser, as the database is for development) and
/// its database where they are missing, then closes the server to everybody without a password.
pub(super) fn set(address: &Address, credentials: &Credentials, run: &Path, run_as: &RunAs) -> Result<()> {
    let Credentials { ours, url, database } = credentials;
    if ours.name == url.name && ours.password != url.password {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("the role {} was given two passwords", ours.name)));
    }
    let mut sql = connect_somewhere(address, ours)?;
    sql.run(QUIET)?;
    let exists = format!("SELECT count(*) FROM pg_roles WHERE rolname = {}", Sql::literal(&url.name));
    let verb = if sql.value(&exists)? == "0" { "CREATE ROLE" } else { "ALTER ROLE" };
    let attributes = if verb == "CREATE ROLE" { "LOGIN SUPERUSER" } else { "LOGIN VALID UNTIL 'infinity'" };
    sql.run(&format!("{verb} {} WITH {attributes} PASSWORD {}", Sql::identifier(&url.name), verifier(url)))?;
    if ours.name != url.name {
        sql.run(&format!("ALTER ROLE {} WITH LOGIN PASSWORD {}", Sql::identifier(&ours.name), verifier(ours)))?;
    }
    let exists = format!("SELECT count(*) FROM pg_database WHERE datname = {}", Sql::literal(database));
    if sql.value(&exists)? == "0" {
        sql.run(&format!("CREATE DATABASE {} OWNER {}", Sql::identifier(database), Sql::identifier(&url.name)))?;
    }
    write_access(run, run_as, false)?;
    sql.run("SELECT pg_reload_conf()")?;
    drop(sql);
    wait_for_access(address, &ours.name, false)
}

/// Gives our role its login and password back where somebody took them: by an access file that asks for no password while
/// nobody else can connect. All other roles stay as they are.
pub(super) fn ensure_ours(postmaster: Identity, address: &Address, credentials: &Credentials, run: &Path, run_as: &RunAs) -> Result<()> {
    match connect_somewhere(address, &credentials.ours) {
        Err(error) if sql::is_login_refused(&error) => {}
        // Any other failure is that of whoever needs a session.
        _ => return Ok(()),
    }
    open_access(postmaster, address, credentials, run, run_as, true)?;
    let given = give_back(address, credentials);
    // Also after a failure: a server that asks for no password must not become public.
    open_access(postmaster, address, credentials, run, run_as, false)?;
    given
}

fn give_back(address: &Address, credentials: &Credentials) -> Result<()> {
    let Credentials { ours, url, .. } = credentials;
    // A role without LOGIN is let in by no access file.
    let mut sql = connect_somewhere(address, ours).or_else(|first| connect_somewhere(address, url).map_err(|_| first))?;
    sql.run(QUIET)?;
    sql.run(&format!("ALTER ROLE {} WITH LOGIN VALID UNTIL 'infinity' PASSWORD {}", Sql::identifier(&ours.name), verifier(ours)))
}

/// Writes the access file, and waits until the postmaster has it.
fn open_access(postmaster: Identity, address: &Address, credentials: &Credentials, run: &Path, run_as: &RunAs, trust: bool) -> Result<()> {
    write_access(run, run_as, trust)?;
    if let Some(handle) = Handle::open(postmaster) {
        handle.signal(Signal::HUP)?;
    }
    wait_for_access(address, &credentials.url.name, trust)
}

fn wait_for_access(address: &Address, role: &str, trust: bool) -> Result<()> {
    let begin = Instant::now();
    while asks_for_password(address, role)? == trust {
        if begin.elapsed() >= RELOAD {
            return Err(Error::new(ErrorKind::ServerStart, "the server did not load its access file again")
                .hint("see the log in the branch's run folder"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A session in whatever database there always is.
pub(super) fn connect_somewhere(address: &Address, role: &Role) -> Result<Sql> {
    match Sql::connect(address, role, "postgres") {
        Err(error) if error.sqlstate() == Some("3D000") => Sql::connect(address, role, "template1"),
        connected => connected,
    }
}

fn verifier(role: &Role) -> String {
    Sql::literal(&scram_sha_256(role.password.as_bytes()))
}

/// Begins a session and looks what the server asks for first: a password, or nothing (also for a role that may not log in).
fn asks_for_password(address: &Address, role: &str) -> Result<bool> {
    let path = address.private_socket();
    let failed = |source: std::io::Error| Error::io("ask the server at", &path, source);
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(RELOAD)).map_err(failed)?;
    let body = [b"\0\x03\0\0user\0", role.as_bytes(), b"\0database\0template1\0\0"].concat();
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    stream.write_all(&[&length.to_be_bytes(), body.as_slice()].concat()).map_err(failed)?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).map_err(failed)?;
    // `R`, a length, and the kind of authentication: 0 is none at all. Else an error, which comes after the authentication.
    Ok(matches!(answer, [b'R', _, _, _, _, rest @ ..] if rest != [0; 4]))
}

/// Not synced: written anew by every start.
fn write(path: &Path, text: &str, run_as: &RunAs) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    sys::fs::remove_file(&temporary)?;
    let mut file = sys::fs::create_new(&temporary, 0o600)?;
    file.write_all(text.as_bytes()).map_err(|source| Error::io("write", &temporary, source))?;
    run_as.give(&temporary)?;
    rustix::fs::rename(&temporary, path).map_err(|errno| Error::io("rename to", path, errno))
}
