//! What a cluster needs of the build that runs it.

use std::collections::BTreeSet;
use std::path::Path;

use super::installation::setting;
use super::{ControlFile, Installation, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{fs, locale};

/// What must fit before a cluster is started by a build: kept with every checkpoint and checked before a restore.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClusterFacts {
    /// Version of the server that ran it last.
    pub version: Version,
    /// pg_control at the time.
    pub control: ControlFile,
    /// `libc`, `icu`, `builtin` per database with collation and version, where they were read by SQL.
    pub locales: Vec<DatabaseLocale>,
    /// Extensions per database: (database, extension, version).
    pub extensions: Vec<(String, String, String)>,
    /// `shared_preload_libraries`, as the files or SQL say it.
    #[serde(default)]
    pub preload: Vec<String>,
}

/// The locale of one database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DatabaseLocale {
    /// Database.
    pub database: String,
    /// `c`, `i` or `b`.
    pub provider: String,
    /// LC_COLLATE or ICU locale.
    pub locale: String,
    /// LC_CTYPE.
    pub ctype: String,
    /// Collation version recorded in the database, where there is one.
    pub version: Option<String>,
}

/// The catalog version that every release of a major version has; it never changes after its first release.
pub(super) fn catalog_version_of(major: u32) -> Option<u32> {
    Some(match major {
        13 => 202_007_201,
        14 => 202_107_181,
        15 => 202_209_061,
        16 => 202_307_071,
        17 => 202_406_281,
        18 => 202_506_291,
        _ => return None,
    })
}

