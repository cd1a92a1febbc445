//! A branch from what pg_dump reads of another server.

use std::fs::File;
use std::process::Command;
use std::sync::Arc;

use super::create::{cluster_record, ensure_role, initialise, plan};
use super::making::Making;
use super::program::Streams;
use super::shared::Shared;
use super::source_url::SourceUrl;
use super::{Branch, CreateOptions, program};
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::{self, Credentials, InitOptions, Installation, Server, Sql};
use crate::progress::{Control, Unit};

/// Between the columns of an answer.
const SEPARATOR: &str = "\u{1f}";

/// Settings whose values are lists of identifiers.
const LISTS: &[&str] = &["local_preload_libraries", "search_path", "session_preload_libraries", "temp_tablespaces"];

/// What the source says of itself.
struct Source {
    url: SourceUrl,
    major: u32,
    database: String,
    user: String,
    superuser: String,
    extensions: Vec<String>,
    shape: Shape,
    /// ALTER DATABASE ... SET: role (or none), `name=value`.
    settings: Vec<(Option<String>, String)>,
    comment: Option<String>,
    /// GRANT ... ON DATABASE; none where it never was changed.
    grants: Option<Vec<Grant>>,
    subscriptions: Vec<String>,
}

/// One privilege on the database.
struct Grant {
    privilege: String,
    /// Empty for PUBLIC.
    grantee: String,
    grantable: bool,
}

/// What the database is like.
struct Shape {
    owner: String,
    encoding: String,
    collate: String,
    ctype: String,
}

/// Of the environment's variables for libpq, those that would lead our programs elsewhere.
const REMOVED: &[&str] = &[
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
    "PGPASSWORD",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGOPTIONS",
    "PGCLIENTENCODING",
];

pub(super) fn create(shared: &Arc<Shared>, name: &str, url: &str, options: &CreateOptions, control: &Control) -> Result<Branch> {
    let url = SourceUrl::parse(url)?;
    let source = ask(shared, url, options, control)?;
    let installation = installation_for(shared, &source, options)?;
    let missing = missing_extensions(&source, &installation)?;
    if !missing.is_empty() {
        return Err(Error::new(
            ErrorKind::PostgresMismatch,
            format!(
                "the source uses extensions that Postgres {} in {} lacks: {}",
                installation.version,
                installation.bin.display(),
                missing.join(", ")
            ),
        )
        .with("extensions", missing.join(", "))
        .hint("install their packages for this Postgres and try again"));
    }
    let making = Making::begin(shared, &plan(name, "url", &installation, options), control)?;
    let init = InitOptions { superuser: source.superuser.clone(), ..InitOptions::default() };
    let database = options.database.as_deref().unwrap_or(&source.database);
    let user = options.user.as_deref().unwrap_or(&source.user);
    let credentials = super::create::credentials(&init.superuser, user, database)?;
    initialise(&making, &installation, &init, control)?;
    let mut warnings = Vec::new();
    let transfer = Transfer { making: &making, source: &source, installation: &installation, credentials: &credentials };
    let dump = transfer.dump(&mut warnings, control)?;
    // The URL's role and database come with the dump: until then the server knows only our own role.
    let before = Credentials { url: credentials.ours.clone(), database: "postgres".to_owned(), ..credentials.clone() };
    making.first_start(&before, |server| transfer.restore(server, &dump, &mut warnings, control), |_| Ok(()), control)?;
    making.first_start(&credentials, |_| Ok(()), |_| Ok(()), control)?;
    let record = cluster_record(&making, "url")?;
    making.finish(&credentials, &record, warnings)
}

