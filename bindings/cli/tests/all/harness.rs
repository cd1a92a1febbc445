//! A folder of its own with a store, and the program run in it, in this process or as one.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use forklift::Environment;
use forklift_cli::{Host, Signals, run};
use serde_json::Value;
use tempfile::TempDir;

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The facts of a command that succeeded.
    #[track_caller]
    pub(crate) fn facts(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The text of a command that succeeded.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        &self.out
    }

    /// The error of a command that failed with this exit code, told as JSON: exactly the documented members.
    #[track_caller]
    pub(crate) fn error(&self, code: u8) -> Value {
        assert_eq!(self.code, code, "{self:?}");
        let told: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        keys(&told, &["error"]);
        keys(&told["error"], &["kind", "code", "message", "hint", "context"]);
        told["error"].clone()
    }
}

/// Asserts that an object has exactly these members.
#[track_caller]
pub(crate) fn keys(object: &Value, expected: &[&str]) {
    let mut found: Vec<&str> = object.as_object().unwrap_or_else(|| panic!("not an object: {object}")).keys().map(String::as_str).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// A temporary folder with a store; its servers are stopped when it goes, also after a failed test.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("forklift-cli-").tempdir().unwrap();
        // Where root has no user namespaces its servers run under another account, which must be able to pass.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    /// A project of files only, with `one` in `code.txt`.
    pub(crate) fn project_of_files(&self) -> PathBuf {
        let folder = self.path().join("work");
        std::fs::create_dir(&folder).unwrap();
        write(&folder.join("code.txt"), "one\n");
        self.run_in(&folder, &["project", "setup", "--files-only"]).text();
        folder
    }

    fn environment(&self) -> Environment {
        Environment::read().with("FORKLIFT_STORE", self.store()).with("FORKLIFT_KEEPER", keeper())
    }

    /// Runs a command line in this process, started in `folder`.
    pub(crate) fn run_in(&self, folder: &Path, arguments: &[&str]) -> Said {
        self.told(folder, arguments, &[])
    }

    /// The same with this on standard input.
    pub(crate) fn told(&self, folder: &Path, arguments: &[&str], mut stdin: &[u8]) -> Said {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(
            std::iter::once("forklift").chain(arguments.iter().copied()).map(OsString::from),
            Host {
                stdin: &mut stdin,
                stdout: &mut out,
                stderr: &mut err,
                progress: false,
                folder: folder.to_owned(),
                environment: self.environment(),
                signals: Signals::default(),
            },
        );
        Said { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.run_in(self.path(), arguments)
    }

    /// The program as a process of its own, started in `folder`.
    pub(crate) fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forklift"));
        command
            .args(arguments)
            .current_dir(folder)
            .env("FORKLIFT_STORE", self.store())
            .env("FORKLIFT_KEEPER", keeper())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn process(&self, folder: &Path, arguments: &[&str]) -> Said {
        let output = self.command(folder, arguments).output().unwrap();
        let code = u8::try_from(output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"))).unwrap();
        Said { code, out: String::from_utf8(output.stdout).unwrap(), err: String::from_utf8(output.stderr).unwrap() }
    }

    /// A shell command that gives statements (without double quotes) to the psql of the installation that is used.
    pub(crate) fn psql(&self, statements: &str) -> String {
        let found = self.run(&["postgres", "list", "--json"]).facts();
        let with_psql = |one: &&Value| Path::new(one["bin"].as_str().unwrap()).join("psql").exists();
        let one = found
            .as_array()
            .unwrap()
            .iter()
            .find(with_psql)
            .expect("no Postgres with psql: `forklift postgres install` puts one into your data folder");
        let libraries = one["library_path"].as_str().map(|path| format!("LD_LIBRARY_PATH='{path}' ")).unwrap_or_default();
        format!("{libraries}'{}/psql' -qXAt -v ON_ERROR_STOP=1 -c \"{statements}\"", one["bin"].as_str().unwrap())
    }

    /// A folder with one file, set up with a branch of its own that was forked from a new branch with the table `notes`.
    pub(crate) fn project(&self, name: &str) -> PathBuf {
        let folder = self.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        write(&folder.join("code.txt"), "one\n");
        let seed = format!("{name}-seed");
        let fill = self.psql("CREATE TABLE notes (text text); INSERT INTO notes VALUES ('one')");
        self.run(&["branch", "create", &seed, "--seed", &fill]).text();
        self.run_in(&folder, &["project", "setup", "--from", &seed, "--branch", name]).text();
        folder
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.store().exists() {
            return;
        }
        let branches: Value = serde_json::from_str(&self.run(&["branch", "list", "--json"]).out).unwrap_or_default();
        for branch in branches.as_array().into_iter().flatten() {
            self.run(&["branch", "stop", branch["name"].as_str().unwrap_or_default()]);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a failure here is a failed test")]
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[allow(clippy::disallowed_methods, reason = "a failure here is a failed test")]
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The keeper program of this build; made where only this crate was built.
pub(crate) fn keeper() -> PathBuf {
    static KEEPER: OnceLock<PathBuf> = OnceLock::new();
    KEEPER
        .get_or_init(|| {
            let program = Path::new(env!("CARGO_BIN_EXE_forklift")).with_file_name("forklift-keeper");
            if !program.exists() {
                let mut build = Command::new(env!("CARGO"));
                build.args(["build", "--quiet", "--package", "forklift", "--bin", "forklift-keeper"]);
                assert!(build.status().unwrap().success(), "forklift-keeper does not build");
            }
            program
        })
        .clone()
}
