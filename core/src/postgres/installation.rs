//! One installation of Postgres: its programs, its version, the extensions it offers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::program;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs;

/// `major.minor` as `postgres --version` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// 13 to 18.
    pub major: u32,
    /// Minor release.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where an installation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Named by the caller (`--postgres`, `FORKLIFT_POSTGRES`).
    Explicit,
    /// By `pg_config` or `postgres` on PATH.
    Path,
    /// In a distribution's folder, such as `/usr/lib/postgresql/15/bin`.
    Distribution,
    /// Homebrew.
    Homebrew,
    /// Put into the data folder by `forklift postgres install`.
    Bundled,
}

/// One usable installation: `postgres` answers and `initdb` is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Folder of the programs.
    pub bin: PathBuf,
    /// Folder of the shared libraries that the programs need on `LD_LIBRARY_PATH`, where they are not found without.
    pub library_path: Option<PathBuf>,
    /// Folder that holds `extension/*.control`.
    pub share: PathBuf,
    /// Version of `postgres`.
    pub version: Version,
    /// Where it was found.
    pub origin: Origin,
}

/// An extension that an installation offers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Extension {
    /// Name for CREATE EXTENSION.
    pub name: String,
    /// Its default version, where the control file says one.
    pub version: Option<String>,
}

/// Enough for a cold disk; a healthy program answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

impl Installation {
    /// Examines the programs in `bin` by running `postgres --version`, which root may do too.
    ///
    /// # Errors
    /// `PostgresNotFound` says which program is missing or why it does not run; `PostgresMismatch` where the version is not 13 to 18.
    pub fn at(bin: &Path, origin: Origin) -> Result<Self> {
        for name in ["postgres", "initdb"] {
            if !bin.join(name).is_file() {
                return Err(Error::new(ErrorKind::PostgresNotFound, format!("there is no {name} in {}", bin.display()))
                    .with("path", bin.join(name).display())
                    .hint("install the server package of Postgres, or run `forklift postgres install`"));
            }
        }
        let library_path = own_libraries(bin);
        let postgres = bin.join("postgres");
        let text = answer(&postgres, "--version", library_path.as_deref())?;
        let version = parse_version(&text).ok_or_else(|| does_not_answer(&postgres, &format!("it calls itself {:?}", text.trim())))?;
        if !SUPPORTED.contains(&version.major) {
            return Err(Error::new(ErrorKind::PostgresMismatch, format!("{} is Postgres {version}", postgres.display()))
                .with("path", postgres.display())
                .with("version", version)
                .hint("forklift works with Postgres 13 to 18"));
        }
        let share = find_share(bin, version.major, library_path.as_deref()).ok_or_else(|| {
            Error::new(
                ErrorKind::PostgresNotFound,
                format!("the share folder of the Postgres in {} (with postgres.bki) was not found", bin.display()),
            )
            .with("path", bin.display())
            .hint("reinstall the server package of Postgres, or run `forklift postgres install`")
        })?;
        Ok(Self { bin: bin.to_owned(), library_path, share, version, origin })
    }

    /// Path of one program; client programs (`pg_dump`, `psql`) may be absent.
    ///
    /// # Errors
    /// `PostgresNotFound` with what to install.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.bin.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let major = self.version.major;
        Err(Error::new(ErrorKind::PostgresNotFound, format!("the Postgres {} in {} has no {name}", self.version, self.bin.display()))
            .with("path", path.display())
            .hint(format!("install the client programs of Postgres {major} (package postgresql-client-{major}), or run `forklift postgres install {major}`")))
    }

    /// Extensions it offers, sorted by name.
    ///
    /// # Errors
    /// `Permission`, `Io`. An installation without extensions offers none.
    pub fn extensions(&self) -> Result<Vec<Extension>> {
        let folder = self.share.join("extension");
        let names = match fs::names(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        let mut extensions = Vec::new();
        for file in names {
            // `name--1.0.control` overrides settings of one version and is no extension of its own.
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".control")).filter(|name| !name.contains("--")) else {
                continue;
            };
            let text = fs::read(&folder.join(&file))?;
            extensions.push(Extension { name: name.to_owned(), version: setting(&String::from_utf8_lossy(&text), "default_version") });
        }
        extensions.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(extensions)
    }

    /// The folder of loadable modules (`$libdir`), where it can be found.
    #[must_use]
    pub fn modules(&self) -> Option<PathBuf> {
        let by_config = config(&self.bin, "--pkglibdir", self.library_path.as_deref());
        let beside = ["../lib/postgresql", "../lib/pgsql", "../lib"].map(|relative| self.bin.join(relative));
        by_config
            .into_iter()
            .chain(beside)
            .find(|folder| ["so", "dylib"].iter().any(|ending| folder.join(format!("plpgsql.{ending}")).exists()))
    }
}

