//! A branch from the data folder of a stopped cluster, which is only read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::conf;
use super::create::{cluster_record, credentials, plan};
use super::making::{Making, Plan};
use super::shared::Shared;
use super::{Branch, CreateOptions, layout, libraries, settings, space};
use crate::clone::Method;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, ClusterFacts, Credentials, Server, ServerStatus, Sql, TreeSink};
use crate::progress::Control;
use crate::sys;
use crate::sys::fs::Syncs;

/// What a carried configuration must not say: it is forklift's, or it was the source's place.
const NOT_CARRIED: &[&str] = &["config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses", "port"];

pub(super) fn create(shared: &Arc<Shared>, name: &str, source: &Path, options: &CreateOptions, control: &Control) -> Result<Branch> {
    let source = source.canonicalize().map_err(|error| Error::io("open", source, error))?;
    let major = major_of(&source)?;
    if let Some(wanted) = options.major.filter(|wanted| *wanted != major) {
        return Err(
            mismatch(&source, format!("is of Postgres {major}, not of {wanted}")).hint(format!("say {major}, or leave the version out"))
        );
    }
    let installation = postgres::choose(&shared.environment, Some(major))
        .map_err(|error| error.while_doing(format!("{} is of Postgres {major}", source.display())).with("path", source.display()))?;
    if shared.environment.get("FORKLIFT_POSTGRES").is_some() && installation.origin != postgres::Origin::Explicit {
        return Err(other_installation(shared, &source, major));
    }
    refuse_running(&source)?;
    let mut warnings = ClusterFacts::of_files(&source, &installation)?.check(&installation)?;
    libraries::check(&configuration_of(&source)?, &installation)?;
    let plan = Plan { fork: true, ..plan(name, "datadir", &installation, options) };
    let making = Making::begin(shared, &plan, control)?;
    let data = making.cluster_folder().data();
    copy(&making, &source, control)?;
    carry_configuration(&source, &data, &mut warnings)?;
    fit_to_machine(&data, &mut warnings)?;
    // Slots and signal files are not copied.
    let mut off = [settings::switched_off(&data, &[], None)?, settings::switched_off(&source, &[], None)?].concat();
    off.sort();
    off.dedup();
    // Before the first look into it: a standby's signal file would keep the single-user backend from running.
    postgres::prepare_copy(&data, false)?;
    let run_as = shared.run_as()?;
    run_as.give(&data)?;
    let superuser = postgres::bootstrap_superuser(&installation, run_as, &data)?;
    run_as.give(&data)?;
    let (credentials, found) = adopt(&making, &superuser, options, control)?;
    off.extend(found.subscriptions);
    if !off.is_empty() {
        warnings.push(format!("switched off in it: {}", off.join(", ")));
    }
    if !found.prepared.is_empty() {
        warnings.push(format!("it still holds prepared transactions: {}", found.prepared.join(", ")));
    }
    let record = cluster_record(&making, "datadir")?;
    making.finish(&credentials, &record, warnings)
}

fn major_of(data: &Path) -> Result<u32> {
    let file = data.join("PG_VERSION");
    let text = sys::fs::read_optional(&file)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("{} is not a data folder: it has no PG_VERSION", data.display()))
            .with("path", data.display())
            .hint("name the folder that the server was started with (PGDATA)")
    })?;
    let text = String::from_utf8_lossy(&text);
    text.trim().parse().map_err(|_| mismatch(data, format!("has the version {:?}, which is not one of 13 to 18", text.trim())))
}

fn mismatch(data: &Path, why: String) -> Error {
    Error::new(ErrorKind::PostgresMismatch, format!("{} {why}", data.display())).with("path", data.display())
}

fn other_installation(shared: &Shared, data: &Path, major: u32) -> Error {
    let named = postgres::find(&shared.environment).0.into_iter().find(|one| one.origin == postgres::Origin::Explicit);
    let named = named.map_or_else(|| "another".to_owned(), |one| format!("{} in {}", one.version, one.bin.display()));
    mismatch(data, format!("is of Postgres {major}, and the installation that was named is {named}"))
        .hint(format!("name an installation of Postgres {major}, or none"))
}

fn refuse_running(data: &Path) -> Result<()> {
    let nowhere = data.join("forklift.run");
    let pids = match postgres::status(&nowhere, data)? {
        ServerStatus::Stopped => return Ok(()),
        ServerStatus::Running { pid, .. } | ServerStatus::Orphaned { pid } | ServerStatus::Foreign { pid } => vec![pid],
        ServerStatus::InTransition { pids } => pids,
    };
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    Err(Error::new(ErrorKind::Busy, format!("the server of {} is running (pid {})", data.display(), list.join(", ")))
        .with("path", data.display())
        .with("pid", list.join(", "))
        .hint("stop that server, or copy it while it runs by its URL"))
}

fn copy(making: &Making, source: &Path, control: &Control) -> Result<()> {
    let data = making.cluster_folder().data();
    let mut sink = TreeSink::new(source, &data)?;
    let needed = if sink.method() == Method::Copy { layout::bytes_on_disk(source) } else { 0 };
    space::require(making.folder.path(), needed)?;
    postgres::copy_stopped(source, &mut sink, control).map(drop)
}

