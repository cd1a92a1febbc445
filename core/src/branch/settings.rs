//! What a branch's server is given on its command line, and what is switched off in a fork.

use std::path::Path;

use super::BranchRecord;
use super::conf::{self, Settings};
use super::shared::invalid;
use crate::error::Result;
use crate::postgres::{self, ControlFile, Installation, SafeMode, Server, Sql};

/// What reaches out of a fork, or waits for somebody outside: emptied on its command line for its life.
const REACHING_OUT: &[(&str, &str, u32)] = &[
    ("archive_mode", "off", 13),
    ("archive_command", "", 13),
    ("archive_library", "", 15),
    ("archive_cleanup_command", "", 13),
    ("restore_command", "", 13),
    ("recovery_end_command", "", 13),
    ("primary_conninfo", "", 13),
    ("primary_slot_name", "", 13),
    ("synchronous_standby_names", "", 13),
    ("max_logical_replication_workers", "0", 13),
    ("synchronized_standby_slots", "", 17),
    ("sync_replication_slots", "off", 17),
];

/// What a safe fork is told beside that: no extension's own process is started, and nothing that needs what is refused to it.
const SAFE: &[(&str, &str, u32)] = &[
    ("max_worker_processes", "0", 13),
    // Shared files of the machine are not its own.
    ("dynamic_shared_memory_type", "mmap", 13),
    ("io_method", "worker", 18),
];

/// Places outside that a copied configuration may name.
const OUTSIDE: &[(&str, &str)] = &[("ssl", "off"), ("external_pid_file", ""), ("logging_collector", "off"), ("log_destination", "stderr")];

/// Names of what stays off in a fork, which its own settings may not switch on.
pub(super) fn off_in_forks() -> Vec<&'static str> {
    REACHING_OUT.iter().map(|(name, ..)| *name).collect()
}

/// Refuses settings that would undo what keeps a safe fork from reaching outside.
pub(super) fn check_safe(branch: &str, settings: &[(String, String)]) -> Result<()> {
    match settings.iter().find(|(own, _)| SAFE.iter().any(|(name, ..)| own.eq_ignore_ascii_case(name))) {
        None => Ok(()),
        Some((own, _)) => Err(invalid(format!("branch {branch}: {own} is set by forklift itself in a safe fork"))
            .with("branch", branch)
            .hint(format!("leave {own} out, or fork without --safe"))),
    }
}

/// Libraries of the source whose own processes a safe fork does not start.
pub(super) fn workers(data: &Path, server: Option<&Server>) -> Result<Vec<String>> {
    let libraries = match server {
        Some(server) => super::facts::session(server)?.value("select current_setting('shared_preload_libraries')")?,
        None => conf::of_data(data)?.get("shared_preload_libraries").cloned().unwrap_or_default(),
    };
    let names = libraries.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty());
    Ok(names.map(|name| format!("background workers of {name}")).collect())
}

/// `name=value` pairs for a start, the branch's own last.
pub(super) fn command_line(record: &BranchRecord, data: &Path, installation: &Installation) -> Result<Vec<(String, String)>> {
    let major = installation.version.major;
    let mut line: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| line.push((name.to_owned(), value.to_owned()));
    if major >= 14 {
        set("recovery_init_sync_method", "syncfs");
    }
    for (name, value) in postgres::copy_settings(data, installation.version)? {
        set(&name, &value);
    }
    if record.fork {
        set("data_directory", &data.to_string_lossy());
        for (name, value) in OUTSIDE {
            set(name, value);
        }
        if major <= 14 {
            set("stats_temp_directory", "pg_stat_tmp");
        }
        if !record.keep_replication {
            for (name, value, _) in REACHING_OUT.iter().filter(|(.., since)| major >= *since) {
                set(name, value);
            }
        }
        let configured = conf::of_data(data)?;
        let safe = record.safe != SafeMode::Off;
        if safe {
            for (name, value, _) in SAFE.iter().filter(|(.., since)| major >= *since) {
                set(name, value);
            }
        }
        for (name, needed) in minimums(&ControlFile::read(data)?) {
            // Only a standby needs as many as its source.
            if safe && name == "max_worker_processes" {
                continue;
            }
            let own = own_value(record, name);
            let given = own.clone().or_else(|| configured.get(name).cloned()).and_then(|value| value.parse::<u32>().ok());
            match given {
                Some(given) if given >= needed => {}
                Some(given) if own.is_some() => {
                    return Err(invalid(format!("{name}={given} is below the {needed} that its cluster was last run with"))
                        .with("branch", &record.name)
                        .hint(format!("set {name} to {needed} or more")));
                }
                _ => set(name, &needed.to_string()),
            }
        }
    }
    line.extend(record.settings.iter().cloned());
    Ok(line)
}

