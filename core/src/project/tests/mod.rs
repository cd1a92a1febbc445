//! Projects of files only, on real folders, stores and processes.

mod binding;
mod capturing;
mod crashing;
mod faults;
mod locking;
mod pruning;
mod restoring;
mod rewind_crashing;
mod rewinding;
mod turns;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use super::*;
use crate::{Control, Environment};

/// A machine of its own: data folder, store and one worktree.
struct Machine {
    top: PathBuf,
    /// Removed with the machine.
    _folder: Option<tempfile::TempDir>,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { top: Self::at(folder.path().canonicalize().unwrap()).top, _folder: Some(folder) }
    }

    fn at(top: PathBuf) -> Self {
        for folder in ["data", "home", "work"] {
            crate::sys::fs::make_folder(&top.join(folder), 0o700).unwrap();
        }
        Self { top, _folder: None }
    }

    /// With a bound worktree that holds a few files.
    fn with_project() -> (Self, Project) {
        Self::new().with_bound_worktree()
    }

    fn with_bound_worktree(self) -> (Self, Project) {
        let machine = self;
        write(&machine.work().join("app.py"), "version = 1\n");
        write(&machine.work().join("lib/util.py"), "one\n");
        let (project, _) = machine.setup(&machine.work()).unwrap();
        (machine, project)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    fn work(&self) -> PathBuf {
        self.path("work")
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            (CHILD, self.path("")),
            ("FORKLIFT_DATA", self.path("data")),
            ("FORKLIFT_STORE", self.path("store")),
            ("HOME", self.path("home")),
        ]
    }

    fn environment(&self) -> Environment {
        Environment::of(self.variables())
    }

    fn environment_with(&self, name: &str, value: &str) -> Environment {
        Environment::of(
            self.variables()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into_os_string()))
                .chain([(name.to_owned(), value.into())]),
        )
    }

    fn setup(&self, folder: &Path) -> crate::Result<(Project, SetupReport)> {
        Project::setup(folder, &SetupOptions::default(), &ProjectOptions::default(), &self.environment(), &Control::silent())
    }

    fn open(&self, folder: &Path) -> crate::Result<Project> {
        Project::open(folder, &ProjectOptions::default(), &self.environment())
    }

    /// A process of its own that runs one of the tests named `child_...`.
    fn child(&self, test: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", &format!("project::tests::{test}")]);
        command.envs(self.variables()).env_remove("FORKLIFT_RUN_TOKEN").env_remove("FORKLIFT_FAILPOINT");
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    }

    fn killed_at(&self, test: &str, step: &str) -> ExitStatus {
        self.child(test).env("FORKLIFT_FAILPOINT", format!("{step}:kill")).status().unwrap()
    }
}

/// The folder of the machine that started this process; without one, the test is run among all and does nothing.
const CHILD: &str = "FORKLIFT_TEST_PROJECT_CHILD";

#[allow(clippy::disallowed_methods, reason = "tells a child from a test that nobody started as one")]
fn parent() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// The project of the machine that started this process, if one did.
fn inherited() -> Option<Project> {
    Some(Project::open(&parent()?.join("work"), &ProjectOptions::default(), &Environment::read()).unwrap())
}

fn capture(project: &Project, name: &str) -> CaptureReport {
    project.capture(name, &CaptureOptions::default(), &Control::silent()).unwrap()
}

fn restore(project: &Project, name: &str) -> RestoreReport {
    project.restore(name, &RestoreOptions::default(), &Control::silent()).unwrap()
}

fn write(path: &Path, text: &str) {
    crate::sys::fs::make_folder(path.parent().unwrap(), 0o755).unwrap();
    std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes()).unwrap();
}

fn read(path: &Path) -> String {
    String::from_utf8(crate::sys::fs::read(path).unwrap()).unwrap()
}

fn rename(from: &Path, to: &Path) {
    crate::sys::fs::rename_new(from, to).unwrap();
}

/// What an agent does to the worktree.
fn edit(work: &Path) {
    write(&work.join("app.py"), "version = 2\n");
    write(&work.join("new/made.py"), "made\n");
    std::fs::remove_file(work.join("lib/util.py")).unwrap();
    std::fs::set_permissions(work.join("app.py"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Modes and content by name.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// A tree but for `.git`.
fn tree(root: &Path) -> Tree {
    fn walk(root: &Path, folder: &Path, found: &mut Tree) {
        for name in crate::sys::fs::names(folder).unwrap() {
            let path = folder.join(&name);
            if name == ".git" {
                continue;
            }
            let metadata = std::fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_file() { crate::sys::fs::read(&path).unwrap() } else { Vec::new() };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.permissions().mode() & 0o7777, content));
            if metadata.is_dir() {
                walk(root, &path, found);
            }
        }
    }
    let mut found = Tree::new();
    walk(root, root, &mut found);
    found
}
