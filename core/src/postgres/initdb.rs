//! Making a cluster.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Installation, RunAs, program};
use crate::clone;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::{fs, locale};

/// How to make a cluster.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// Name of the bootstrap superuser.
    pub superuser: String,
    /// Locale, such as `C.UTF-8`. That one is made of the server's own collation (17 and later) or of `C` where the C library does not have it; any other must exist.
    pub locale: String,
    /// WAL segment size in MiB where not the default.
    pub wal_segment_mib: Option<u32>,
    /// Data checksums.
    pub checksums: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { superuser: "forklift".to_owned(), locale: "C.UTF-8".to_owned(), wal_segment_mib: None, checksums: true }
    }
}

/// initdb takes a second; ten minutes is a hung disk.
const PATIENCE: Duration = Duration::from_secs(600);

/// Makes a UTF-8 cluster in the absent or empty folder `data`, synced. Its own pg_hba.conf lets in local connections only.
///
/// # Errors
/// `InvalidArgument` for an option, `AlreadyExists` where `data` is not empty, `PostgresMismatch` for a locale that this
/// machine does not have, `NoSpace`, `Cancelled`, `Command` with the end of what initdb said. On failure the folder is as before.
pub fn initdb(installation: &Installation, run_as: &RunAs, data: &Path, options: &InitOptions, control: &Control) -> Result<()> {
    let arguments = arguments(installation, options)?;
    let existed = match std::fs::symlink_metadata(data) {
        Ok(metadata) => {
            if !metadata.is_dir() || !fs::names(data)?.is_empty() {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is not an empty folder", data.display()))
                    .with("path", data.display())
                    .hint("name a folder that does not exist yet"));
            }
            true
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(source) => return Err(Error::io("examine", data, source)),
    };
    let made = make(installation, run_as, data, &arguments, control);
    if made.is_err() {
        undo(data, existed)?;
    }
    made
}

fn make(installation: &Installation, run_as: &RunAs, data: &Path, arguments: &[String], control: &Control) -> Result<()> {
    if !data.exists() && data.parent().is_some_and(Path::is_dir) {
        clone::make_folder(data, 0o700)?;
    }
    run_as.make_folder(data)?;
    let mut command: Command = run_as.command(installation, "initdb")?;
    command.arg("--pgdata").arg(data).args(arguments);
    let outcome = program::run(&mut command, PATIENCE, control)?;
    if !outcome.status.success() {
        return Err(failure(data, &outcome.tail()));
    }
    // One syncfs in place of initdb's fsync per file.
    fs::Syncs::new().file_system(data)
}

fn failure(data: &Path, tail: &str) -> Error {
    let full = tail.contains("No space left on device") || tail.contains("Disk quota exceeded");
    let error =
        Error::new(if full { ErrorKind::NoSpace } else { ErrorKind::Command }, format!("initdb of {} failed: {tail}", data.display()));
    let error = error.with("path", data.display());
    if full { error.hint(format!("free space on the file system of {} and try again", data.display())) } else { error }
}

fn undo(data: &Path, existed: bool) -> Result<()> {
    if !existed {
        return clone::remove_tree(data);
    }
    for name in fs::names(data)? {
        let path = data.join(name);
        if path.is_dir() { fs::remove_tree(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

fn arguments(installation: &Installation, options: &InitOptions) -> Result<Vec<String>> {
    let major = installation.version.major;
    let name = &options.superuser;
    if name.is_empty() || name.len() > 63 || name.starts_with("pg_") || name.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{name:?} cannot be the name of a superuser"))
            .hint("1 to 63 bytes, no control characters, not beginning with pg_"));
    }
    let mut arguments = vec![
        "--encoding=UTF8".to_owned(),
        format!("--username={name}"),
        "--auth-local=trust".to_owned(),
        "--auth-host=reject".to_owned(),
        "--no-sync".to_owned(),
    ];
    arguments.extend(locale_arguments(&options.locale, major, locale::exists)?);
    if major >= 14 {
        arguments.push("--no-instructions".to_owned());
    }
    match (options.checksums, major) {
        (true, _) => arguments.push("--data-checksums".to_owned()),
        (false, 18..) => arguments.push("--no-data-checksums".to_owned()),
        (false, _) => {}
    }
    if let Some(size) = options.wal_segment_mib {
        if !size.is_power_of_two() || size > 1024 {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("a WAL segment of {size} MiB is not possible"))
                .hint("a power of two from 1 to 1024"));
        }
        arguments.push(format!("--wal-segsize={size}"));
    }
    Ok(arguments)
}

fn locale_arguments(name: &str, major: u32, exists: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let messages = "--lc-messages=C".to_owned();
    if exists(name) {
        return Ok(vec![format!("--locale={name}"), messages]);
    }
    if !matches!(name, "C.UTF-8" | "C.utf8") {
        return Err(Error::new(ErrorKind::PostgresMismatch, format!("this machine has no locale {name:?}"))
            .with("locale", name)
            .hint("install it (locale-gen), or use C.UTF-8"));
    }
    let own = (major >= 17).then(|| ["--locale-provider=builtin".to_owned(), "--builtin-locale=C.UTF-8".to_owned()]);
    Ok(own.into_iter().flatten().chain(["--locale=C".to_owned(), messages]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_29_a_missing_locale_is_refused_by_name_and_only_the_default_has_a_substitute() {
        let none = |_: &str| false;
        let error = locale_arguments("de_DE.UTF-8", 15, none).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PostgresMismatch);
        assert!(error.message().contains("de_DE.UTF-8"), "{error}");
        assert_eq!(locale_arguments("C.UTF-8", 15, none).unwrap(), ["--locale=C", "--lc-messages=C"]);
        assert!(locale_arguments("C.UTF-8", 17, none).unwrap().contains(&"--builtin-locale=C.UTF-8".to_owned()));
        assert_eq!(locale_arguments("de_DE.UTF-8", 15, |_| true).unwrap(), ["--locale=de_DE.UTF-8", "--lc-messages=C"]);
    }
}