fn minimums(control: &ControlFile) -> [(&'static str, u32); 5] {
    [
        ("max_connections", control.max_connections),
        ("max_worker_processes", control.max_worker_processes),
        ("max_wal_senders", control.max_wal_senders),
        ("max_prepared_transactions", control.max_prepared_transactions),
        ("max_locks_per_transaction", control.max_locks_per_transaction),
    ]
}

fn own_value(record: &BranchRecord, name: &str) -> Option<String> {
    record.settings.iter().rev().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
}

/// What the source of a fork has on that its fork has not, by name: from its files, its
/// own command line and, where it runs, its server.
pub(super) fn switched_off(data: &Path, own: &[(String, String)], server: Option<&Server>) -> Result<Vec<String>> {
    let mut found = of_settings(&conf::of_data(data)?);
    found.extend(of_settings(&own.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()));
    if let Some(server) = server {
        let mut session = super::facts::session(server)?;
        let names: Vec<String> =
            REACHING_OUT.iter().map(|(name, ..)| *name).chain(OUTSIDE.iter().map(|(name, _)| *name)).map(Sql::literal).collect();
        let rows = session.rows(&format!("select name, setting from pg_settings where name in ({})", names.join(", ")))?;
        let live: Settings = rows.into_iter().filter_map(two).collect();
        found.extend(of_settings(&live));
        let slots = session.rows("select slot_name from pg_replication_slots where not temporary order by 1")?;
        found.extend(slots.into_iter().flatten().flatten().map(|slot| format!("replication slot {slot}")));
    } else {
        let slots = crate::sys::fs::names(&data.join("pg_replslot")).unwrap_or_default();
        found.extend(slots.iter().map(|slot| format!("replication slot {}", slot.to_string_lossy())));
    }
    for signal in ["standby.signal", "recovery.signal"] {
        if data.join(signal).exists() {
            found.push(signal.to_owned());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether `huge_pages` is such that a server without them does not start.
pub(super) fn insists(huge_pages: &str) -> bool {
    matches!(huge_pages.to_ascii_lowercase().as_str(), "on" | "true" | "yes" | "1")
}

/// Subscriptions that are enabled in the fork's catalog and have no worker there.
pub(super) fn subscriptions(server: &Server) -> Result<Vec<String>> {
    let rows = super::facts::session(server)?.rows("select subname from pg_catalog.pg_subscription where subenabled order by 1")?;
    Ok(rows.into_iter().flatten().flatten().map(|name| format!("subscription {name}")).collect())
}

fn two(row: Vec<Option<String>>) -> Option<(String, String)> {
    let mut columns = row.into_iter().flatten();
    Some((columns.next()?, columns.next()?))
}

fn of_settings(settings: &Settings) -> Vec<String> {
    let on = |name: &str, value: &str| match name {
        // A plain server has these at their defaults; nothing outside hears of it.
        "max_logical_replication_workers" | "log_destination" => false,
        "archive_mode" | "ssl" | "logging_collector" | "sync_replication_slots" => {
            !matches!(value.to_ascii_lowercase().as_str(), "off" | "false" | "no" | "0" | "f" | "n" | "")
        }
        // Shown where archiving is off.
        "archive_command" => !value.is_empty() && value != "(disabled)",
        _ => !value.is_empty(),
    };
    REACHING_OUT
        .iter()
        .map(|(name, ..)| *name)
        .chain(OUTSIDE.iter().map(|(name, _)| *name))
        .filter(|name| settings.get(*name).is_some_and(|value| on(name, value)))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_out_is_named_and_defaults_are_not() {
        let settings: Settings = [
            ("archive_mode", "on"),
            ("archive_command", "cp %p /archive/%f"),
            ("restore_command", ""),
            ("ssl", "off"),
            ("max_logical_replication_workers", "4"),
            ("primary_conninfo", "host=x password=secret"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(of_settings(&settings), ["archive_mode", "archive_command", "primary_conninfo"]);
    }
}
