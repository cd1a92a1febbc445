//! Taking what opens other systems out of a copy: passwords and addresses that are stored for foreign servers and subscriptions,
//! and keys of vaults.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::databases::{column, connectable, maintenance, visit};
use super::{Server, Sql};
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::fs::Syncs;

/// Files of a data folder that are keys or logins themselves.
const FILES: &[&str] = &["server.key", "root.key", ".pgpass", "recovery.conf", "recovery.done", "pgsodium_root.key"];

/// Words in the name of a foreign table's option whose value is not for others.
const SECRET: &str = "pass|pwd|secret|token|key|cred|auth|conn|url|uri|user";

/// Each clears one catalog of a database and gives the names of what it cleared: what kind, from where, what it becomes.
const CATALOGS: &[(&str, &str)] = &[
    (
        "user mapping",
        "UPDATE pg_catalog.pg_user_mapping m SET umoptions = NULL FROM pg_catalog.pg_foreign_server s \
         WHERE s.oid = m.umserver AND m.umoptions IS NOT NULL \
         RETURNING CASE m.umuser WHEN 0 THEN 'public' ELSE pg_catalog.pg_get_userbyid(m.umuser) END || ' on ' || s.srvname",
    ),
    ("foreign server", "UPDATE pg_catalog.pg_foreign_server SET srvoptions = NULL WHERE srvoptions IS NOT NULL RETURNING srvname"),
    (
        "foreign data wrapper",
        "UPDATE pg_catalog.pg_foreign_data_wrapper SET fdwoptions = NULL WHERE fdwoptions IS NOT NULL RETURNING fdwname",
    ),
];

/// Clears settings in the files of a copy that was not started yet, and removes keys; gives what was cleared. `names` are the
/// settings that hold what opens other systems.
///
/// # Errors
/// `Permission`, `NoSpace`, `Io`.
pub fn blank_files(data: &Path, names: &[&str]) -> Result<Vec<String>> {
    let mut blanked = Vec::new();
    let mut files = vec!["postgresql.conf".to_owned(), "postgresql.auto.conf".to_owned(), "pg_hba.conf".to_owned()];
    if data.join("conf.d").is_dir() {
        files.extend(sys::fs::names(&data.join("conf.d"))?.iter().filter_map(|name| Some(format!("conf.d/{}", name.to_str()?))));
    }
    for file in files {
        let path = data.join(&file);
        let Some(bytes) = (if path.is_file() { sys::fs::read_optional(&path)? } else { None }) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let held: Vec<&str> = text.lines().filter_map(|line| held_by(line, names)).collect();
        if held.is_empty() {
            continue;
        }
        let kept: String = text.lines().filter(|line| held_by(line, names).is_none()).map(|line| format!("{line}\n")).collect();
        let mode = std::fs::metadata(&path).map_err(|source| Error::io("examine", &path, source))?.permissions().mode() & 0o777;
        sys::fs::replace(&path, kept.as_bytes(), mode, &Syncs::new())?;
        blanked.extend(held.iter().map(|name| format!("{name} in {file}")));
    }
    for file in FILES.iter().filter(|file| data.join(file).symlink_metadata().is_ok_and(|metadata| !metadata.is_dir())) {
        sys::fs::remove_file(&data.join(file))?;
        blanked.push((*file).to_owned());
    }
    blanked.sort();
    blanked.dedup();
    Ok(blanked)
}

/// The setting in a line that holds what opens other systems; comments too, as they are often former lines.
fn held_by<'a>(line: &str, names: &[&'a str]) -> Option<&'a str> {
    let bare = line.trim_start_matches(['#', ' ', '\t']).to_ascii_lowercase();
    let set = |name: &&&str| {
        bare.strip_prefix(**name).is_some_and(|rest| {
            let value = rest.trim_start().trim_start_matches('=').trim_start();
            !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_') && !value.is_empty() && !value.starts_with("''")
        })
    };
    let of_access = ["ldapbindpasswd", "radiussecrets"].into_iter().find(|name| bare.contains(name));
    names.iter().find(set).copied().or(of_access)
}

