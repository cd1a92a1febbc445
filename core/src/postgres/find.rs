//! Finding the installations of a machine.

use std::path::{Path, PathBuf};

use super::installation::{SUPPORTED, config};
use super::{Installation, Origin};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// Folders in which package managers put one installation per version: what is before and behind the version in the name, and where its programs are.
const DISTRIBUTIONS: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/lib64", "postgresql-", "bin"),
    ("/usr/local", "pgsql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

const HOMEBREWS: &[&str] = &["/opt/homebrew/opt", "/usr/local/opt", "/home/linuxbrew/.linuxbrew/opt"];

/// Every usable installation, best first: explicit, PATH, distribution (newest first), Homebrew, bundled. Those that are there but do not work come in the second list with the reason.
#[must_use]
pub fn find(environment: &Environment) -> (Vec<Installation>, Vec<(PathBuf, Error)>) {
    let mut search = Search::default();
    if let Some(path) = environment.get("FORKLIFT_POSTGRES") {
        search.named(Path::new(path));
    }
    search.on_path(environment);
    for (folder, prefix, programs) in DISTRIBUTIONS {
        search.versions(Path::new(folder), prefix, programs, Origin::Distribution);
    }
    for folder in HOMEBREWS {
        search.versions(Path::new(folder), "postgresql@", "bin", Origin::Homebrew);
        search.add(&Path::new(folder).join("postgresql/bin"), Origin::Homebrew);
    }
    if let Ok(folder) = environment.data_folder() {
        search.versions(&folder.join("postgres"), "", "bin", Origin::Bundled);
    }
    // Within distributions the newest goes first, whichever folder it came from; the sort is stable.
    search.found.sort_by_key(|one| (order(one.origin), if one.origin == Origin::Distribution { u32::MAX - one.version.major } else { 0 }));
    (search.found, search.broken)
}

/// The best installation, of this major version where one is given.
///
/// # Errors
/// `InvalidArgument` for a major that is not supported; the reason where the one named by `FORKLIFT_POSTGRES` does not work; `PostgresNotFound` lists what was looked at and names `forklift postgres install`.
pub fn choose(environment: &Environment, major: Option<u32>) -> Result<Installation> {
    if let Some(major) = major.filter(|major| !SUPPORTED.contains(major)) {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("Postgres {major} is not supported")).hint(format!(
            "forklift works with Postgres {} to {}",
            SUPPORTED.start(),
            SUPPORTED.end()
        )));
    }
    let (found, broken) = find(environment);
    if let Some(named) = environment.get("FORKLIFT_POSTGRES")
        && !found.iter().any(|one| one.origin == Origin::Explicit)
    {
        let reason =
            broken.into_iter().next().map_or_else(|| Error::new(ErrorKind::PostgresNotFound, "it was not examined"), |(_, reason)| reason);
        return Err(reason.while_doing(format!("--postgres or FORKLIFT_POSTGRES names {}", Path::new(named).display())));
    }
    let seen: Vec<String> = found.iter().map(|one| format!("{} in {}", one.version, one.bin.display())).collect();
    if let Some(best) = found.into_iter().find(|one| major.is_none_or(|major| one.version.major == major)) {
        return Ok(best);
    }
    let wanted = major.map_or_else(|| "Postgres (13 to 18)".to_owned(), |major| format!("Postgres {major}"));
    let failed = broken.iter().map(|(path, reason)| format!("{}: {}", path.display(), reason.message()));
    let seen: Vec<String> = seen.into_iter().chain(failed).collect();
    let seen = if seen.is_empty() {
        "nothing in FORKLIFT_POSTGRES, PATH, the distribution's folders, Homebrew and the data folder".to_owned()
    } else {
        seen.join("; ")
    };
    let install = major.map_or_else(String::new, |major| format!(" {major}"));
    Err(Error::new(ErrorKind::PostgresNotFound, format!("no usable {wanted} was found: {seen}"))
        .hint(format!("run `forklift postgres install{install}`, or install the distribution's server package and name its bin folder with FORKLIFT_POSTGRES if it is not found")))
}

fn order(origin: Origin) -> u32 {
    match origin {
        Origin::Explicit => 0,
        Origin::Path => 1,
        Origin::Distribution => 2,
        Origin::Homebrew => 3,
        Origin::Bundled => 4,
    }
}

#[derive(Default)]
struct Search {
    looked_at: Vec<PathBuf>,
    found: Vec<Installation>,
    broken: Vec<(PathBuf, Error)>,
}

impl Search {
    /// A folder of programs, an installation with a `bin` folder, or one of the programs.
    fn named(&mut self, path: &Path) {
        let resolved = std::fs::canonicalize(path).map_err(|source| {
            Error::new(ErrorKind::PostgresNotFound, format!("open {}: {source}", path.display()))
                .with("path", path.display())
                .hint("name the folder that holds postgres and initdb; `forklift postgres list` shows what is found without it")
                .because(source)
        });
        let bin = resolved.and_then(|path| {
            let folder = if path.is_file() { path.parent().map(Path::to_owned) } else { Some(path.clone()) };
            let folders = folder.iter().flat_map(|folder| [folder.clone(), folder.join("bin")]);
            folders.into_iter().find(|bin| bin.join("postgres").is_file()).ok_or_else(|| {
                Error::new(ErrorKind::PostgresNotFound, format!("there is no postgres program in {}", path.display()))
                    .with("path", path.display())
                    .hint("name the folder that holds postgres and initdb")
            })
        });
        match bin {
            Ok(bin) => self.add(&bin, Origin::Explicit),
            Err(reason) => self.broken.push((path.to_owned(), reason)),
        }
    }

    /// `postgres` on PATH is followed to where it lies; a distribution's wrappers have only `pg_config` there, which says where the programs are.
    fn on_path(&mut self, environment: &Environment) {
        for folder in environment.path() {
            if let Some(bin) = std::fs::canonicalize(folder.join("postgres")).ok().and_then(|program| program.parent().map(Path::to_owned))
            {
                self.add(&bin, Origin::Path);
            }
            if let Some(bin) = config(&folder, "--bindir", None) {
                self.add(&bin, Origin::Path);
            }
        }
    }

    fn versions(&mut self, folder: &Path, prefix: &str, programs: &str, origin: Origin) {
        let names = fs::names(folder).unwrap_or_default();
        let version = |name: &str| {
            let rest = name.strip_prefix(prefix)?;
            // `/usr/local/pgsql` has no version in its name.
            let parts = rest.split('.').filter(|_| !rest.is_empty() || prefix.is_empty());
            let numbers: Option<Vec<u32>> = parts.map(|part| part.parse().ok()).collect();
            numbers.map(|numbers| (numbers, name.to_owned()))
        };
        let mut versions: Vec<(Vec<u32>, String)> = names.iter().filter_map(|name| version(name.to_str()?)).collect();
        versions.sort_unstable();
        for (_, name) in versions.into_iter().rev() {
            self.add(&folder.join(name).join(programs), origin);
        }
    }

    fn add(&mut self, bin: &Path, origin: Origin) {
        let Ok(resolved) = std::fs::canonicalize(bin) else { return };
        if !resolved.join("postgres").is_file() || self.looked_at.contains(&resolved) {
            return;
        }
        match Installation::at(&resolved, origin) {
            Ok(installation) => self.found.push(installation),
            Err(reason) => self.broken.push((resolved.clone(), reason)),
        }
        self.looked_at.push(resolved);
    }
}
