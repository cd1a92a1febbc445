//! Hashes of the configuration files in a data folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::sys::fs;

/// Hash by name of every `*.conf` at the top of the data folder and in its `conf.d`: ALTER SYSTEM spends no transaction id.
pub(super) fn hashes(data: &Path) -> Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for folder in ["", "conf.d"] {
        let names = match fs::names(&data.join(folder)) {
            Err(error) if !folder.is_empty() && error.kind() == ErrorKind::NotFound => continue,
            names => names?,
        };
        for name in names.iter().map(Path::new).filter(|name| name.extension() == Some(OsStr::new("conf"))) {
            let name = Path::new(folder).join(name);
            // ALTER SYSTEM replaces the file by a rename; a folder may have such a name too.
            if let Some(bytes) = data.join(&name).is_file().then(|| fs::read_optional(&data.join(&name))).transpose()?.flatten() {
                hashes.insert(name.to_string_lossy().into_owned(), blake3::hash(&bytes).to_hex().to_string());
            }
        }
    }
    Ok(hashes)
}
