//! An open project.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::configuration::{self, Configuration};
use super::database::Database;
use super::git;
use super::identity::{self, Identity, Lookup};
use super::record::{FORMAT, Folder, FolderId, ProjectRecord};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::files::Scope;
use crate::store::Store;
use crate::sys::fs::Syncs;

/// Where to find things that the worktree's record does not say.
#[derive(Debug, Clone, Default)]
pub struct ProjectOptions {
    /// Store for `setup`, and for worktrees whose record was lost; `FORKLIFT_STORE` or the data folder where not said.
    pub store: Option<PathBuf>,
}

/// A worktree with its store and branch. Shared between threads; operations lock across processes.
#[derive(Debug)]
pub struct Project {
    pub(super) root: PathBuf,
    /// Open for the handle's life, so that its inode is not given to another folder meanwhile.
    root_folder: File,
    /// The folder it was opened from: the root or one below it.
    pub(super) opened: PathBuf,
    pub(super) record: ProjectRecord,
    pub(super) folder: Folder,
    pub(super) store: Store,
    pub(super) environment: Environment,
    notices: Vec<String>,
}

impl Project {
    /// Every step at which `FORKLIFT_FAILPOINT=<step>:kill` or `:fail` acts; for crash tests.
    pub const FAILPOINTS: &'static [&'static str] = super::FAILPOINTS;

    /// Opens the project of `folder` or of the nearest folder above it that has `.forklift.json` or was bound.
    ///
    /// A worktree that was moved is adopted at its new place ([`Project::notices`] says so).
    ///
    /// # Errors
    /// `NotFound` names `forklift project setup`, and tells a worktree that was removed and made again; `AlreadyExists` tells
    /// a copy of another worktree by name; `NotFound` or `Corrupt` names a store that is gone or is another one.
    pub fn open(folder: &Path, options: &ProjectOptions, environment: &Environment) -> Result<Self> {
        let opened = folder.canonicalize().map_err(|source| Error::io("open worktree", folder, source))?;
        let mut recreated = None;
        for root in opened.ancestors() {
            match identity::look_up(root, environment)? {
                Lookup::Bound(identity) => return Self::open_bound(root, &opened, &identity, options, environment),
                Lookup::Recreated(identity) => recreated = recreated.or(Some((root.to_owned(), identity))),
                Lookup::Unbound => {}
            }
            // A linked worktree inside another one is no part of that one's project.
            if root.join(configuration::FILE).is_file() || git::is_linked(root) {
                return Err(recreated.map_or_else(|| unbound(root), |(root, identity)| made_again(&root, &identity)));
            }
        }
        Err(recreated.map_or_else(|| unbound(&opened), |(root, identity)| made_again(&root, &identity)))
    }

    /// Its worktree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its branch, where it has a database.
    ///
    /// # Errors
    /// `NotFound` where the branch is gone.
    #[cfg(feature = "postgres")]
    pub fn branch(&self) -> Result<Option<crate::branch::Branch>> {
        Ok(self.database()?.map(Database::branch))
    }

    /// What opening it found worth saying, such as that the worktree was moved.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Its configuration as it is now; where `.forklift.json` was removed, that of a file that says nothing.
    ///
    /// # Errors
    /// As [`Configuration::load`].
    pub fn configuration(&self) -> Result<Configuration> {
        Configuration::load_or_default(&self.root)
    }

    pub(super) fn database(&self) -> Result<Option<Database>> {
        self.record.branch.as_deref().map(|branch| Database::open(&self.store, &self.environment, branch)).transpose()
    }

    /// Today's scope.
    pub(super) fn scope(&self) -> Result<Scope> {
        let configuration = self.configuration()?;
        let scope = self.scope_with(configuration.source, configuration.exclude);
        scope.check(self.home().as_deref())?;
        Ok(scope)
    }

    /// A scope with today's root.
    pub(super) fn scope_with(&self, source: Option<Vec<PathBuf>>, exclude: Vec<String>) -> Scope {
        scope_of(&self.root, Some(&self.store), source, exclude)
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.environment.get("HOME").map(PathBuf::from)
    }

    /// Fails where the worktree is no longer the folder that was opened.
    pub(super) fn check_root(&self) -> Result<()> {
        let opened = self.root_folder.metadata().map_err(|source| Error::io("look at", &self.root, source))?;
        let here = FolderId::of(&self.root)
            .map_err(|error| error.while_doing("the worktree is gone").hint("open the project again from where the worktree is now"))?;
        if here == FolderId::of_metadata(&opened) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, format!("{} is another folder than the one that was opened", self.root.display()))
            .with("path", self.root.display())
            .hint("open the project again"))
    }

    pub(super) fn assemble(
        root: &Path,
        opened: &Path,
        record: ProjectRecord,
        store: Store,
        environment: &Environment,
        notices: Vec<String>,
    ) -> Result<Self> {
        let root_folder = File::open(root).map_err(|source| Error::io("open worktree", root, source))?;
        let folder = Folder::new(&store, &record.id);
        Ok(Self {
            root: root.to_owned(),
            root_folder,
            opened: opened.to_owned(),
            record,
            folder,
            store,
            environment: environment.clone(),
            notices,
        })
    }

    fn open_bound(root: &Path, opened: &Path, identity: &Identity, options: &ProjectOptions, environment: &Environment) -> Result<Self> {
        let (store, store_moved) = find_store(root, identity, options, environment)?;
        let folder = Folder::new(&store, &identity.project);
        let Some(mut record) = ProjectRecord::load(&folder)? else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the store {} no longer has the project {}", store.path().display(), identity.project),
            )
            .with("path", root.display())
            .hint("bind the worktree anew with `forklift project setup`"));
        };
        let here = FolderId::of(root)?;
        let mut notices = Vec::new();
        let mut home = root.to_owned();
        if record.root != root
            && std::fs::symlink_metadata(&record.root).is_ok()
            && identity::is_bound_to(&record.root, &record.id, environment)
        {
            if !FolderId::of(&record.root)?.same(&here) {
                return Err(copied(root, &record));
            }
            // The same folder under two paths (a bind mount): it keeps its name.
            home.clone_from(&record.root);
        } else if record.root != root {
            notices.push(format!("the worktree was moved from {} to {}", record.root.display(), root.display()));
        } else if !record.folder.same(&here) {
            notices.push(format!("the worktree {} was made again with the id of project {}", root.display(), record.id));
        }
        if let Some(old) = store_moved {
            notices.push(format!("the store was moved from {} to {}", old.display(), store.path().display()));
        }
        if home == root && (record.root != home || record.folder != here || !notices.is_empty()) {
            let old_root = std::mem::replace(&mut record.root, home.clone());
            record.folder = here;
            if let Err(error) = adopt(&record, &old_root, &store, &folder, environment) {
                notices.push(format!("the new place was not recorded: {error}"));
            }
        }
        let opened = if home == root { opened.to_owned() } else { home.join(opened.strip_prefix(root).unwrap_or(Path::new(""))) };
        Self::assemble(&home, &opened, record, store, environment, notices)
    }
}

