//! `.forklift.json`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// Name of the file in the worktree.
pub(super) const FILE: &str = ".forklift.json";
const FORMAT: u32 = 1;
const MAX_BYTES: usize = 1 << 20;
/// Set by `run` itself or needed to find programs: they cannot carry the URL.
const TAKEN: &[&str] = &["PATH", "HOME", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "LD_PRELOAD", "LD_LIBRARY_PATH"];

/// How `run` and `url` name the server by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionForm {
    /// Unix socket.
    #[default]
    Socket,
    /// TCP on the loopback address.
    Tcp,
}

/// The file, format 1. Unknown keys are refused by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// 1.
    pub format: u32,
    /// Selected paths; absent: the whole worktree by its ignore rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<PathBuf>>,
    /// Patterns left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Variable that gets the URL; `DATABASE_URL`.
    #[serde(default = "default_connection_env")]
    pub connection_env: String,
    /// Socket or TCP.
    #[serde(default)]
    pub connection: ConnectionForm,
    /// Named commands: program and arguments.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, Vec<String>>,
    /// Commands that stop and start a long-running app around a restore.
    #[serde(default, skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// Whether there is a database; absent: decided by `setup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<bool>,
}

/// The stop and start hooks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// Program and arguments; its exit code 0 says that the app ran and was stopped, 1 that it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// Program and arguments; run only if `stop` said that the app ran and the operation succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Vec<String>>,
}

impl Hooks {
    fn is_empty(&self) -> bool {
        self.stop.is_none() && self.start.is_none()
    }
}

fn default_connection_env() -> String {
    "DATABASE_URL".to_owned()
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            format: FORMAT,
            source: None,
            exclude: Vec::new(),
            connection_env: default_connection_env(),
            connection: ConnectionForm::Socket,
            commands: BTreeMap::new(),
            hooks: Hooks::default(),
            database: None,
        }
    }
}

impl Configuration {
    /// Reads and checks `.forklift.json` in `root`.
    ///
    /// # Errors
    /// `NotFound` where there is none; `Config` names the key, path or format that is wrong and what is allowed.
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let bytes = fs::read(&path)?;
        Self::parse(&bytes).map_err(|(message, hint)| {
            Error::new(ErrorKind::Config, format!("{}: {message}", path.display())).with("path", path.display()).hint(hint)
        })
    }

    /// As [`Configuration::load`]; where the file is absent, what an empty one would say.
    pub(super) fn load_or_default(root: &Path) -> Result<Self> {
        match Self::load(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            other => other,
        }
    }

    /// What `setup` writes for this folder (TCP where package.json names postgres.js or Prisma).
    ///
    /// # Errors
    /// `Io`, `Permission` where package.json cannot be read; one that does not parse names nothing.
    pub fn propose(root: &Path, database: bool) -> Result<Self> {
        let tcp = database && needs_tcp(root)?;
        let connection = if tcp { ConnectionForm::Tcp } else { ConnectionForm::Socket };
        Ok(Self { connection, database: Some(database), ..Self::default() })
    }

    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|error| Error::new(ErrorKind::Config, format!("{FILE} cannot be written: {error}")))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Message and hint where it is wrong.
    fn parse(bytes: &[u8]) -> std::result::Result<Self, (String, String)> {
        let correct = || format!("correct {FILE} and try again");
        if bytes.len() > MAX_BYTES {
            return Err((format!("larger than {MAX_BYTES} bytes"), correct()));
        }
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| (format!("not JSON: {error}"), correct()))?;
        let format = value.get("format").ok_or_else(|| ("`format` is missing".to_owned(), "add \"format\": 1".to_owned()))?;
        match format.as_u64() {
            Some(found) if found == u64::from(FORMAT) => {}
            Some(found) if found > u64::from(FORMAT) => {
                let message = format!("`format` {found} is newer than this build knows (allowed: {FORMAT})");
                return Err((message, "use a newer forklift".to_owned()));
            }
            _ => return Err((format!("`format` is {format} (allowed: {FORMAT})"), correct())),
        }
        // From the bytes again, so that the message has the line.
        let configuration: Self = serde_json::from_slice(bytes).map_err(|error| (error.to_string(), correct()))?;
        configuration.check().map_err(|message| (message, correct()))?;
        Ok(configuration)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if let Some(source) = &self.source {
            if source.is_empty() {
                return Err("`source` is empty (allowed: at least one path, or no `source` for the whole worktree)".to_owned());
            }
            source.iter().try_for_each(|path| check_source(path))?;
        }
        if let Some(pattern) = self.exclude.iter().find(|pattern| pattern.is_empty() || pattern.contains(['\0', '\n'])) {
            return Err(format!("`exclude` has the pattern {pattern:?} (allowed: one line in the syntax of .gitignore)"));
        }
        check_variable(&self.connection_env)?;
        for (name, command) in &self.commands {
            if name.is_empty() || name.starts_with('-') || name.contains(|letter: char| letter == '/' || letter.is_control()) {
                return Err(format!("`commands` has the name {name:?} (allowed: not empty, no `/` or control characters, no leading `-`)"));
            }
            check_command(&format!("commands.{name}"), command)?;
        }
        for (key, command) in [("hooks.stop", &self.hooks.stop), ("hooks.start", &self.hooks.start)] {
            command.as_deref().map_or(Ok(()), |command| check_command(key, command))?;
        }
        Ok(())
    }
}

