//! Binding a worktree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::configuration::{self, Configuration, ConnectionForm};
use super::database::Database;
use super::handle::{identity_in, scope_of};
use super::identity::{self, Lookup};
use super::record::{FORMAT, Folder, FolderId, ProjectRecord, read_json, write_json};
use super::{Project, ProjectOptions, failpoint};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::store::Store;
use crate::sys::fs::{self, Syncs};
use crate::sys::lock::{Lock, Mode};

const PATIENCE: Duration = Duration::from_secs(600);
/// Longest name of a branch.
const MAX_BRANCH: usize = 63;

/// How to bind.
#[derive(Debug, Clone, Default)]
pub struct SetupOptions {
    /// Fork the worktree's own branch from this branch (its last state; never interrupts it).
    pub from: Option<String>,
    /// Name of the new branch; made of the folder's name where not said.
    pub branch: Option<String>,
    /// No database: a project of files only. Also the default where `from` is absent and `.forklift.json` does not say `database: true`.
    pub files_only: bool,
}

/// What was made.
#[derive(Debug, Clone, Serialize)]
pub struct SetupReport {
    /// Project id.
    pub id: String,
    /// Worktree.
    #[serde(serialize_with = "crate::report::path")]
    pub root: PathBuf,
    /// Store.
    #[serde(serialize_with = "crate::report::path")]
    pub store: PathBuf,
    /// Branch.
    pub branch: Option<String>,
    /// `.forklift.json` was written (it was absent).
    pub configuration_written: bool,
    /// Anything worth knowing.
    pub warnings: Vec<String>,
}

/// `setup.json`: a setup that has not written its record; what it made is found by its project id.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Intent {
    format: u32,
    #[serde(with = "super::paths")]
    root: PathBuf,
    /// It makes a branch.
    branch: bool,
}

impl Project {
    /// Binds `folder` to a store and, with `from`, to a new branch of its own. The id in Git's administrative folder (without
    /// Git: the machine-local record) is written last and is what makes it a project; what a killed setup leaves is removed by the next one.
    ///
    /// # Errors
    /// `AlreadyExists` for a folder that is bound and for a branch name that is taken; `InvalidArgument` for a home folder, a
    /// file system root and options that contradict each other or `.forklift.json`; `Config`; `NotFound` for the source branch. Nothing is left then.
    pub fn setup(
        folder: &Path,
        setup: &SetupOptions,
        options: &ProjectOptions,
        environment: &Environment,
        control: &Control,
    ) -> Result<(Self, SetupReport)> {
        let root = folder.canonicalize().map_err(|source| Error::io("open worktree", folder, source))?;
        if !root.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is not a folder", root.display())).with("path", root.display()));
        }
        let (configuration, absent) = match Configuration::load(&root) {
            Err(error) if error.kind() == ErrorKind::NotFound => (Configuration::propose(&root, setup.from.is_some())?, true),
            other => (other?, false),
        };
        check_options(setup, configuration.database)?;
        Store::check_outside(&root)?;
        check_no_part(&root, environment)?;
        check_unbound(&root, options, environment)?;
        let path = match &options.store {
            Some(path) => std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))?,
            None => environment.store_path()?,
        };
        let home = environment.get("HOME").map(PathBuf::from);
        check_scope(&root, &path, &configuration, home.as_deref())?;
        let store = Store::open_or_create(&path)?;
        fs::make_folder(&store.projects(), 0o700)?;
        let _alone = Lock::wait(&store.projects().join("setup.lock"), Mode::Exclusive, PATIENCE, control)?;
        check_unbound(&root, options, environment)?;
        sweep(&store, environment, control)?;
        let mut making = Making::new(root, store, environment)?;
        match making.run(setup, &configuration, absent, control) {
            Ok(done) => Ok(done),
            Err(error) => match making.undo(setup.from.is_some(), &control.uncancellable()) {
                Ok(()) => Err(error),
                Err(second) => Err(error.hint(format!("what it made was not all removed ({second}); the next `project setup` does it"))),
            },
        }
    }
}

