//! Names of branches and of settings.

use crate::error::{Error, ErrorKind, Result};

/// Checks a name: 1 to 63 of letters, digits, `.`, `_`, `-`, starting with a letter or digit.
pub(super) fn check(name: &str) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::new(ErrorKind::InvalidArgument, format!("{name:?} cannot name a branch: {why}"))
            .with("branch", name.escape_default())
            .hint("use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit"))
    };
    if name.is_empty() {
        return refuse("it is empty");
    }
    if let Some(bad) = name.chars().find(|letter| !letter.is_ascii_alphanumeric() && !matches!(letter, '.' | '_' | '-')) {
        return refuse(&format!("it contains {bad:?}"));
    }
    if name.len() > 63 {
        return refuse(&format!("it has {} characters", name.len()));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return refuse("it does not start with a letter or digit");
    }
    if name.contains("..") {
        return refuse("it contains '..'");
    }
    Ok(())
}

/// What forklift alone decides on a server's command line.
const OURS: &[&str] = &[
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_destination",
    "logging_collector",
    "port",
    "recovery_init_sync_method",
    "unix_socket_directories",
    "unix_socket_permissions",
    "unix_socket_group",
];

/// Checks the `name=value` settings of a branch; `off` are those that its kind must keep off.
pub(super) fn check_settings(branch: &str, settings: &[(String, String)], off: &[&str]) -> Result<()> {
    for (name, value) in settings {
        let lower = name.to_ascii_lowercase();
        let well_formed = lower.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && lower.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.'));
        let refuse = |why: String| Error::new(ErrorKind::InvalidArgument, format!("branch {branch}: {why}")).with("branch", branch);
        if !well_formed {
            return Err(refuse(format!("{name:?} is not the name of a setting")).hint("settings are given as name=value"));
        }
        if value.contains(['\0', '\n', '\r']) {
            return Err(refuse(format!("the value of {name} contains a line break or NUL")));
        }
        if OURS.contains(&lower.as_str()) {
            return Err(refuse(format!("{name} is set by forklift itself")).hint(format!("leave {name} out")));
        }
        if off.contains(&lower.as_str()) {
            return Err(
                refuse(format!("{name} stays off in a fork")).hint("keep the source's replication and archiving on request instead")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass_and_bad_ones_are_refused_by_name() {
        for name in ["a", "main", "0", "agent-a.2_x", &"x".repeat(63)] {
            check(name).unwrap();
        }
        for name in ["", "/", "a/b", "a\nb", "..", "a..b", ".a", "-a", "_a", "a b", "ä", "a\0", &"x".repeat(64)] {
            let error = check(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}");
            assert!(error.hint_text().is_some());
            assert!(!error.message().contains('\n') && !error.message().contains('\0'));
        }
    }

    #[test]
    fn settings_that_forklift_decides_are_refused() {
        let set = |name: &str, value: &str| check_settings("b", &[(name.to_owned(), value.to_owned())], &["archive_mode"]);
        set("work_mem", "8MB").unwrap();
        set("pg_stat_statements.max", "100").unwrap();
        for (name, value) in [("Port", "1"), ("archive_mode", "on"), ("x y", "1"), ("", "1"), ("work_mem", "1\n2")] {
            assert_eq!(set(name, value).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
        }
    }
}
