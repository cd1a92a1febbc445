//! Branches: made, forked, captured and put back, with real servers.

mod checkpoint;
mod crash;
mod create;
mod drill;
mod faults;
mod fork;
mod hostile_source;
mod login;
mod outside;
mod reflink;
mod registry;

use std::path::Path;
use std::process::Command;

use forklift::branch::{Branch, Branches, CreateOptions, Origin, ServerState, StartOptions};
use forklift::postgres::UrlForm;
use forklift::store::{Half, Ref, RefKind, Session, Store};
use forklift::{Control, Environment};

use super::support::signal;

/// A store with its branches in a temporary folder; servers are stopped on drop whatever happens.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) branches: Branches,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(&environment())
    }

    /// With servers under an account, as where namespaces are refused; as the caller where that is not root.
    pub(crate) fn without_namespaces() -> Self {
        let keeper = env!("CARGO_BIN_EXE_forklift-keeper");
        Self::with(&Environment::of([("PATH", "/usr/bin:/bin"), ("FORKLIFT_KEEPER", keeper), ("FORKLIFT_NO_USER_NAMESPACE", "1")]))
    }

    /// In a folder of this one.
    pub(crate) fn below(folder: &Path) -> Self {
        Self::at(tempfile::tempdir_in(folder).unwrap(), &environment())
    }

    fn with(environment: &Environment) -> Self {
        Self::at(tempfile::tempdir().unwrap(), environment)
    }

    fn at(folder: tempfile::TempDir, environment: &Environment) -> Self {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let branches = Branches::open(&store, environment).unwrap();
        Self { folder, store, branches }
    }

    /// As another process would: opening sweeps.
    pub(crate) fn reopen(&self) -> Branches {
        Branches::open(&self.store, &environment()).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn empty(&self, name: &str) -> Branch {
        self.branches.create(name, &Origin::Empty, &CreateOptions::default(), &silent()).unwrap()
    }

    /// A new branch whose server runs.
    pub(crate) fn running(&self, name: &str, sql: &str) -> Branch {
        let branch = self.empty(name);
        start(&branch);
        run(&branch, sql);
        branch
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.branches.list().unwrap().into_iter().map(|info| info.name).collect()
    }

    /// What lies in the folder of branches besides finished ones.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.store.branches()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for info in self.branches.list().unwrap_or_default() {
            if info.state != ServerState::Stopped
                && let Some(pid) = info.pid
            {
                signal(pid, libc::SIGQUIT);
            }
        }
        for _ in 0..200 {
            if self.branches.list().unwrap_or_default().iter().all(|info| info.state == ServerState::Stopped) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
    }
}

pub(crate) fn environment() -> Environment {
    Environment::of([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("FORKLIFT_KEEPER", env!("CARGO_BIN_EXE_forklift-keeper"))])
}

pub(crate) fn silent() -> Control {
    Control::silent()
}

pub(crate) fn start(branch: &Branch) {
    let info = branch.start(StartOptions::default(), &silent()).unwrap();
    assert_eq!(info.state, ServerState::Running);
}

pub(crate) fn stop(branch: &Branch) {
    branch.stop(&silent()).unwrap();
    assert_eq!(branch.info().unwrap().state, ServerState::Stopped);
}

/// A session by the URL, as a program of the user makes it.
pub(crate) fn client(branch: &Branch) -> postgres::Client {
    postgres::Client::connect(&branch.url(UrlForm::Socket).unwrap(), postgres::NoTls).unwrap()
}

pub(crate) fn run(branch: &Branch, sql: &str) {
    client(branch).batch_execute(sql).unwrap();
}

/// Rows as text, columns joined by `|`.
pub(crate) fn rows(branch: &Branch, sql: &str) -> Vec<String> {
    use postgres::SimpleQueryMessage::Row;
    let messages = client(branch).simple_query(sql).unwrap();
    let line = |row: &postgres::SimpleQueryRow| (0..row.len()).map(|at| row.get(at).unwrap_or("null")).collect::<Vec<_>>().join("|");
    messages.iter().filter_map(|message| if let Row(row) = message { Some(line(row)) } else { None }).collect()
}

/// The one value.
pub(crate) fn value(branch: &Branch, sql: &str) -> String {
    let rows = rows(branch, sql);
    assert_eq!(rows.len(), 1, "{sql}");
    rows[0].clone()
}

/// Commits a captured cluster as a checkpoint of `branch`.
pub(crate) fn commit(session: Session, branch: &Branch, half: Half) -> Ref {
    let reference = Ref {
        id: forklift::sys::id::sortable().unwrap(),
        name: None,
        created_ms: 0,
        kind: RefKind::Capture,
        project: None,
        branch: Some(branch.record().id.clone()),
        session: None,
        turn: None,
        tool: None,
        files: None,
        cluster: Some(half),
        facts: serde_json::Value::Null,
        boot_id: forklift::sys::process::boot_id().unwrap(),
    };
    session.commit(&reference).unwrap();
    reference
}

/// A client program of Postgres.
pub(crate) fn program(branch: &Branch, name: &str) -> Command {
    let bin = branch.record().postgres.join(name);
    let credentials = branch.credentials().unwrap();
    let mut command = Command::new(bin);
    command
        .env("PGHOST", &branch.record().address.public)
        .env("PGPORT", "5432")
        .env("PGUSER", &credentials.url.name)
        .env("PGPASSWORD", &credentials.url.password)
        .env("PGDATABASE", &credentials.database);
    command
}
