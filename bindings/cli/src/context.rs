//! Where a command works: which folder, which store, which programs.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use forklift::branch::Branches;
use forklift::project::{Project, ProjectOptions};
use forklift::store::Store;
use forklift::{Control, Environment, Error, ErrorKind, ProgressSink, Result};

use crate::arguments::Global;
use crate::progress::Bar;
use crate::signals::Signals;

/// What the global options and the process say.
pub(crate) struct Context {
    folder: PathBuf,
    store: Option<PathBuf>,
    environment: Environment,
    signals: Signals,
    bar: Option<Arc<Bar>>,
}

impl Context {
    pub(crate) fn new(global: &Global, folder: PathBuf, environment: Environment, signals: Signals, bar: Option<Arc<Bar>>) -> Result<Self> {
        let folder = match &global.folder {
            Some(named) => existing(resolve(&folder.join(named))?)?,
            None => resolve(&folder)?,
        };
        let store = global.store.as_ref().map(|store| resolve(&folder.join(store))).transpose()?;
        let environment = match &global.postgres {
            Some(bin) => environment.with("FORKLIFT_POSTGRES", installation(resolve(&folder.join(bin))?)?),
            None => environment,
        };
        Ok(Self { folder, store, environment, signals, bar })
    }

    /// The folder that relative paths start from.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// For an operation of ours: ends on Ctrl-C and SIGTERM, shows its progress.
    pub(crate) fn control(&self) -> Control {
        Control::new(self.signals.interrupt.clone(), self.sink())
    }

    /// For a command that we run: Ctrl-C is its own affair.
    pub(crate) fn control_of_command(&self) -> Control {
        Control::new(self.signals.terminate.clone(), self.sink())
    }

    pub(crate) fn project_options(&self) -> ProjectOptions {
        ProjectOptions { store: self.store.clone() }
    }

    /// The project of the folder. A store that was named must be there, also where the project has its own.
    pub(crate) fn project(&self) -> Result<Project> {
        self.project_in(&self.environment)
    }

    /// The same in an environment with options of the command.
    pub(crate) fn project_in(&self, environment: &Environment) -> Result<Project> {
        if let Some(store) = &self.store {
            Store::open(store)?;
        }
        Project::open(&self.folder, &self.project_options(), environment)
    }

    /// The store that branches are looked for in; made where it is missing.
    pub(crate) fn store(&self) -> Result<Store> {
        Store::open_or_create(&self.store_path()?)
    }

    /// The store, which must be there.
    pub(crate) fn existing_store(&self) -> Result<Store> {
        Store::open(&self.store_path()?)
    }

    /// The branches, where there is a store at all; one that was named must be there.
    pub(crate) fn existing_branches(&self) -> Result<Option<Branches>> {
        let path = self.store_path()?;
        if self.store.is_none() && !path.try_exists().map_err(|source| Error::io("look at", &path, source))? {
            return Ok(None);
        }
        Branches::open(&Store::open(&path)?, &self.environment).map(Some)
    }

    /// The branches of a store that a named branch must be in.
    pub(crate) fn branches_with(&self, name: &str) -> Result<Branches> {
        let missing = |path: &Path| {
            Error::new(ErrorKind::NotFound, format!("no branch {name}: there is no store in {}", path.display()))
                .hint("make a branch with `forklift branch create NAME`, or name the right store with --store")
                .with("branch", name)
                .with("path", path.display())
        };
        match self.existing_branches()? {
            Some(branches) => Ok(branches),
            None => Err(missing(&self.store_path()?)),
        }
    }

    /// The one named, else that of the project we are in, else the environment's.
    fn store_path(&self) -> Result<PathBuf> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        match self.project() {
            Ok(project) => Ok(project.store().path().to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => self.environment.store_path(),
            Err(error) => {
                let hint = format!(
                    "{}name a store with --store to leave the project out",
                    error.hint_text().map(|hint| format!("{hint}; or ")).unwrap_or_default()
                );
                Err(error.while_doing("the project of this folder names the store").hint(hint))
            }
        }
    }

    fn sink(&self) -> Option<Arc<dyn ProgressSink>> {
        self.bar.clone().map(|bar| bar as Arc<dyn ProgressSink>)
    }
}

fn resolve(path: &Path) -> Result<PathBuf> {
    absolute(path).map_err(|source| Error::io("resolve", path, source))
}

/// What `--postgres` names: the folder of the programs, the one above it, or one of the programs.
fn installation(named: PathBuf) -> Result<PathBuf> {
    if named.is_file() || ["postgres", "bin/postgres"].iter().any(|program| named.join(program).is_file()) {
        return Ok(named);
    }
    let what = if named.exists() { "there is no postgres program in it" } else { "it does not exist" };
    Err(Error::new(ErrorKind::PostgresNotFound, format!("--postgres {}: {what}", named.display()))
        .hint("name the folder that holds postgres and initdb; `forklift postgres list` shows what is found without --postgres")
        .with("path", named.display()))
}

fn existing(folder: PathBuf) -> Result<PathBuf> {
    let found = folder.metadata().map_err(|source| Error::io("work in", &folder, source).hint("name an existing folder with -C"))?;
    if found.is_dir() {
        return Ok(folder);
    }
    let error = Error::new(ErrorKind::InvalidArgument, format!("{} is no folder", folder.display()));
    Err(error.hint("name an existing folder with -C").with("path", folder.display()))
}