/// A client program that runs as the caller, whose URL it is; the password comes by the environment.
pub(super) fn client(installation: &Installation, name: &str, password: Option<&str>) -> Result<Command> {
    let mut command = Command::new(installation.program(name)?);
    for variable in REMOVED {
        command.env_remove(variable);
    }
    command.env("LC_MESSAGES", "C").env("PGCONNECT_TIMEOUT", "20").env("PGAPPNAME", "forklift");
    if let Some(libraries) = &installation.library_path {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    Ok(command)
}

fn ask(shared: &Shared, url: SourceUrl, options: &CreateOptions, control: &Control) -> Result<Source> {
    shared.ensure_root()?;
    let installation = match postgres::choose(&shared.environment, options.major) {
        Ok(chosen) if chosen.program("psql").is_ok() => chosen,
        Ok(chosen) => with_clients(shared).unwrap_or(chosen),
        Err(error) => return Err(error),
    };
    let query = |sql: &str| -> Result<Vec<String>> {
        let output = program::anonymous(&shared.root)?;
        let mut command = client(&installation, "psql", url.password.as_deref())?;
        command.args(["-X", "-A", "-t", "-w", "-F", SEPARATOR, "-v", "ON_ERROR_STOP=1", "-c", sql, "-d"]).arg(&url.without_password);
        program::run("psql", &mut command, &shared.root, &Streams { output: Some(&output), input: None }, control).map_err(|error| {
            error.while_doing(format!("ask {}", url.shown())).hint("check the URL, its password and that the server runs")
        })?;
        Ok(program::content(&output)?.lines().map(str::to_owned).collect())
    };
    let facts = query(
        "select current_setting('server_version_num'), current_database(), current_user, \
         coalesce((select rolname from pg_catalog.pg_roles where oid = 10), 'forklift'), \
         pg_catalog.pg_get_userbyid(datdba), pg_catalog.pg_encoding_to_char(encoding), datcollate, datctype \
         from pg_catalog.pg_database where datname = current_database()",
    )?;
    let line = facts.first().map(String::as_str).unwrap_or_default();
    let facts: Vec<String> = line.split(SEPARATOR).map(str::to_owned).collect();
    let Ok([number, database, user, superuser, owner, encoding, collate, ctype]) = <[String; 8]>::try_from(facts) else {
        return Err(Error::new(ErrorKind::Sql, format!("{} gave an answer that is not understood", url.shown())));
    };
    let number: u32 = number.parse().unwrap_or(0);
    let extensions = query("select extname from pg_catalog.pg_extension order by 1")?;
    // In hexadecimal, as values may hold anything.
    let settings = query(
        "select coalesce(r.rolname, ''), encode(convert_to(one, 'UTF8'), 'hex') from pg_catalog.pg_db_role_setting s \
         left join pg_catalog.pg_roles r on r.oid = s.setrole cross join unnest(s.setconfig) as one \
         where s.setdatabase = (select oid from pg_catalog.pg_database where datname = current_database())",
    )?;
    let settings = settings
        .iter()
        .filter_map(|line| line.split_once(SEPARATOR))
        .filter_map(|(role, hex)| Some(((!role.is_empty()).then(|| role.to_owned()), unhex(hex)?)));
    let (settings, shape) = (settings.collect(), Shape { owner, encoding, collate, ctype });
    let texts = |sql: &str| -> Result<Vec<String>> { Ok(query(sql)?.iter().filter_map(|line| unhex(line)).collect()) };
    let comment = texts(
        "select pg_catalog.encode(pg_catalog.convert_to(pg_catalog.shobj_description(oid, 'pg_database'), 'UTF8'), 'hex') \
         from pg_catalog.pg_database where datname = pg_catalog.current_database()",
    )?;
    let subscriptions = texts(
        "select pg_catalog.encode(pg_catalog.convert_to(subname, 'UTF8'), 'hex') from pg_catalog.pg_subscription \
         where subdbid = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()) order by subname",
    )?;
    // A first row says whether there is a list at all: one that is empty is not the same as none.
    let grants = query(
        "select '', '', 'f' from pg_catalog.pg_database where datname = pg_catalog.current_database() and datacl is not null \
         union all select a.privilege_type, case a.grantee when 0 then '' else \
         pg_catalog.encode(pg_catalog.convert_to(pg_catalog.pg_get_userbyid(a.grantee), 'UTF8'), 'hex') end, a.is_grantable::text \
         from pg_catalog.pg_database d cross join pg_catalog.aclexplode(d.datacl) a where d.datname = pg_catalog.current_database()",
    )?;
    let rows = grants.iter().filter_map(|line| {
        let mut columns = line.split(SEPARATOR);
        let (privilege, grantee, grantable) = (columns.next()?.to_owned(), unhex(columns.next()?)?, columns.next()? == "true");
        (!privilege.is_empty()).then_some(Grant { privilege, grantee, grantable })
    });
    let grants = (!grants.is_empty()).then(|| rows.collect());
    let (major, comment) = (number / 10000, comment.into_iter().next().filter(|comment| !comment.is_empty()));
    Ok(Source { url, major, database, user, superuser, extensions, shape, settings, comment, grants, subscriptions })
}

fn unhex(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}

fn with_clients(shared: &Shared) -> Option<Installation> {
    postgres::find(&shared.environment)
        .0
        .into_iter()
        .find(|one| ["psql", "pg_dump", "pg_dumpall", "pg_restore"].iter().all(|name| one.program(name).is_ok()))
}

/// Of several that can take such a dump: the one that was named, else one of the source's major version, else the next newer.
fn best(all: &[Installation], source: u32, wanted: Option<u32>) -> Option<&Installation> {
    let fits = |one: &&Installation| one.version.major >= source && wanted.is_none_or(|major| one.version.major == major);
    match all.iter().find(|one| one.origin == postgres::Origin::Explicit) {
        Some(named) => Some(named).filter(fits),
        None => all.iter().filter(fits).min_by_key(|one| one.version.major),
    }
}

fn installation_for(shared: &Shared, source: &Source, options: &CreateOptions) -> Result<Installation> {
    let all = postgres::find(&shared.environment).0;
    if let Some(found) = best(&all, source.major, options.major) {
        return Ok(found.clone());
    }
    if let Some(named) = all.iter().find(|one| one.origin == postgres::Origin::Explicit) {
        let asked = options.major.map_or_else(String::new, |major| format!(", Postgres {major} was asked for"));
        return Err(Error::new(
            ErrorKind::PostgresMismatch,
            format!(
                "{} is of Postgres {}{asked}, and the installation that was named is {} in {}",
                source.url.shown(),
                source.major,
                named.version,
                named.bin.display()
            ),
        )
        .hint(format!("name an installation of Postgres {} or newer, or none", options.major.unwrap_or(source.major))));
    }
    let asked = match options.major {
        Some(major) => format!("Postgres {major} was asked for"),
        None => match all.iter().map(|one| one.version.major).max() {
            Some(newest) => format!("the newest installation is {newest}"),
            None => "there is no installation".to_owned(),
        },
    };
    Err(Error::new(ErrorKind::PostgresMismatch, format!("{} is of Postgres {}, and {asked}", source.url.shown(), source.major))
        .hint(format!("install Postgres {0} or newer with `forklift postgres install {0}`", source.major)))
}

fn missing_extensions(source: &Source, installation: &Installation) -> Result<Vec<String>> {
    let offered = installation.extensions()?;
    Ok(source.extensions.iter().filter(|name| !offered.iter().any(|one| one.name == **name)).cloned().collect())
}

/// One dump and its restore.
struct Transfer<'a> {
    making: &'a Making,
    source: &'a Source,
    installation: &'a Installation,
    credentials: &'a Credentials,
}

