//! As whom servers run: Postgres refuses root.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Installation;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::sys::identity::Switch;

/// As whom the programs of Postgres run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// As the caller, who is not root.
    Caller,
    /// As root in a user namespace that maps root to this uid, which has a passwd entry; nothing is chowned.
    UserNamespace {
        /// The uid inside.
        uid: u32,
        /// The gid inside.
        gid: u32,
    },
    /// Under an unprivileged account that owns the branch folders: where namespaces are refused.
    Account {
        /// Name of the account.
        name: String,
        /// Its uid.
        uid: u32,
        /// Its gid.
        gid: u32,
    },
}

impl RunAs {
    /// Finds out, by trying: not root, else a user namespace (unless `FORKLIFT_NO_USER_NAMESPACE` is set), else an account
    /// (`FORKLIFT_ACCOUNT`, `postgres`, `nobody`), else one clear error.
    ///
    /// # Errors
    /// `NotFound` or `InvalidArgument` for a `FORKLIFT_ACCOUNT` that does not exist or is root; `Unsupported` with what was
    /// tried where nothing works.
    pub fn detect(environment: &Environment) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Caller);
        }
        let accounts = Entry::all()?;
        let refused = if environment.get("FORKLIFT_NO_USER_NAMESPACE").is_some() {
            "switched off by FORKLIFT_NO_USER_NAMESPACE".to_owned()
        } else {
            match Self::namespace(&accounts) {
                Ok(found) => return Ok(found),
                Err(error) => error.message().to_owned(),
            }
        };
        Self::account(environment, &accounts).map_err(|error| {
            let message = format!("Postgres does not run as root, a user namespace is not possible ({refused}), and {}", error.message());
            Error::new(error.kind(), message).hint("name an unprivileged account in FORKLIFT_ACCOUNT, or run forklift as an ordinary user")
        })
    }

    fn namespace(accounts: &[Entry]) -> Result<Self> {
        let nobody = accounts.iter().find(|entry| entry.uid == 65534);
        let inside = nobody
            .or_else(|| accounts.iter().find(|entry| entry.uid != 0))
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "/etc/passwd names nobody but root"))?;
        match Switch::namespace(inside.uid, inside.gid).attempt() {
            Ok(()) => Ok(Self::UserNamespace { uid: inside.uid, gid: inside.gid }),
            Err(error) => Err(Error::new(ErrorKind::Unsupported, error.to_string()).because(error)),
        }
    }

    fn account(environment: &Environment, accounts: &[Entry]) -> Result<Self> {
        let find = |name: &str| accounts.iter().find(|entry| entry.name == name);
        let chosen = match environment.text("FORKLIFT_ACCOUNT") {
            Some(name) => {
                Some(find(name).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no account {name} (FORKLIFT_ACCOUNT)")))?)
            }
            None => ["postgres", "nobody"].into_iter().find_map(find),
        };
        let entry = chosen.ok_or_else(|| Error::new(ErrorKind::Unsupported, "there is no account postgres or nobody"))?;
        if entry.uid == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the account {} (FORKLIFT_ACCOUNT) is root itself", entry.name)));
        }
        Switch::account(entry.uid, entry.gid)
            .attempt()
            .map_err(|error| Error::new(ErrorKind::Unsupported, format!("this root may not become {}: {error}", entry.name)))?;
        Ok(Self::Account { name: entry.name.clone(), uid: entry.uid, gid: entry.gid })
    }

    /// Checks that programs of `installation` can be executed and `folder` reached and written by it, and that the machine
    /// has a name for its uid.
    ///
    /// # Errors
    /// `Permission` naming the path that cannot be passed or executed, `Unsupported` naming the uid without a passwd entry,
    /// `PostgresNotFound` where `postgres` is not there.
    pub fn check(&self, installation: &Installation, folder: &Path) -> Result<()> {
        self.check_folders(installation, &[folder])
    }

    /// Checks the programs so, and that it can pass the folders above the store `top`, before anything is made in it.
    ///
    /// # Errors
    /// As [`RunAs::check`].
    pub fn check_way(&self, installation: &Installation, top: &Path) -> Result<()> {
        self.check_access(installation, &[top], &chain(top, libc::F_OK).collect::<Vec<_>>())
    }

    /// The same for several folders, in one try.
    pub(super) fn check_folders(&self, installation: &Installation, folders: &[&Path]) -> Result<()> {
        let whole = libc::R_OK | libc::W_OK | libc::X_OK;
        let wanted: Vec<(PathBuf, i32)> = folders.iter().flat_map(|folder| chain(folder, whole)).collect();
        self.check_access(installation, folders, &wanted)
    }

    /// Whether it can execute the programs and has what is `wanted` on the way to the `folders`.
    fn check_access(&self, installation: &Installation, folders: &[&Path], wanted: &[(PathBuf, i32)]) -> Result<()> {
        let uid = self.uid();
        if !sys::identity::has_passwd_entry(uid) {
            return Err(Error::new(ErrorKind::Unsupported, format!("uid {uid} has no passwd entry, which Postgres needs"))
                .with("uid", uid)
                .hint(format!("add a line for uid {uid} to /etc/passwd, or run as a user that has one")));
        }
        let program = installation.bin.join("postgres");
        if !program.exists() {
            return Err(Error::new(ErrorKind::PostgresNotFound, format!("{} is not there", program.display()))
                .with("path", program.display())
                .hint("reinstall that Postgres or name another one with --postgres"));
        }
        // Both the way it is called and the way it really lies are passed.
        let real = program.canonicalize().map_err(|source| Error::io("resolve", &program, source))?;
        let programs: Vec<(PathBuf, i32)> = chain(&program, libc::X_OK).chain(chain(&real, libc::X_OK)).collect();
        let of_program = programs.len();
        let paths: Vec<(PathBuf, i32)> = programs.into_iter().chain(wanted.iter().cloned()).collect();
        let blocked = self
            .switch()
            .first_inaccessible(&paths)
            .map_err(|error| Error::new(ErrorKind::Unsupported, format!("cannot run as {}: {error}", self.describe())).because(error))?;
        let Some((index, (path, _))) = blocked.and_then(|index| Some((index, paths.get(index)?))) else { return Ok(()) };
        let message = if index < of_program {
            format!("{} cannot be executed by {}: it may not pass {}", program.display(), self.describe(), path.display())
        } else {
            let folder = folders.iter().find(|folder| folder.starts_with(path)).map_or(path.display(), |folder| folder.display());
            format!("{folder} cannot be used by {}: it may not pass {}", self.describe(), path.display())
        };
        Err(Error::new(ErrorKind::Permission, message).with("path", path.display()).with("uid", uid).hint(format!(
            "let others pass with `chmod o+x {}`, or use a store and a Postgres outside folders that are closed to others",
            path.display()
        )))
    }

    /// A command that runs `program` of `installation` so, with a clean environment (PATH, a valid locale with messages in
    /// English, the installation's library path), the root folder as working folder, and standard input closed. TZ is not
    /// passed on: the cluster's own setting rules.
    ///
    /// # Errors
    /// `PostgresNotFound` where the program is not there.
    pub fn command(&self, installation: &Installation, program: &str) -> Result<Command> {
        self.command_as(&self.switch(), installation, program)
    }

    /// The same with another change of identity.
    pub(super) fn command_as(&self, switch: &Switch, installation: &Installation, program: &str) -> Result<Command> {
        let path = installation.program(program)?;
        let mut command = Command::new(path);
        let mut search = OsString::from(&installation.bin);
        search.push(":/usr/local/bin:/usr/bin:/bin");
        command.env_clear().env("PATH", search).env("LANG", locale()).env("LC_MESSAGES", "C").current_dir("/").stdin(Stdio::null());
        if let Some(libraries) = &installation.library_path {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        switch.apply_to(&mut command);
        Ok(command)
    }

    /// Makes a folder (mode 0700) that belongs to it; missing parents, and for an account the folders up to the store's top,
    /// can then be passed through by it.
    ///
    /// # Errors
    /// `Permission`, `NoSpace`, `Io`.
    pub fn make_folder(&self, path: &Path) -> Result<()> {
        let Self::Account { uid, gid, .. } = self else { return sys::fs::make_folder(path, 0o700) };
        self.open_parents(path)?;
        sys::fs::make_folder(path, 0o700)?;
        chown(path, *uid, *gid)
    }

    /// Gives a whole tree to it, links themselves and not what they point to; nothing to do unless it is an account.
    ///
    /// # Errors
    /// `NotFound`, `Permission`, `Io`.
    pub fn give(&self, path: &Path) -> Result<()> {
        let Self::Account { uid, gid, .. } = self else { return Ok(()) };
        let metadata = std::fs::symlink_metadata(path).map_err(|source| Error::io("examine", path, source))?;
        if (metadata.uid(), metadata.gid()) != (*uid, *gid) {
            chown(path, *uid, *gid)?;
        }
        if metadata.is_dir() {
            for name in sys::fs::names(path)? {
                self.give(&path.join(name))?;
            }
        }
        Ok(())
    }

    /// The uid that the programs see as their own.
    fn uid(&self) -> u32 {
        match self {
            Self::Caller => rustix::process::geteuid().as_raw(),
            Self::UserNamespace { uid, .. } | Self::Account { uid, .. } => *uid,
        }
    }

    /// Who that is, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Caller => format!("uid {}", self.uid()),
            Self::UserNamespace { uid, .. } => format!("root in a user namespace (as uid {uid}, without root's privileges)"),
            Self::Account { name, uid, .. } => format!("the account {name} (uid {uid})"),
        }
    }

    pub(super) fn switch(&self) -> Switch {
        match self {
            Self::Caller => Switch::stay(),
            Self::UserNamespace { uid, gid } => Switch::namespace(*uid, *gid),
            Self::Account { uid, gid, .. } => Switch::account(*uid, *gid),
        }
    }

    /// Lets the account pass the parents of `path` that forklift makes or that lie within a store; others are never changed.
    pub(super) fn open_parents(&self, path: &Path) -> Result<()> {
        if !matches!(self, Self::Account { .. }) {
            return Ok(());
        }
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            sys::fs::make_folder(folder, 0o711)?;
        }
        let top = path.ancestors().find(|folder| folder.join("FORMAT").is_file());
        for folder in path.ancestors().skip(1).take_while(|folder| top.is_some_and(|top| folder.starts_with(top))) {
            let metadata = std::fs::metadata(folder).map_err(|source| Error::io("examine", folder, source))?;
            let mode = metadata.permissions().mode() & 0o7777;
            if mode & 0o001 == 0 && metadata.uid() == 0 {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | 0o011))
                    .map_err(|source| Error::io("open to others", folder, source))?;
            }
        }
        Ok(())
    }
}

/// A locale that exists on this machine: Postgres refuses to start under one that does not, and on macOS under none.
fn locale() -> &'static str {
    if sys::locale::exists("C.UTF-8") { "C.UTF-8" } else { "C" }
}

/// The folders to pass on the way to `path`, then `path` itself with `mode`; only those that exist.
fn chain(path: &Path, mode: i32) -> impl Iterator<Item = (PathBuf, i32)> {
    let mut folders: Vec<_> =
        path.ancestors().skip(1).filter(|folder| folder.exists()).map(|folder| (folder.to_owned(), libc::X_OK)).collect();
    folders.reverse();
    folders.into_iter().chain(path.exists().then(|| (path.to_owned(), mode)))
}

fn chown(path: &Path, uid: u32, gid: u32) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(|source| Error::io("give away", path, source))
}

/// A line of /etc/passwd.
struct Entry {
    name: String,
    uid: u32,
    gid: u32,
}

impl Entry {
    fn all() -> Result<Vec<Self>> {
        let bytes = sys::fs::read_optional(Path::new("/etc/passwd"))?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(Self::parse).collect())
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Self { name, uid, gid })
    }
}
