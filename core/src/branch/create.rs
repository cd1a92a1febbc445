//! Making a branch from nothing, from a command, from a data folder, or from another server's dump.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::layout::ClusterRecord;
use super::making::{Making, Plan};
use super::program::Listener;
use super::shared::{Shared, invalid};
use super::{Branch, datadir, name, program, url};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Credentials, InitOptions, Installation, Limits, Role, SafeMode, Server, Sql, UrlForm};
use crate::progress::Control;

/// What a new branch holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The empty database.
    Empty,
    /// What this command (program and arguments) puts in, run in `folder` with `DATABASE_URL` and PG* set.
    Seed {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Working directory.
        folder: PathBuf,
    },
    /// A copy of the cluster in a stopped data folder, which is only read.
    DataDir(PathBuf),
    /// What pg_dump reads from another server, of the same or an older major. The URL's password is never put in an argument.
    Url(String),
}

/// How to make a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Major version; the best installation where not said (for a data folder: the one that fits it).
    pub major: Option<u32>,
    /// Database of the URL; `app` where not said (for `DataDir`: the first that is not a template; for `Url`: the URL's).
    pub database: Option<String>,
    /// Role of the URL; `app` where not said (for `DataDir`: the database's owner; for `Url`: the URL's).
    pub user: Option<String>,
    /// Also a local TCP port.
    pub tcp: bool,
    /// How long its server runs at each start.
    pub limits: Limits,
    /// `name=value` settings of its own.
    pub settings: Vec<(String, String)>,
}

/// Database and role where nobody says others.
const DEFAULT: &str = "app";

pub(super) fn create(
    shared: &Arc<Shared>,
    name: &str,
    origin: &Origin,
    options: &CreateOptions,
    told: Option<&mut Listener<'_>>,
    control: &Control,
) -> Result<Branch> {
    for (what, given) in [("database", &options.database), ("role", &options.user)] {
        if let Some(given) = given {
            check_identifier(what, given)?;
        }
    }
    let off = if matches!(origin, Origin::DataDir(_)) { super::settings::off_in_forks() } else { Vec::new() };
    name::check_settings(name, &options.settings, &off)?;
    match origin {
        Origin::Empty => fresh(shared, name, None, options, control),
        Origin::Seed { command, folder } => fresh(shared, name, Some(Seed { command, folder, told }), options, control),
        Origin::DataDir(data) => datadir::create(shared, name, data, options, control),
        Origin::Url(source) => url::create(shared, name, source, options, control),
    }
}

struct Seed<'a, 'b> {
    command: &'a [OsString],
    folder: &'a Path,
    told: Option<&'a mut Listener<'b>>,
}

fn fresh(shared: &Arc<Shared>, name: &str, seed: Option<Seed<'_, '_>>, options: &CreateOptions, control: &Control) -> Result<Branch> {
    if let Some(Seed { command, folder, .. }) = &seed {
        if command.is_empty() {
            return Err(invalid("the seed command is empty").hint("give a program, such as --seed 'psql -f schema.sql'"));
        }
        if !folder.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, format!("the seed's folder {} does not exist", folder.display()))
                .with("path", folder.display()));
        }
    }
    let installation = postgres::choose(&shared.environment, options.major)?;
    let origin = if seed.is_some() { "seed" } else { "empty" };
    let making = Making::begin(shared, &plan(name, origin, &installation, options), control)?;
    let init = InitOptions::default();
    let credentials =
        credentials(&init.superuser, options.user.as_deref().unwrap_or(DEFAULT), options.database.as_deref().unwrap_or(DEFAULT))?;
    initialise(&making, &installation, &init, control)?;
    let outside = |_: &Server| match seed {
        Some(seed) => run_seed(&making, seed, &credentials, control),
        None => Ok(()),
    };
    making.first_start(&credentials, |_| Ok(()), outside, control)?;
    let record = cluster_record(&making, origin)?;
    making.finish(&credentials, &record, Vec::new())
}

/// What the origins have in common.
pub(super) fn plan<'a>(name: &'a str, origin: &str, installation: &'a Installation, options: &'a CreateOptions) -> Plan<'a> {
    Plan {
        name,
        origin: origin.to_owned(),
        parent: None,
        installation,
        fork: false,
        keep_replication: false,
        safe: SafeMode::Off,
        disjoint: false,
        tcp: options.tcp,
        limits: options.limits,
        settings: &options.settings,
    }
}

/// New random passwords; one role where both names are the same.
pub(super) fn credentials(superuser: &str, user: &str, database: &str) -> Result<Credentials> {
    let ours = Role::random(superuser)?;
    let url = if user == superuser { ours.clone() } else { Role::random(user)? };
    Ok(Credentials { ours, url, database: database.to_owned() })
}

/// initdb in the new cluster's folder.
pub(super) fn initialise(making: &Making, installation: &Installation, init: &InitOptions, control: &Control) -> Result<()> {
    control.report("initialise the cluster", 0, 1, crate::progress::Unit::Items);
    postgres::initdb(installation, making.shared.run_as()?, &making.cluster_folder().data(), init, control)
}

/// Makes a role that can log in, where it is missing.
pub(super) fn ensure_role(session: &mut Sql, user: &str) -> Result<()> {
    if session.rows(&format!("select 1 from pg_catalog.pg_roles where rolname = {}", Sql::literal(user)))?.is_empty() {
        session.run(&format!("create role {} login", Sql::identifier(user)))?;
    }
    Ok(())
}

/// What is known of the new cluster after its clean stop.
pub(super) fn cluster_record(making: &Making, origin: &str) -> Result<ClusterRecord> {
    let mut record = ClusterRecord::new(&making.cluster, origin);
    record.mark = Some(postgres::mark_stopped(&making.cluster_folder().data())?);
    Ok(record)
}

fn run_seed(making: &Making, seed: Seed<'_, '_>, credentials: &Credentials, control: &Control) -> Result<()> {
    let Seed { command, folder, told } = seed;
    let [program, arguments @ ..] = command else { return Ok(()) };
    control.report("seed", 0, 1, crate::progress::Unit::Items);
    let address = &making.record.address;
    let mut child = Command::new(program);
    child
        .args(arguments)
        .current_dir(folder)
        .env("DATABASE_URL", address.url(UrlForm::Socket, &credentials.url, &credentials.database)?)
        .env("PGHOST", &address.public)
        .env("PGPORT", "5432")
        .env("PGUSER", &credentials.url.name)
        .env("PGPASSWORD", &credentials.url.password)
        .env("PGDATABASE", &credentials.database);
    for variable in ["PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE", "PGOPTIONS", "PGPASSFILE", "PGSSLMODE"] {
        child.env_remove(variable);
    }
    let what = format!("the seed of branch {}", making.record.name);
    program::run_told(&what, &mut child, making.folder.path(), told, control).map_err(|error| {
        error.with("branch", &making.record.name).hint("nothing was left; make the seed succeed and create the branch again")
    })?;
    Ok(())
}

fn check_identifier(what: &str, given: &str) -> Result<()> {
    if given.is_empty() || given.len() > 63 || given.contains(char::is_control) {
        return Err(invalid(format!("{given:?} cannot name a {what}")).hint("use 1 to 63 bytes without control characters"));
    }
    Ok(())
}