impl ClusterFacts {
    /// Reads what the files say: PG_VERSION, pg_control and shared_preload_libraries.
    ///
    /// # Errors
    /// `NotFound` where `data` is no cluster, `PostgresMismatch` with both versions where it is of another major version than `installation`, `Corrupt`, `Io`.
    pub fn of_files(data: &Path, installation: &Installation) -> Result<Self> {
        let path = data.join("PG_VERSION");
        let text = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.hint("name the data folder of a Postgres cluster (it holds PG_VERSION and global/pg_control)"),
            _ => error,
        })?;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let major: u32 = text.parse().map_err(|_| {
            Error::new(ErrorKind::PostgresMismatch, format!("{} says {text:?}", path.display()))
                .with("path", path.display())
                .hint("forklift works with Postgres 13 to 18")
        })?;
        if major != installation.version.major {
            return Err(other_major(&format!("the cluster in {}", data.display()), major, installation));
        }
        let control = ControlFile::read(data)?;
        Ok(Self {
            version: Version { major, minor: installation.version.minor },
            control,
            locales: Vec::new(),
            extensions: Vec::new(),
            preload: preload(data)?,
        })
    }

    /// Whether `installation` can run such a cluster; warnings where it can but results may differ (collation version, an older extension).
    ///
    /// # Errors
    /// `PostgresMismatch` by name: major, catalog version, block and segment sizes, a missing locale, extension or preloaded library.
    pub fn check(&self, installation: &Installation) -> Result<Vec<String>> {
        let major = installation.version.major;
        if self.version.major != major {
            return Err(other_major("the cluster", self.version.major, installation));
        }
        self.check_control(installation)?;
        let mut warnings = Vec::new();
        self.check_locales(installation, &mut warnings)?;
        self.check_extensions(installation, &mut warnings)?;
        self.check_preload(installation)?;
        if self.version.minor > installation.version.minor {
            warnings.push(format!("the cluster was last run by {}, a newer minor release than {}", self.version, installation.version));
        }
        Ok(warnings)
    }

    fn check_control(&self, installation: &Installation) -> Result<()> {
        let control = &self.control;
        if let Some(expected) = catalog_version_of(installation.version.major).filter(|expected| *expected != control.catalog_version) {
            return Err(mismatch(format!(
                "the cluster has catalog version {}, and {} in {} has {expected}",
                control.catalog_version,
                installation.version,
                installation.bin.display()
            ))
            .hint("start it with the build that made it, or move its rows with pg_dump"));
        }
        // Those of a stock build; a build with others says so in pg_config's configure line.
        let configure = config_text(installation);
        let built = |option: &str, usual: u32, unit: u32| {
            configure
                .as_deref()
                .and_then(|line| option_of(line, option))
                .and_then(|value| value.parse::<u32>().ok())
                .map_or(usual, |value| value.saturating_mul(unit))
        };
        let block = built("--with-blocksize", 8192, 1024);
        let segment_blocks = configure
            .as_deref()
            .and_then(|line| option_of(line, "--with-segsize-blocks").and_then(|value| value.parse().ok()).filter(|blocks| *blocks > 0))
            .unwrap_or_else(|| built("--with-segsize", 1 << 30, 1 << 30) / block.max(1));
        let wal_block = built("--with-wal-blocksize", 8192, 1024);
        let sizes = [
            ("block size", control.block_size, block),
            ("blocks per relation segment", control.segment_blocks, segment_blocks),
            ("WAL block size", control.wal_block_size, wal_block),
        ];
        for (what, has, can) in sizes {
            if has != can {
                return Err(mismatch(format!("the cluster has {what} {has}, and the build in {} has {can}", installation.bin.display()))
                    .hint("start it with the build that made it, or move its rows with pg_dump"));
            }
        }
        Ok(())
    }

    fn check_locales(&self, installation: &Installation, warnings: &mut Vec<String>) -> Result<()> {
        for database in &self.locales {
            let name = &database.database;
            for wanted in [(database.provider == "c").then_some(&database.locale), Some(&database.ctype)].into_iter().flatten() {
                if !wanted.is_empty() && !locale::exists(wanted) {
                    return Err(mismatch(format!("database {name} needs the locale {wanted:?}, which this machine does not have"))
                        .with("database", name)
                        .with("locale", wanted)
                        .hint("install that locale (locale-gen) and try again"));
                }
            }
            match (database.provider.as_str(), has_icu(installation)) {
                ("i", Some(false)) => {
                    return Err(mismatch(format!(
                        "database {name} uses ICU locale {:?}, and the Postgres in {} was built without ICU",
                        database.locale,
                        installation.bin.display()
                    ))
                    .with("database", name)
                    .with("locale", &database.locale)
                    .hint("use a build with ICU, such as the distribution's server package"));
                }
                ("i", None) => {
                    warnings.push(format!("database {name} uses ICU locale {:?}; whether this build has ICU is not known", database.locale))
                }
                ("c", _) => {
                    if let (Some(recorded), Some(ours)) = (&database.version, locale::library_version())
                        && *recorded != ours
                    {
                        warnings.push(format!("database {name} was sorted by C library {recorded}, this machine has {ours}: reindex text indexes before trusting them"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_extensions(&self, installation: &Installation, warnings: &mut Vec<String>) -> Result<()> {
        if self.extensions.is_empty() {
            return Ok(());
        }
        let offered = installation.extensions()?;
        let mut missing = BTreeSet::new();
        for (database, name, version) in &self.extensions {
            match offered.iter().find(|one| one.name == *name) {
                None => {
                    missing.insert(format!("{name} {version} (database {database})"));
                }
                Some(one) if one.version.as_ref().is_some_and(|ours| is_older(ours, version)) => {
                    warnings.push(format!(
                        "database {database} has extension {name} {version}, and this build offers {}",
                        one.version.as_deref().unwrap_or_default()
                    ));
                }
                Some(_) => {}
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.into_iter().collect();
        Err(mismatch(format!(
            "the Postgres in {} lacks extensions that the cluster uses: {}",
            installation.bin.display(),
            names.join(", ")
        ))
        .with("extensions", names.join(", "))
        .hint("install their packages for this Postgres and try again"))
    }

    fn check_preload(&self, installation: &Installation) -> Result<()> {
        let Some(modules) = installation.modules() else { return Ok(()) };
        let there = |name: &&String| {
            let path = name.strip_prefix("$libdir/").map_or_else(|| modules.join(name.as_str()), |rest| modules.join(rest));
            let endings = ["", ".so", ".dylib"];
            endings.iter().any(|ending| Path::new(&format!("{}{ending}", path.display())).is_file())
        };
        let missing: Vec<&str> = self.preload.iter().filter(|name| !there(name)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(mismatch(format!(
            "shared_preload_libraries names {}, which the Postgres in {} does not have",
            missing.join(", "),
            installation.bin.display()
        ))
        .with("libraries", missing.join(", "))
        .hint("install the extensions' packages for this Postgres, or remove them from shared_preload_libraries"))
    }
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::PostgresMismatch, message)
}

fn other_major(what: &str, major: u32, installation: &Installation) -> Error {
    mismatch(format!("{what} is of Postgres {major}, and the programs in {} are of {}", installation.bin.display(), installation.version))
        .with("cluster", major)
        .with("installation", installation.version)
        .hint(format!("use Postgres {major} (`forklift postgres install {major}`), or move the rows with pg_dump"))
}

/// What the two files that every start reads say; postgresql.auto.conf is read last and wins.
fn preload(data: &Path) -> Result<Vec<String>> {
    let mut value = String::new();
    for name in ["postgresql.conf", "postgresql.auto.conf"] {
        let text = fs::read_optional(&data.join(name))?.unwrap_or_default();
        value = setting(&String::from_utf8_lossy(&text), "shared_preload_libraries").unwrap_or(value);
    }
    Ok(value.split(',').map(|name| name.trim().trim_matches('"').to_owned()).filter(|name| !name.is_empty()).collect())
}

fn config_text(installation: &Installation) -> Option<String> {
    let path = installation.bin.join("pg_config");
    path.is_file().then(|| super::installation::answer(&path, "--configure", installation.library_path.as_deref()).ok())?
}

/// Value of `option` in a line of `'--with-x=1' '--with-y'`.
fn option_of(configure: &str, option: &str) -> Option<String> {
    configure
        .split_whitespace()
        .map(|word| word.trim_matches('\''))
        .find_map(|word| word.strip_prefix(option)?.strip_prefix('='))
        .map(str::to_owned)
}

/// 16 made ICU the default; meson's builds have no configure line.
fn has_icu(installation: &Installation) -> Option<bool> {
    let configure = config_text(installation)?;
    let says = |option: &str| configure.split_whitespace().any(|word| word.trim_matches('\'') == option);
    match (says("--with-icu"), says("--without-icu"), installation.version.major) {
        (true, _, _) => Some(true),
        (_, true, _) => Some(false),
        (_, _, ..16) => Some(false),
        _ if configure.trim().is_empty() => None,
        _ => Some(true),
    }
}

/// Compares dotted numbers; anything else is not called older.
fn is_older(one: &str, other: &str) -> bool {
    let numbers = |text: &str| text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    matches!((numbers(one), numbers(other)), (Some(one), Some(other)) if one < other)
}
