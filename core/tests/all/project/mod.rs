//! Projects with a database: files and rows captured, put back and recovered together, with real servers and processes.

mod broken_off;
mod busy;
mod clients;
mod crash;
mod full;
mod inside;
mod left_alone;
mod pair;
mod refused;
mod rewinds;
mod turns;
mod worktrees;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use forklift::branch::{Branch, Branches, CreateOptions, Origin, ServerState, StartOptions};
use forklift::postgres::UrlForm;
use forklift::project::{CaptureOptions, CaptureReport, Project, ProjectOptions, RestoreOptions, RestoreReport, SetupOptions, SetupReport};
use forklift::store::Store;
use forklift::{Control, Environment, Result};

use super::support::signal;

/// A machine of its own: data folder, store, a seed branch with three invoices, and worktrees. Servers are stopped on drop.
pub(crate) struct World {
    folder: tempfile::TempDir,
    branches: Branches,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// In a folder of this one.
    pub(crate) fn below(folder: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir_in(folder).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        let store = Store::open_or_create(&folder.path().canonicalize().unwrap().join("store")).unwrap();
        let environment = environment_of(&folder.path().canonicalize().unwrap(), &[]);
        let branches = Branches::open(&store, &environment).unwrap();
        let world = Self { folder, branches };
        let seed = world.branches.create("main", &Origin::Empty, &CreateOptions::default(), &silent()).unwrap();
        seed.start(StartOptions::default(), &silent()).unwrap();
        run(&seed, "CREATE TABLE invoices (id bigserial PRIMARY KEY, amount int); INSERT INTO invoices (amount) VALUES (50), (125), (40)");
        seed.stop(&silent()).unwrap();
        world
    }

    /// With one worktree `work`, bound to a branch of its own.
    pub(crate) fn with_project() -> (Self, Project) {
        Self::new().bound()
    }

    fn bound(self) -> (Self, Project) {
        let world = self;
        write(&world.path("work/app.py"), "version = 1\n");
        write(&world.path("work/lib/util.py"), "one\n");
        let (project, report) = world.setup("work", &[]).unwrap();
        assert_eq!(report.branch.as_deref(), Some("work"));
        (world, project)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn environment(&self, more: &[(&str, &str)]) -> Environment {
        environment_of(&self.path(""), more)
    }

    pub(crate) fn setup(&self, folder: &str, more: &[(&str, &str)]) -> Result<(Project, SetupReport)> {
        let setup = SetupOptions { from: Some("main".to_owned()), ..SetupOptions::default() };
        Project::setup(&self.path(folder), &setup, &ProjectOptions::default(), &self.environment(more), &silent())
    }

    pub(crate) fn open(&self, folder: &str, more: &[(&str, &str)]) -> Project {
        Project::open(&self.path(folder), &ProjectOptions::default(), &self.environment(more)).unwrap()
    }

    pub(crate) fn branch(&self, name: &str) -> Branch {
        self.branches.find(name).unwrap()
    }

    /// A process of its own that runs one of the tests named `child_...`.
    pub(crate) fn child(&self, test: &str, failpoint: &str) -> Command {
        let mut words = self.child_words(test).into_iter();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).envs(variables(&self.path(""))).env("FORKLIFT_FAILPOINT", failpoint).env_remove("FORKLIFT_RUN_TOKEN");
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    }

    fn child_words(&self, test: &str) -> Vec<OsString> {
        let program: OsString = std::env::current_exe().unwrap().into();
        let arguments = ["--exact", "-q", &format!("project::{test}")].map(OsString::from);
        [program].into_iter().chain(arguments).collect()
    }