/// Clears the same in the databases of a copy that nobody else can connect to yet; gives what was cleared. The databases that take
/// no connections are opened for it and closed again.
///
/// # Errors
/// `Sql`; the copy is then not fit for use.
pub fn blank_databases(server: &Server) -> Result<Vec<String>> {
    let mut session = maintenance(server)?;
    let mut blanked = Vec::new();
    let subscriptions = "UPDATE pg_catalog.pg_subscription SET subconninfo = '', subenabled = false, subslotname = NULL \
                         WHERE subconninfo <> '' RETURNING subname";
    let of_all = session.rows(subscriptions)?;
    for row in &of_all {
        blanked.push(format!("subscription {}", column(row, 0)?));
    }
    if !of_all.is_empty() {
        session.run("VACUUM (FULL) pg_catalog.pg_subscription")?;
    }
    let closed = session
        .rows("SELECT datname FROM pg_catalog.pg_database WHERE NOT datallowconn AND datname <> 'template0' AND datconnlimit <> -2")?;
    let closed: Vec<String> = closed.into_iter().flatten().flatten().collect();
    let allow = |session: &mut Sql, whether: bool| {
        closed.iter().try_for_each(|name| session.run(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS {whether}", Sql::identifier(name))))
    };
    allow(&mut session, true)?;
    let names = connectable(&mut session)?;
    visit(server, &names, |database, sql| {
        // Triggers of the source's own do not run for what is cleared.
        sql.run("SET session_replication_role = 'replica'; SET row_security = off")?;
        let mut found = blank_catalogs(sql)?;
        found.extend(blank_vaults(sql)?);
        blanked.extend(found.into_iter().map(|what| format!("{what} in database {database}")));
        Ok(())
    })?;
    allow(&mut session, false)?;
    Ok(blanked)
}

fn blank_catalogs(sql: &mut Sql) -> Result<Vec<String>> {
    let mut blanked = Vec::new();
    for (kind, statement) in CATALOGS {
        for row in sql.rows(statement)? {
            blanked.push(format!("{kind} {}", column(&row, 0)?));
        }
    }
    let tables = format!(
        "UPDATE pg_catalog.pg_foreign_table t SET ftoptions = \
         (SELECT pg_catalog.array_agg(o) FROM pg_catalog.unnest(t.ftoptions) o WHERE pg_catalog.split_part(o, '=', 1) !~* '{SECRET}') \
         WHERE EXISTS (SELECT FROM pg_catalog.unnest(t.ftoptions) o WHERE pg_catalog.split_part(o, '=', 1) ~* '{SECRET}') \
         RETURNING t.ftrelid::pg_catalog.regclass"
    );
    for row in sql.rows(&tables)? {
        blanked.push(format!("foreign table {}", column(&row, 0)?));
    }
    if !blanked.is_empty() {
        // What was there would go on lying in the pages.
        for catalog in ["pg_user_mapping", "pg_foreign_server", "pg_foreign_data_wrapper", "pg_foreign_table"] {
            sql.run(&format!("VACUUM (FULL) pg_catalog.{catalog}"))?;
        }
    }
    Ok(blanked)
}

/// Tables in which extensions keep secrets and the keys to them.
fn blank_vaults(sql: &mut Sql) -> Result<Vec<String>> {
    let mut blanked = Vec::new();
    for (schema, table) in [("vault", "secrets"), ("pgsodium", "key")] {
        let exists = format!(
            "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = '{schema}' AND c.relname = '{table}' AND c.relkind IN ('r', 'p')"
        );
        if sql.value(&exists)? == "0" {
            continue;
        }
        let count = sql.rows(&format!("DELETE FROM {schema}.{table} RETURNING 1"))?.len();
        if count > 0 {
            sql.run(&format!("VACUUM (FULL) {schema}.{table}"))?;
            blanked.push(format!("{count} rows of {schema}.{table}"));
        }
    }
    Ok(blanked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_logins_go_and_all_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let put = |name: &str, text: &str| sys::fs::replace(&data.join(name), text.as_bytes(), 0o600, &Syncs::new()).unwrap();
        let said = |name: &str| String::from_utf8(sys::fs::read(&data.join(name)).unwrap()).unwrap();
        put(
            "postgresql.auto.conf",
            "work_mem = '8MB'\nprimary_conninfo = 'host=x password=secret'\n#restore_command = 'fetch --token secret'\n\
             primary_conninfo_x = 1\nrestore_command = ''\n",
        );
        put("pg_hba.conf", "local all all trust\nhost all all 0/0 ldap ldapbindpasswd=\"secret\"\n");
        put("server.key", "secret");
        let blanked = blank_files(data, &["primary_conninfo", "restore_command"]).unwrap();
        let expected = [
            "ldapbindpasswd in pg_hba.conf",
            "primary_conninfo in postgresql.auto.conf",
            "restore_command in postgresql.auto.conf",
            "server.key",
        ];
        assert_eq!(blanked, expected);
        assert_eq!(said("postgresql.auto.conf"), "work_mem = '8MB'\nprimary_conninfo_x = 1\nrestore_command = ''\n");
        assert_eq!(said("pg_hba.conf"), "local all all trust\n");
        assert!(!data.join("server.key").exists());
        assert_eq!(blank_files(data, &["primary_conninfo"]).unwrap(), Vec::<String>::new());
    }
}