/// Debian keeps the configuration outside the data folder: what it says comes into the copy, without what names places.
fn carry_configuration(source: &Path, data: &Path, warnings: &mut Vec<String>) -> Result<()> {
    let target = data.join("postgresql.conf");
    let own = source.join("postgresql.conf");
    let found = match (target.exists(), conf::leaves(&own, source)?) {
        (true, false) => return Ok(()),
        // What it includes from outside is made part of the copy's.
        (true, true) => Some(own),
        (false, _) => outside_configuration(source),
    };
    let text = match &found {
        Some(file) => {
            let mut settings = conf::of_file(file)?;
            settings.retain(|name, _| !NOT_CARRIED.contains(&name.as_str()));
            warnings.push(format!("its configuration was carried from {}", file.display()));
            conf::write(&settings, &format!("carried from {}", file.display()))
        }
        None => {
            warnings
                .push(format!("{} has no postgresql.conf and none was found for it: the copy runs with the defaults", source.display()));
            conf::write(&conf::Settings::new(), "the source's configuration lay elsewhere and was not found")
        }
    };
    sys::fs::replace(&target, text.as_bytes(), 0o600, &Syncs::new())
}

/// What the source is configured with, wherever its file lies.
fn configuration_of(source: &Path) -> Result<conf::Settings> {
    let mut settings = conf::Settings::new();
    if !source.join("postgresql.conf").exists()
        && let Some(file) = outside_configuration(source)
    {
        settings = conf::of_file(&file)?;
    }
    settings.extend(conf::of_data(source)?);
    Ok(settings)
}

/// Settings of the configuration alone that name a locale. Those that this machine does not know keep a server from starting even
/// where its command line says another, so the copy's own files say `C`: the last line wins.
fn fit_to_machine(data: &Path, warnings: &mut Vec<String>) -> Result<()> {
    const LOCALES: &[&str] = &["lc_messages", "lc_monetary", "lc_numeric", "lc_time"];
    let configured = conf::of_data(data)?;
    let mut lines = String::new();
    for (name, value) in LOCALES.iter().filter_map(|name| configured.get_key_value(*name)) {
        if !sys::locale::exists(value) {
            lines.push_str(&format!("{name} = 'C'\n"));
            warnings.push(format!("{name} is C in it, as this machine does not have the source's locale {value:?}"));
        }
    }
    if configured.get("huge_pages").is_some_and(|value| settings::insists(value)) {
        lines.push_str("huge_pages = 'try'\n");
        warnings.push("huge_pages is \"try\" in it, as a copy must not need those of its source".to_owned());
    }
    if lines.is_empty() {
        return Ok(());
    }
    let file = data.join("postgresql.auto.conf");
    let mut text = sys::fs::read_optional(&file)?.unwrap_or_default();
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(lines.as_bytes());
    sys::fs::replace(&file, &text, 0o600, &Syncs::new())
}

fn outside_configuration(source: &Path) -> Option<PathBuf> {
    let started_with = sys::fs::read_optional(&source.join("postmaster.opts")).ok().flatten().unwrap_or_default();
    let started_with = String::from_utf8_lossy(&started_with).into_owned();
    let named = started_with.split('"').find_map(|word| word.strip_prefix("config_file=").or_else(|| word.strip_prefix("--config_file=")));
    let debian = || {
        let cluster = source.file_name()?;
        let version = source.parent()?.file_name()?;
        Some(Path::new("/etc/postgresql").join(version).join(cluster).join("postgresql.conf"))
    };
    named.map(PathBuf::from).filter(|file| file.is_file()).or_else(|| debian().filter(|file| file.is_file()))
}

/// What only the running copy says of itself.
struct Found {
    prepared: Vec<String>,
    subscriptions: Vec<String>,
}

/// Finds the database and role of the URL in the running copy, which decides what the credentials are.
fn adopt(making: &Making, superuser: &str, options: &CreateOptions, control: &Control) -> Result<(Credentials, Found)> {
    let looking = credentials(superuser, superuser, "postgres")?;
    let look = |server: &Server| {
        let prepared = super::facts::session(server)?.rows("select gid from pg_catalog.pg_prepared_xacts order by 1")?;
        let prepared = prepared.into_iter().flatten().flatten().collect();
        Ok((find_database(server, options)?, Found { prepared, subscriptions: settings::subscriptions(server)? }))
    };
    let ((database, owner), told) = making.first_start(&looking, look, |_| Ok(()), control)?;
    let user = options.user.clone().unwrap_or(owner);
    let found = credentials(superuser, &user, &database)?;
    making.first_start(&found, |_| Ok(()), |_| Ok(()), control)?;
    Ok((found, told))
}

/// The database that was asked for, else the first that is not a template (`postgres` only where there is no other), and its owner.
fn find_database(server: &Server, options: &CreateOptions) -> Result<(String, String)> {
    let mut session = super::facts::session(server)?;
    let rows = session.rows(
        "select d.datname, r.rolname from pg_catalog.pg_database d join pg_catalog.pg_roles r on r.oid = d.datdba \
         where not d.datistemplate and d.datallowconn order by d.datname = 'postgres', d.oid",
    )?;
    let all: Vec<(String, String)> = rows
        .into_iter()
        .filter_map(|row| <[Option<String>; 2]>::try_from(row).ok())
        .filter_map(|[name, owner]| Some((name?, owner?)))
        .collect();
    let found = match &options.database {
        Some(wanted) => all.iter().find(|(name, _)| name == wanted),
        None => all.first(),
    };
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let (database, owner) = found.cloned().ok_or_else(|| {
        let wanted = options.database.as_deref().unwrap_or("postgres");
        Error::new(ErrorKind::NotFound, format!("the cluster has no database {wanted:?}; it has: {}", names.join(", ")))
            .hint("name one of those")
    })?;
    // The owner must be able to log in to be the URL's role.
    let sql = format!("select rolcanlogin from pg_catalog.pg_roles where rolname = {}", Sql::literal(&owner));
    let owner = if session.value(&sql)? == "t" { owner } else { session.value("select current_user")? };
    Ok((database, owner))
}