    /// The same as the words of a command that `run` starts.
    pub(crate) fn words(&self, test: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["env".into()];
        for (name, value) in variables(&self.path("")) {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
        words.extend(self.child_words(test));
        words
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for _ in 0..400 {
            let infos = self.branches.list().unwrap_or_default();
            let running: Vec<_> = infos.iter().filter(|info| info.state != ServerState::Stopped).collect();
            if running.is_empty() {
                break;
            }
            running.iter().filter_map(|info| info.pid).for_each(|pid| signal(pid, libc::SIGQUIT));
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
    }
}

fn variables(top: &Path) -> Vec<(&'static str, OsString)> {
    vec![
        (CHILD, top.into()),
        ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ("FORKLIFT_KEEPER", env!("CARGO_BIN_EXE_forklift-keeper").into()),
        ("FORKLIFT_DATA", top.join("data").into()),
        ("FORKLIFT_STORE", top.join("store").into()),
        ("HOME", top.join("home").into()),
    ]
}

fn environment_of(top: &Path, more: &[(&str, &str)]) -> Environment {
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
    Environment::of(variables(top).into_iter().map(|(name, value)| (name.to_owned(), value)).chain(more))
}

/// The folder of the world that started this process; without one, the test is run among all and does nothing.
const CHILD: &str = "FORKLIFT_TEST_PROJECT_CHILD";

pub(crate) fn parent() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// The project of the world that started this process, if one did.
pub(crate) fn inherited() -> Option<Project> {
    Some(Project::open(&parent()?.join("work"), &ProjectOptions::default(), &Environment::read()).unwrap())
}

pub(crate) fn silent() -> Control {
    Control::silent()
}

pub(crate) fn capture(project: &Project, name: &str) -> CaptureReport {
    project.capture(name, &CaptureOptions::default(), &silent()).unwrap()
}

pub(crate) fn restore(project: &Project, name: &str) -> RestoreReport {
    project.restore(name, &RestoreOptions::default(), &silent()).unwrap()
}

pub(crate) fn write(path: &Path, text: &str) {
    forklift::sys::fs::make_folder(path.parent().unwrap(), 0o755).unwrap();
    std::io::Write::write_all(&mut std::fs::File::create(path).unwrap(), text.as_bytes()).unwrap();
}

pub(crate) fn read(path: &Path) -> String {
    text(path).unwrap()
}

/// The content of a file, where it is there.
pub(crate) fn text(path: &Path) -> Option<String> {
    forklift::sys::fs::read_optional(path).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
}

pub(crate) fn client(branch: &Branch) -> postgres::Client {
    postgres::Client::connect(&branch.url(UrlForm::Socket).unwrap(), postgres::NoTls).unwrap()
}

pub(crate) fn run(branch: &Branch, sql: &str) {
    client(branch).batch_execute(sql).unwrap();
}

/// What an agent does to files and rows; again and again, if need be.
pub(crate) fn edit(work: &Path, branch: &Branch) {
    write(&work.join("app.py"), "version = 2\n");
    write(&work.join("new/made.py"), &format!("made {}\n", text(&work.join("new/made.py")).unwrap_or_default()));
    drop(std::fs::remove_file(work.join("lib/util.py")));
    run(branch, "ALTER TABLE invoices ADD IF NOT EXISTS archived bool DEFAULT false");
    run(branch, "UPDATE invoices SET archived = true, amount = amount + 1 WHERE id = 3");
}

/// Files and rows as one text.
pub(crate) fn state(work: &Path, branch: &Branch) -> String {
    let names = ["app.py", "lib/util.py", "new/made.py"];
    let files = names.map(|name| format!("{name}: {:?}", text(&work.join(name))));
    let ran = branch.info().unwrap().state == ServerState::Running;
    branch.start(StartOptions::default(), &silent()).unwrap();
    let rows = client(branch).simple_query("SELECT to_jsonb(invoices)::text FROM invoices ORDER BY id").unwrap();
    let rows: Vec<_> = rows
        .iter()
        .filter_map(|message| if let postgres::SimpleQueryMessage::Row(row) = message { row.get(0).map(str::to_owned) } else { None })
        .collect();
    if !ran {
        branch.stop(&silent()).unwrap();
    }
    format!("{}\n{}", files.join("\n"), rows.join("\n"))
}