/// A scope of `root` that never enters the store.
pub(super) fn scope_of(root: &Path, store: Option<&Store>, source: Option<Vec<PathBuf>>, exclude: Vec<String>) -> Scope {
    let never = store.iter().map(|store| store.path().to_owned()).collect();
    Scope { root: root.to_owned(), source, exclude, never, ..Scope::default() }
}

/// What the id of a worktree in this store says.
pub(super) fn identity_in(store: &Store, project: &str) -> Identity {
    Identity { format: FORMAT, project: project.to_owned(), store: store.path().to_owned(), store_uuid: store.uuid().to_owned() }
}

fn adopt(record: &ProjectRecord, old_root: &Path, store: &Store, folder: &Folder, environment: &Environment) -> Result<()> {
    let syncs = Syncs::new();
    record.save(folder, &syncs)?;
    identity::bind(&record.root, &identity_in(store, &record.id), environment, &syncs)?;
    if old_root == record.root { Ok(()) } else { identity::forget_local(old_root, &record.id, environment) }
}

/// The store that the id names, else (it was moved) the one that the caller names; and the old place then.
fn find_store(root: &Path, identity: &Identity, options: &ProjectOptions, environment: &Environment) -> Result<(Store, Option<PathBuf>)> {
    let missing = match Store::open(&identity.store) {
        Ok(store) if store.uuid() == identity.store_uuid => return Ok((store, None)),
        Ok(store) => Error::new(
            ErrorKind::NotFound,
            format!(
                "{} is another store than the one of {}: uuid {}, not {}",
                identity.store.display(),
                root.display(),
                store.uuid(),
                identity.store_uuid
            ),
        ),
        Err(error) if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::InvalidArgument => return Err(error),
        Err(error) => {
            Error::new(ErrorKind::NotFound, format!("the store {} of {} is not there: {error}", identity.store.display(), root.display()))
        }
    };
    let other = options.store.clone().or_else(|| environment.store_path().ok()).filter(|path| *path != identity.store);
    if let Some(store) = other.and_then(|path| Store::open(&path).ok()).filter(|store| store.uuid() == identity.store_uuid) {
        return Ok((store, Some(identity.store.clone())));
    }
    let files: Vec<_> = identity::files(root, environment).iter().map(|file| file.display().to_string()).collect();
    Err(missing.with("store", identity.store.display()).with("path", root.display()).hint(format!(
        "name its new place with --store, or put it back; to bind the worktree anew without it, remove {}",
        files.join(" and ")
    )))
}

fn unbound(folder: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} belongs to no forklift project", folder.display()))
        .with("path", folder.display())
        .hint("run `forklift project setup` there")
}

fn made_again(root: &Path, identity: &Identity) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("the worktree {} was removed and made again; its old state is project {}", root.display(), identity.project),
    )
    .with("path", root.display())
    .with("project", &identity.project)
    .hint(format!(
        "`forklift project setup` binds it anew; the old state stays in {} until `project prune --yes`",
        identity.store.display()
    ))
}

fn copied(root: &Path, record: &ProjectRecord) -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        format!("{} is a copy of the worktree {}: both carry the id of project {}", root.display(), record.root.display(), record.id),
    )
    .with("path", root.display())
    .with("project", &record.id)
    .hint("run `forklift project setup` in the copy to give it a project of its own")
}