/// Reads one setting of a file in the form of postgresql.conf: `name = 'value'`; the last one counts.
pub(super) fn setting(text: &str, name: &str) -> Option<String> {
    let line = |line: &str| {
        let rest =
            line.trim_start().get(..name.len()).filter(|head| head.eq_ignore_ascii_case(name)).and(line.trim_start().get(name.len()..))?;
        let rest = rest.strip_prefix(|next: char| next.is_whitespace() || next == '=')?.trim_start();
        let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
        let Some(quoted) = rest.strip_prefix('\'') else {
            return rest.split(|next: char| next.is_whitespace() || next == '#').next().map(str::to_owned);
        };
        let mut value = String::new();
        let mut characters = quoted.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\'' if characters.peek() == Some(&'\'') => value.extend(characters.next()),
                '\'' => break,
                '\\' => value.extend(characters.next()),
                _ => value.push(character),
            }
        }
        Some(value)
    };
    text.lines().filter_map(line).next_back()
}

/// What a program in `bin` prints for one option.
pub(super) fn answer(path: &Path, option: &str, library_path: Option<&Path>) -> Result<String> {
    let mut command = Command::new(path);
    command.arg(option).env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
    if let Some(folder) = library_path {
        command.env(LIBRARY_VARIABLE, folder);
    }
    let outcome = program::run(&mut command, PATIENCE, &Control::silent()).map_err(|error| {
        let why = error.os().map_or_else(|| error.message().to_owned(), |number| std::io::Error::from_raw_os_error(number).to_string());
        does_not_answer(path, &why).because(error)
    })?;
    if outcome.status.success() {
        Ok(outcome.stdout)
    } else {
        Err(does_not_answer(path, &format!("{}: {}", outcome.status, outcome.tail())))
    }
}

/// Major versions that forklift works with.
pub(super) const SUPPORTED: std::ops::RangeInclusive<u32> = 13..=18;

/// Variable by which the loader is told where an installation keeps its shared libraries.
pub(super) const LIBRARY_VARIABLE: &str = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };

/// A path that `pg_config` of this very folder gives, where it is there and answers.
pub(super) fn config(bin: &Path, option: &str, library_path: Option<&Path>) -> Option<PathBuf> {
    let path = bin.join("pg_config");
    let text = path.is_file().then(|| answer(&path, option, library_path).ok())??;
    Some(PathBuf::from(text.trim_end_matches('\n'))).filter(|path| path.is_absolute())
}

fn does_not_answer(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::PostgresNotFound, format!("{} does not run: {why}", path.display()))
        .with("path", path.display())
        .hint("repair or remove that installation, name another with FORKLIFT_POSTGRES, or run `forklift postgres install`")
}

/// `postgres (PostgreSQL) 15.18 (Debian ...)`; a development version has no minor number.
fn parse_version(text: &str) -> Option<Version> {
    let rest = text.split_once("(PostgreSQL) ")?.1;
    let number = |text: &str| text.split(|next: char| !next.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    let major = number(rest)?;
    let minor = rest.trim_start_matches(|next: char| next.is_ascii_digit()).strip_prefix('.').and_then(number).unwrap_or(0);
    Some(Version { major, minor })
}

/// The `lib` folder beside `bin` where it holds a libpq of its own, which must win over the system's.
fn own_libraries(bin: &Path) -> Option<PathBuf> {
    let folder = bin.parent()?.join("lib");
    let of_system = ["/", "/usr", "/usr/local"].iter().any(|root| Path::new(root).join("lib") == folder);
    let has_libpq = ["libpq.so.5", "libpq.5.dylib", "libpq.dylib"].iter().any(|name| folder.join(name).exists());
    (has_libpq && !of_system).then_some(folder)
}

fn find_share(bin: &Path, major: u32, library_path: Option<&Path>) -> Option<PathBuf> {
    let beside = bin.parent().map(|root| root.join("share"));
    let below = beside.into_iter().flat_map(|share| {
        let versioned = [format!("postgresql/{major}"), format!("postgresql{major}"), format!("postgresql@{major}")];
        [share.clone(), share.join("postgresql"), share.join("pgsql")]
            .into_iter()
            .chain(versioned.map(|name| share.join(name)))
            .collect::<Vec<_>>()
    });
    let system = PathBuf::from(format!("/usr/share/postgresql/{major}"));
    config(bin, "--sharedir", library_path).into_iter().chain(below).chain([system]).find(|share| {
        // The first line names the major version that this share folder belongs to.
        let head = fs::read(&share.join("postgres.bki")).unwrap_or_default();
        head.starts_with(format!("# PostgreSQL {major}\n").as_bytes())
    })
}