fn check_source(path: &Path) -> std::result::Result<(), String> {
    let allowed = "allowed: paths relative to the worktree, below it, and not in a .git";
    let wrong = |part: Component<'_>| match part {
        Component::Normal(name) => name == ".git",
        Component::CurDir => false,
        _ => true,
    };
    if path.as_os_str().is_empty() || path.components().any(wrong) || path.to_string_lossy().contains('\0') {
        return Err(format!("`source` has the path {:?} ({allowed})", path.display().to_string()));
    }
    Ok(())
}

fn check_variable(name: &str) -> std::result::Result<(), String> {
    let mut letters = name.chars();
    let shaped = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !shaped {
        return Err(format!("`connection_env` is {name:?} (allowed: letters, digits and `_`, not starting with a digit)"));
    }
    if TAKEN.contains(&name) || name.starts_with("FORKLIFT_") {
        return Err(format!("`connection_env` is {name:?}, which has another meaning (allowed: a variable of the application)"));
    }
    Ok(())
}

fn check_command(key: &str, command: &[String]) -> std::result::Result<(), String> {
    if command.first().is_none_or(String::is_empty) {
        return Err(format!("`{key}` is empty (allowed: a program and its arguments)"));
    }
    if command.iter().any(|part| part.contains('\0')) {
        return Err(format!("`{key}` has a NUL character"));
    }
    Ok(())
}

fn needs_tcp(root: &Path) -> Result<bool> {
    let Some(bytes) = fs::read_optional(&root.join("package.json"))? else { return Ok(false) };
    let package: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let named =
        |name: &str| ["dependencies", "devDependencies"].iter().any(|part| package.get(part).and_then(|all| all.get(name)).is_some());
    Ok(["postgres", "prisma", "@prisma/client"].into_iter().any(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Configuration::parse(text.as_bytes()).expect_err(text).0
    }

    #[test]
    fn each_mistake_is_named_with_what_is_allowed() {
        for (text, words) in [
            ("{", &["not JSON", "line 1"][..]),
            ("[]", &["`format` is missing"]),
            ("{}", &["`format` is missing"]),
            (r#"{"format": 2}"#, &["newer", "allowed: 1"]),
            (r#"{"format": "1"}"#, &["`format`", "allowed: 1"]),
            (r#"{"format": 1, "sources": []}"#, &["sources", "source", "line 1"]),
            (r#"{"format": 1, "source": "src"}"#, &["string", "sequence"]),
            (r#"{"format": 1, "source": []}"#, &["`source` is empty"]),
            (r#"{"format": 1, "source": ["/etc"]}"#, &["/etc", "relative"]),
            (r#"{"format": 1, "source": ["a/../../b"]}"#, &["a/../../b"]),
            (r#"{"format": 1, "source": [".git/hooks"]}"#, &[".git"]),
            (r#"{"format": 1, "source": [""]}"#, &["`source`"]),
            (r#"{"format": 1, "connection": "udp"}"#, &["udp", "socket", "tcp"]),
            (r#"{"format": 1, "connection_env": "1A"}"#, &["1A", "letters"]),
            (r#"{"format": 1, "connection_env": "PATH"}"#, &["PATH"]),
            (r#"{"format": 1, "connection_env": "FORKLIFT_STORE"}"#, &["FORKLIFT_STORE"]),
            (r#"{"format": 1, "commands": {"verify": []}}"#, &["commands.verify", "empty"]),
            (r#"{"format": 1, "commands": {"a/b": ["x"]}}"#, &["a/b"]),
            (r#"{"format": 1, "hooks": {"stop": [""]}}"#, &["hooks.stop"]),
            (r#"{"format": 1, "hooks": {"restart": ["x"]}}"#, &["restart", "stop", "start"]),
            (r#"{"format": 1, "exclude": [""]}"#, &["exclude"]),
            (r#"{"format": 1, "database": "yes"}"#, &["boolean"]),
        ] {
            let message = message(text);
            for word in words {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
        Configuration::parse(&[b' '; MAX_BYTES + 1]).expect_err("size");
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("package.json");
        for (text, form) in [
            (r#"{"dependencies": {"postgres": "3"}}"#, ConnectionForm::Tcp),
            (r#"{"devDependencies": {"prisma": "6"}}"#, ConnectionForm::Tcp),
            (r#"{"dependencies": {"pg": "8"}}"#, ConnectionForm::Socket),
            ("not json", ConnectionForm::Socket),
        ] {
            fs::replace(&package, text.as_bytes(), 0o644, &fs::Syncs::new()).unwrap();
            let proposed = Configuration::propose(folder.path(), true).unwrap();
            assert_eq!(proposed.connection, form, "{text}");
            fs::replace(&folder.path().join(FILE), &proposed.to_bytes().unwrap(), 0o644, &fs::Syncs::new()).unwrap();
            assert_eq!(Configuration::load(folder.path()).unwrap(), proposed);
        }
    }
}
