//! Libraries that a configuration has every server or session load.

use std::path::{Path, PathBuf};

use super::conf::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::postgres::Installation;

/// The settings, and the folder below that of the modules in which their bare names lie.
const SETTINGS: &[(&str, &str)] =
    &[("shared_preload_libraries", ""), ("session_preload_libraries", ""), ("local_preload_libraries", "plugins")];

/// Refuses, by name, libraries without which no server starts or no session begins.
pub(super) fn check(settings: &Settings, installation: &Installation) -> Result<()> {
    let Some(modules) = installation.modules() else { return Ok(()) };
    // Bare names may then lie anywhere.
    if settings.contains_key("dynamic_library_path") {
        return Ok(());
    }
    for (setting, below) in SETTINGS {
        let named = settings.get(*setting).map(String::as_str).unwrap_or_default();
        let names = named.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty());
        let missing: Vec<&str> = names.filter(|name| !exists(&place(&modules, below, name))).collect();
        if !missing.is_empty() {
            return Err(Error::new(
                ErrorKind::PostgresMismatch,
                format!("{setting} names {}, which the Postgres in {} does not have", missing.join(", "), installation.bin.display()),
            )
            .with("libraries", missing.join(", "))
            .hint(format!("install the extensions' packages for this Postgres, or remove them from {setting}")));
        }
    }
    Ok(())
}

fn place(modules: &Path, below: &str, name: &str) -> PathBuf {
    match name.strip_prefix("$libdir/") {
        Some(rest) => modules.join(rest),
        None if name.contains('/') => modules.join(name),
        None => modules.join(below).join(name),
    }
}

fn exists(path: &Path) -> bool {
    ["", ".so", ".dylib"].iter().any(|ending| Path::new(&format!("{}{ending}", path.display())).is_file())
}