/// One setup in progress.
struct Making<'a> {
    id: String,
    root: PathBuf,
    store: Store,
    folder: Folder,
    environment: &'a Environment,
    configuration_written: bool,
    syncs: Syncs,
}

impl<'a> Making<'a> {
    fn new(root: PathBuf, store: Store, environment: &'a Environment) -> Result<Self> {
        let id = crate::sys::id::sortable()?;
        let folder = Folder::new(&store, &id);
        Ok(Self { id, root, store, folder, environment, configuration_written: false, syncs: Syncs::new() })
    }

    fn run(
        &mut self,
        setup: &SetupOptions,
        configuration: &Configuration,
        absent: bool,
        control: &Control,
    ) -> Result<(Project, SetupReport)> {
        fs::make_folder(self.folder.path(), 0o700)?;
        write_json(&self.folder.intent(), &Intent { format: FORMAT, root: self.root.clone(), branch: setup.from.is_some() }, &self.syncs)?;
        self.pass("setup-intent-written")?;
        let mut warnings = Vec::new();
        let mut database = None;
        if let Some(from) = &setup.from {
            let name = setup.branch.clone().unwrap_or_else(|| branch_name(&self.root));
            let tcp = configuration.connection == ConnectionForm::Tcp;
            let (made, said) = Database::fork(&self.store, self.environment, from, &name, setup.branch.is_some(), tcp, &self.id, control)?;
            warnings.extend(said);
            database = Some(made);
        }
        self.pass("setup-branch-forked")?;
        control.check()?;
        let record = ProjectRecord {
            format: FORMAT,
            id: self.id.clone(),
            root: self.root.clone(),
            folder: FolderId::of(&self.root)?,
            created_ms: crate::sys::id::now_ms(),
            branch: database.as_ref().map(|database| database.id().to_owned()),
        };
        record.save(&self.folder, &self.syncs)?;
        self.syncs.folder(&self.store.projects())?;
        self.pass("setup-record-written")?;
        if absent {
            self.write_configuration(configuration)?;
        }
        self.pass("setup-configuration-written")?;
        warnings.extend(identity::bind(&self.root, &identity_in(&self.store, &self.id), self.environment, &self.syncs)?);
        self.pass("setup-identity-written")?;
        fs::remove_file(&self.folder.intent())?;
        let report = SetupReport {
            id: self.id.clone(),
            root: self.root.clone(),
            store: self.store.path().to_owned(),
            branch: database.map(|database| database.name().to_owned()),
            configuration_written: self.configuration_written,
            warnings,
        };
        let project = Project::assemble(&self.root, &self.root, record, self.store.clone(), self.environment, Vec::new())?;
        Ok((project, report))
    }

