//! Reading `postgresql.conf` and its like, as far as forklift must know what a stopped cluster has set.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// Lower-case names and their values; later lines win.
pub(super) type Settings = BTreeMap<String, String>;

/// Deeper includes are a loop.
const DEPTH: u32 = 10;

/// What `postgresql.conf` and `postgresql.auto.conf` of a data folder set; files that are absent set nothing.
pub(super) fn of_data(data: &Path) -> Result<Settings> {
    let mut settings = Settings::new();
    read_into(&data.join("postgresql.conf"), true, 0, &mut settings)?;
    read_into(&data.join("postgresql.auto.conf"), true, 0, &mut settings)?;
    Ok(settings)
}

/// What one file and those it includes set.
pub(super) fn of_file(path: &Path) -> Result<Settings> {
    let mut settings = Settings::new();
    read_into(path, false, 0, &mut settings)?;
    Ok(settings)
}

/// Whether the file, where there is one, includes something that does not lie below `root`.
pub(super) fn leaves(path: &Path, root: &Path) -> Result<bool> {
    let bytes = sys::fs::read_optional(path)?.unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut included =
        text.lines().filter_map(parse_line).filter(|(name, _)| matches!(name.as_str(), "include" | "include_if_exists" | "include_dir"));
    Ok(included.any(|(_, value)| {
        let target = folder.join(&value);
        !target.starts_with(root) || target.components().any(|part| part == std::path::Component::ParentDir)
    }))
}

/// The settings as text that Postgres reads back the same.
pub(super) fn write(settings: &Settings, comment: &str) -> String {
    let mut text = format!("# {comment}\n");
    for (name, value) in settings {
        text.push_str(&format!("{name} = '{}'\n", value.replace('\\', "\\\\").replace('\'', "''")));
    }
    text
}

fn read_into(path: &Path, optional: bool, depth: u32, settings: &mut Settings) -> Result<()> {
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::Corrupt, format!("{} is included too deeply", path.display())).with("path", path.display()));
    }
    let bytes = match sys::fs::read_optional(path)? {
        Some(bytes) => bytes,
        None if optional => return Ok(()),
        None => return Err(Error::new(ErrorKind::NotFound, format!("{} does not exist", path.display())).with("path", path.display())),
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    for line in String::from_utf8_lossy(&bytes).lines() {
        let Some((name, value)) = parse_line(line) else { continue };
        match name.as_str() {
            "include" => read_into(&folder.join(value), false, depth + 1, settings)?,
            "include_if_exists" => read_into(&folder.join(value), true, depth + 1, settings)?,
            "include_dir" => {
                let included = folder.join(value);
                for name in sys::fs::names(&included)? {
                    let visible = name.to_str().is_some_and(|name| name.ends_with(".conf") && !name.starts_with('.'));
                    if visible {
                        read_into(&included.join(name), true, depth + 1, settings)?;
                    }
                }
            }
            _ => {
                settings.insert(name, value);
            }
        }
    }
    Ok(())
}

/// `name = value # comment`; the sign of equality is optional, values may be quoted.
fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    let end = line.find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | '.')).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquote(quoted),
        None => rest.split(|letter: char| letter.is_whitespace() || letter == '#').next().unwrap_or_default().to_owned(),
    };
    Some((name.to_ascii_lowercase(), value))
}

fn unquote(quoted: &str) -> String {
    let mut value = String::new();
    let mut letters = quoted.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' if letters.peek() == Some(&'\'') => {
                letters.next();
                value.push('\'');
            }
            '\'' => break,
            '\\' => match letters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(other) => value.push(other),
                None => {}
            },
            other => value.push(other),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, text: &str) {
        sys::fs::replace(&folder.join(name), text.as_bytes(), 0o600, &sys::fs::Syncs::new()).unwrap();
    }

    #[test]
    fn lines_includes_and_quotes_are_read_as_postgres_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("conf.d")).unwrap();
        put(
            folder.path(),
            "postgresql.conf",
            "# a comment\nArchive_Mode = on # on\nwork_mem 8MB\ninclude_dir 'conf.d'\ninclude_if_exists = 'none.conf'\n",
        );
        put(&folder.path().join("conf.d"), "a.conf", "archive_command = 'cp ''%p'' /x/%f'\nport = 1\n");
        put(&folder.path().join("conf.d"), ".hidden.conf", "port = 2\n");
        put(folder.path(), "postgresql.auto.conf", "port = '3'\n");
        let settings = of_data(folder.path()).unwrap();
        assert_eq!(settings["archive_mode"], "on");
        assert_eq!(settings["work_mem"], "8MB");
        assert_eq!(settings["archive_command"], "cp '%p' /x/%f");
        assert_eq!(settings["port"], "3");
        put(folder.path(), "again.conf", &write(&settings, "carried"));
        assert_eq!(of_file(&folder.path().join("again.conf")).unwrap(), settings);
    }

    #[test]
    fn includes_that_leave_the_folder_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("postgresql.conf");
        for (text, expected) in [
            ("work_mem = 1MB\n", false),
            ("include 'own.conf'\ninclude_dir = 'conf.d'\n", false),
            ("include_if_exists '../etc/x.conf'\n", true),
            ("include_dir '/etc/postgresql/conf.d'\n", true),
            ("#include '/etc/x'\n", false),
        ] {
            put(folder.path(), "postgresql.conf", text);
            assert_eq!(leaves(&file, folder.path()).unwrap(), expected, "{text}");
        }
        assert!(!leaves(&folder.path().join("none.conf"), folder.path()).unwrap());
    }

    #[test]
    fn a_loop_of_includes_ends_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "postgresql.conf", "include 'postgresql.conf'\n");
        assert_eq!(of_data(folder.path()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
