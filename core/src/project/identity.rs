//! From a worktree to its project: the id in Git's administrative folder, and a machine-local record for plain folders.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::git;
use super::record::{FORMAT, FolderId, read_json, write_json};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::sys::fs::{self, Syncs};

/// Name of the id file in Git's administrative folder.
const ID_FILE: &str = "forklift-id";

/// Which project a worktree is and where that project's store lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) format: u32,
    pub(super) project: String,
    #[serde(with = "super::paths")]
    pub(super) store: PathBuf,
    pub(super) store_uuid: String,
}

/// `<data folder>/worktrees/<hash of root>.json`: the only identity of a plain folder, and the second one of a Git worktree.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Local {
    format: u32,
    #[serde(with = "super::paths")]
    root: PathBuf,
    folder: FolderId,
    identity: Identity,
}

/// What a folder is.
#[derive(Debug)]
pub(super) enum Lookup {
    /// Bound.
    Bound(Identity),
    /// Another folder that had this path was bound.
    Recreated(Identity),
    /// Not bound.
    Unbound,
}

/// Looks; writes nothing. `root` is canonical.
pub(super) fn look_up(root: &Path, environment: &Environment) -> Result<Lookup> {
    let admin = git::admin_folder(root)?;
    if let Some(identity) = admin.as_deref().map(|admin| read_json(&admin.join(ID_FILE))).transpose()?.flatten() {
        return checked(identity).map(Lookup::Bound);
    }
    let Ok(folder) = locals(environment) else { return Ok(Lookup::Unbound) };
    let here = FolderId::of(root)?;
    if let Some(local) = read_json::<Local>(&file_of(&folder, root))?.filter(|local| local.root == root) {
        let identity = checked(local.identity)?;
        return Ok(if local.folder.same(&here) { Lookup::Bound(identity) } else { Lookup::Recreated(identity) });
    }
    Ok(moved(&folder, &here)?.map_or(Lookup::Unbound, Lookup::Bound))
}

/// The files that bind `root`: what to remove by hand where its store is gone for good.
pub(super) fn files(root: &Path, environment: &Environment) -> Vec<PathBuf> {
    let id = git::admin_folder(root).ok().flatten().map(|admin| admin.join(ID_FILE));
    let local = locals(environment).ok().map(|folder| file_of(&folder, root));
    id.into_iter().chain(local).filter(|file| file.exists()).collect()
}

/// Whether `root` carries the id `project` today; `false` in every doubt.
pub(super) fn is_bound_to(root: &Path, project: &str, environment: &Environment) -> bool {
    matches!(look_up(root, environment), Ok(Lookup::Bound(identity)) if identity.project == project)
}

/// Binds `root`, replacing what an earlier or copied folder left there. The id in Git's folder counts once it is there; the
/// machine-local record is required only where there is no Git. Gives what a second place could not take.
pub(super) fn bind(root: &Path, identity: &Identity, environment: &Environment, syncs: &Syncs) -> Result<Option<String>> {
    let admin = git::admin_folder(root)?;
    if let Some(admin) = &admin {
        write_json(&admin.join(ID_FILE), identity, syncs)?;
    }
    match (bind_locally(root, identity, environment, syncs), admin) {
        (Ok(()), _) => Ok(None),
        (Err(error), Some(_)) => Ok(Some(format!("the machine-local record was not written: {error}"))),
        (Err(error), None) => Err(error.while_doing("the record of a folder without Git")),
    }
}

/// Takes the id away again where it is this project's.
pub(super) fn unbind(root: &Path, project: &str, environment: &Environment) -> Result<()> {
    if let Ok(Some(admin)) = git::admin_folder(root) {
        let file = admin.join(ID_FILE);
        if read_json::<Identity>(&file).ok().flatten().is_some_and(|identity| identity.project == project) {
            fs::remove_file(&file)?;
        }
    }
    forget_local(root, project, environment)
}

/// Removes the machine-local record of `root` where it is this project's.
pub(super) fn forget_local(root: &Path, project: &str, environment: &Environment) -> Result<()> {
    let Ok(folder) = locals(environment) else { return Ok(()) };
    let file = file_of(&folder, root);
    match read_json::<Local>(&file) {
        Ok(Some(local)) if local.identity.project == project => fs::remove_file(&file),
        _ => Ok(()),
    }
}

fn bind_locally(root: &Path, identity: &Identity, environment: &Environment, syncs: &Syncs) -> Result<()> {
    let folder = locals(environment)?;
    fs::make_folder(&folder, 0o700)?;
    let local = Local { format: FORMAT, root: root.to_owned(), folder: FolderId::of(root)?, identity: identity.clone() };
    let file = file_of(&folder, root);
    // An unchanged record is not written again: opening a project costs no fsync.
    let bytes = json::encode(&file, &local)?;
    if fs::read_optional(&file)?.as_deref() == Some(&*bytes) { Ok(()) } else { fs::replace(&file, &bytes, 0o600, syncs) }
}

fn locals(environment: &Environment) -> Result<PathBuf> {
    Ok(environment.data_folder()?.join("worktrees"))
}

fn file_of(folder: &Path, root: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let hash = blake3::hash(root.as_os_str().as_bytes()).to_hex();
    folder.join(format!("{}.json", hash.get(..32).unwrap_or_default()))
}

/// A plain folder that was renamed: its own record is found by what it is, where its old path is gone.
fn moved(folder: &Path, here: &FolderId) -> Result<Option<Identity>> {
    if here.born_ns.is_none() || !folder.is_dir() {
        return Ok(None);
    }
    for name in fs::names(folder)? {
        let Ok(Some(local)) = read_json::<Local>(&folder.join(name)) else { continue };
        let same = local.folder.born_ns.is_some() && local.folder.dev == here.dev && local.folder.same(here);
        if same && std::fs::symlink_metadata(&local.root).is_err() {
            return checked(local.identity).map(Some);
        }
    }
    Ok(None)
}

/// The id becomes part of a path: nothing but letters and digits may be in it.
fn checked(identity: Identity) -> Result<Identity> {
    if super::checkpoints::is_id(&identity.project) {
        return Ok(identity);
    }
    Err(Error::new(ErrorKind::Corrupt, format!("{ID_FILE} names the project {:?}, which is no id", identity.project))
        .hint("remove that file and bind the worktree anew with `forklift project setup`"))
}