    fn write_configuration(&mut self, configuration: &Configuration) -> Result<()> {
        match fs::publish(&self.root.join(configuration::FILE), &configuration.to_bytes()?, 0o644, &self.syncs) {
            Ok(()) => self.configuration_written = true,
            // Somebody wrote one meanwhile: theirs counts.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn undo(&self, branch: bool, control: &Control) -> Result<()> {
        identity::unbind(&self.root, &self.id, self.environment)?;
        if self.configuration_written {
            fs::remove_file(&self.root.join(configuration::FILE))?;
        }
        if branch {
            Database::remove_of_project(&self.store, self.environment, &self.id, control)?;
        }
        fs::remove_tree(self.folder.path())
    }

    fn pass(&self, step: &'static str) -> Result<()> {
        failpoint::pass(self.environment, step)
    }
}

/// Removes what killed setups left in this store; the caller holds the setup lock, so no setup is under way. One whose id was
/// written is whole: only its intent goes.
fn sweep(store: &Store, environment: &Environment, control: &Control) -> Result<()> {
    for name in fs::names(&store.projects())? {
        let Some(id) = name.to_str().filter(|id| super::checkpoints::is_id(id)) else { continue };
        let folder = Folder::new(store, id);
        let Some(intent) = read_json::<Intent>(&folder.intent())? else {
            // Killed between the folder and the intent: nothing else can be there.
            if !folder.record().exists() && fs::names(folder.path())?.is_empty() {
                fs::remove_tree(folder.path())?;
            }
            continue;
        };
        if folder.record().exists() && identity::is_bound_to(&intent.root, id, environment) {
            fs::remove_file(&folder.intent())?;
            continue;
        }
        if intent.branch {
            match Database::remove_of_project(store, environment, id, control) {
                // Only a build with Postgres can do it.
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                other => other?,
            }
        }
        fs::remove_tree(folder.path())?;
    }
    Ok(())
}

fn check_options(setup: &SetupOptions, database: Option<bool>) -> Result<()> {
    let wrong = |message: &str, hint: &str| Err(Error::new(ErrorKind::InvalidArgument, message).hint(hint));
    match (&setup.from, setup.files_only, database) {
        (Some(_), true, _) => wrong("a project of files only has no branch to fork from", "leave out either --from or --files-only"),
        (Some(_), _, Some(false)) => {
            wrong(".forklift.json says `database: false`, but a branch to fork from is named", "change one of them")
        }
        (None, _, Some(true)) => wrong(
            ".forklift.json says `database: true`, but no branch to fork from is named",
            "name it with --from BRANCH, or say `\"database\": false` there",
        ),
        (None, _, _) if setup.branch.is_some() => wrong("a new branch is named, but none to fork from", "name it with --from BRANCH"),
        _ => Ok(()),
    }
}

/// A folder below a bound worktree is a part of that one, unless it is a worktree or says that it is a project of its own.
fn check_no_part(root: &Path, environment: &Environment) -> Result<()> {
    if root.join(".git").symlink_metadata().is_ok() || root.join(configuration::FILE).symlink_metadata().is_ok() {
        return Ok(());
    }
    for above in root.ancestors().skip(1) {
        if let Lookup::Bound(identity) = identity::look_up(above, environment)? {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} is a part of the worktree {}, which is bound to project {}", root.display(), above.display(), identity.project),
            )
            .with("path", root.display())
            .with("project", &identity.project)
            .hint(format!(
                "work in that project; for one of its own make a Git repository or a {} in this folder first",
                configuration::FILE
            )));
        }
        // What is above another worktree has no part in it.
        if above.join(".git").symlink_metadata().is_ok() {
            return Ok(());
        }
    }
    Ok(())
}

/// A copy of a worktree, and one that was made again, are not bound: they get projects of their own.
fn check_unbound(root: &Path, options: &ProjectOptions, environment: &Environment) -> Result<()> {
    let Lookup::Bound(identity) = identity::look_up(root, environment)? else { return Ok(()) };
    match Project::open(root, options, environment) {
        Ok(_) => {}
        // Bound to another store than the one that is named.
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {}
        // A copy, or one whose project is gone from its store.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && error.context().iter().all(|(key, _)| *key != "store") => return Ok(()),
        Err(error) => return Err(error),
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        format!("{} is bound already, to project {} in {}", root.display(), identity.project, identity.store.display()),
    )
    .with("path", root.display())
    .with("project", &identity.project)
    .hint("look at it with `forklift project status`"))
}

fn check_scope(root: &Path, store: &Path, configuration: &Configuration, home: Option<&Path>) -> Result<()> {
    let mut scope = scope_of(root, None, configuration.source.clone(), configuration.exclude.clone());
    scope.never.push(store.to_owned());
    scope.check(home)
}

/// A valid name made of the folder's.
fn branch_name(root: &Path) -> String {
    let folder = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let valid = folder.chars().map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' });
    let name: String = valid.skip_while(|letter| !letter.is_ascii_alphanumeric()).take(MAX_BRANCH).collect();
    if name.is_empty() { "worktree".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_are_valid() {
        for (folder, name) in
            [("agent-a", "agent-a"), ("..x y", "x-y"), ("日本", "worktree"), ("a日", "a-"), (&*"x".repeat(99), &"x".repeat(63))]
        {
            assert_eq!(branch_name(&Path::new("/").join(folder)), name);
        }
    }
}