/// What was read of the source, in nameless files.
struct Dump {
    /// Absent where the source does not let its roles be read.
    roles: Option<File>,
    database: File,
}

impl Transfer<'_> {
    fn dump(&self, warnings: &mut Vec<String>, control: &Control) -> Result<Dump> {
        let (password, url, folder) = (self.source.url.password.as_deref(), &self.source.url.without_password, self.making.folder.path());
        control.report("dump", 0, 2, Unit::Items);
        let mut command = client(self.installation, "pg_dumpall", password)?;
        command.args(["--roles-only", "--no-role-passwords", "--no-password", "--dbname"]).arg(url);
        let roles = program::anonymous(folder)?;
        let roles = match program::run("pg_dumpall", &mut command, folder, &Streams { output: Some(&roles), input: None }, control) {
            Ok(_) => Some(roles),
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                warnings.push(format!(
                    "the roles of the source could not be read ({error}); everything belongs to {}",
                    self.credentials.url.name
                ));
                None
            }
        };
        control.report("dump", 1, 2, Unit::Items);
        let mut command = client(self.installation, "pg_dump", password)?;
        command.args(["--format=custom", "--compress=0", "--no-password", "--no-subscriptions", "--dbname"]).arg(url);
        let database = program::anonymous(folder)?;
        program::run("pg_dump", &mut command, folder, &Streams { output: Some(&database), input: None }, control)?;
        Ok(Dump { roles, database })
    }

    /// Puts roles and database into the new cluster, before anybody can connect to it.
    fn restore(&self, server: &Server, dump: &Dump, warnings: &mut Vec<String>, control: &Control) -> Result<()> {
        let folder = self.making.folder.path();
        if let Some(roles) = &dump.roles {
            let mut psql = self.local("psql", server)?;
            psql.args(["-X", "-q", "-d", "postgres"]);
            let said = program::run("psql", &mut psql, folder, &Streams { input: Some(roles), output: None }, control)?;
            // Our superuser has the name of the source's, and the URL's role may be there.
            warnings.extend(
                said.lines()
                    .filter(|line| line.contains("ERROR:") && !line.contains("already exists"))
                    .map(|line| format!("roles: {line}")),
            );
        }
        ensure_role(&mut server.connect("postgres")?, &self.credentials.url.name)?;
        self.make_database(server)?;
        control.report("restore", 0, 1, Unit::Items);
        let mut restore = self.local("pg_restore", server)?;
        restore.args(["--exit-on-error", "--no-tablespaces", "--dbname"]).arg(&self.credentials.database);
        if dump.roles.is_none() {
            restore.args(["--no-owner", "--no-privileges", "--role"]).arg(&self.credentials.url.name);
        }
        program::run("pg_restore", &mut restore, folder, &Streams { input: Some(&dump.database), output: None }, control)?;
        self.put_settings(server, warnings)?;
        self.put_properties(server, dump.roles.is_some(), warnings)
    }

    /// Comment and privileges of the database itself; and what does not come with a dump, in words.
    fn put_properties(&self, server: &Server, with_roles: bool, warnings: &mut Vec<String>) -> Result<()> {
        let mut session = server.connect("postgres")?;
        let (name, database) = (&self.credentials.database, Sql::identifier(&self.credentials.database));
        if let Some(comment) = &self.source.comment {
            session.run(&format!("comment on database {database} is {}", Sql::literal(comment)))?;
        }
        if let Some(grants) = self.source.grants.as_ref().filter(|_| with_roles) {
            let owner = session.value(&format!(
                "select pg_catalog.pg_get_userbyid(datdba) from pg_catalog.pg_database where datname = {}",
                Sql::literal(name)
            ))?;
            session.run(&format!("revoke all on database {database} from public, {}", Sql::identifier(&owner)))?;
            for Grant { privilege, grantee, grantable } in grants {
                let to = if grantee.is_empty() { "public".to_owned() } else { Sql::identifier(grantee) };
                let option = if *grantable { " with grant option" } else { "" };
                if let Err(error) = session.run(&format!("grant {privilege} on database {database} to {to}{option}")) {
                    warnings.push(format!("{privilege} on database {name} was not granted to {to}: {error}"));
                }
            }
        }
        let known = [&self.credentials.url.name, &self.credentials.ours.name].map(|name| Sql::literal(name)).join(", ");
        let logins =
            session.rows(&format!("select rolname from pg_catalog.pg_roles where rolcanlogin and rolname not in ({known}) order by 1"))?;
        let logins: Vec<String> = logins.into_iter().flatten().flatten().collect();
        if !logins.is_empty() {
            warnings.push(format!("passwords of roles are not carried: {} cannot log in until they are given new ones", logins.join(", ")));
        }
        if !self.source.subscriptions.is_empty() {
            warnings.push(format!("subscriptions are not carried: {}", self.source.subscriptions.join(", ")));
        }
        Ok(())
    }

    /// What ALTER DATABASE had set, which an archive holds for its own database name only.
    fn put_settings(&self, server: &Server, warnings: &mut Vec<String>) -> Result<()> {
        let mut session = server.connect("postgres")?;
        let database = Sql::identifier(&self.credentials.database);
        for (role, setting) in &self.source.settings {
            let Some((name, value)) = setting.split_once('=') else { continue };
            // These are lists, quoted part by part already.
            let value = if LISTS.contains(&name) { value.to_owned() } else { Sql::literal(value) };
            let quoted: Vec<String> = name.split('.').map(Sql::identifier).collect();
            let of = role
                .as_ref()
                .map_or_else(|| format!("database {database}"), |role| format!("role {} in database {database}", Sql::identifier(role)));
            if let Err(error) = session.run(&format!("alter {of} set {} to {value}", quoted.join("."))) {
                warnings.push(format!("the setting {name} of database {} was not taken over: {error}", self.credentials.database));
            }
        }
        Ok(())
    }

    /// The database with the source's encoding and locale, owned as there.
    fn make_database(&self, server: &Server) -> Result<()> {
        let shape = &self.source.shape;
        let mut session = server.connect("postgres")?;
        let exists = |session: &mut Sql, catalog: &str, column: &str, name: &str| -> Result<bool> {
            Ok(!session.rows(&format!("select 1 from pg_catalog.{catalog} where {column} = {}", Sql::literal(name)))?.is_empty())
        };
        if !exists(&mut session, "pg_database", "datname", &self.credentials.database)? {
            let owner = if exists(&mut session, "pg_roles", "rolname", &shape.owner)? { &shape.owner } else { &self.credentials.url.name };
            session.run(&format!(
                "create database {} owner {} template template0 encoding {} lc_collate {} lc_ctype {}",
                Sql::identifier(&self.credentials.database),
                Sql::identifier(owner),
                Sql::literal(&shape.encoding),
                Sql::literal(&shape.collate),
                Sql::literal(&shape.ctype),
            ))?;
        }
        Ok(())
    }

    fn local(&self, name: &str, server: &Server) -> Result<Command> {
        let role = &self.credentials.ours;
        let mut command = client(self.installation, name, Some(&role.password))?;
        command.args(["--no-password", "--host"]).arg(&server.address().private).args(["--port", "5432", "--username"]).arg(&role.name);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{Origin, Version};

    #[test]
    fn the_installation_that_was_named_wins_where_it_can_take_the_dump() {
        let of = |major: u32, origin: Origin| Installation {
            bin: format!("/{major}").into(),
            library_path: None,
            share: "/".into(),
            version: Version { major, minor: 1 },
            origin,
        };
        let both = [of(17, Origin::Explicit), of(18, Origin::Distribution), of(15, Origin::Distribution)];
        let major = |found: Option<&Installation>| found.map(|one| one.version.major);
        assert_eq!(major(best(&both, 15, None)), Some(17));
        assert_eq!(major(best(&both, 18, None)), None);
        assert_eq!(major(best(&both, 15, Some(15))), None);
        assert_eq!(major(best(&both[1..], 14, None)), Some(15));
        assert_eq!(major(best(&both[1..], 16, None)), Some(18));
    }
}
