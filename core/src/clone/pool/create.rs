//! Making a pool: the record first, the record last; what fails or is killed between them is cleared away.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use super::host::{remove_temporaries, run};
use super::record::{FILE, FORMAT, Record};
use super::{Pool, PoolKind, PoolState, PoolStatus, SMALLEST_POOL, contents, gib, image, require_root};
use crate::clone;
use crate::clone::probe::is_probe;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::Lock;

/// A pool that was made, and what is to be known of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PoolCreated {
    /// The pool.
    #[serde(flatten)]
    pub status: PoolStatus,
    /// What may surprise.
    pub warnings: Vec<String>,
}

impl Pool {
    /// Makes it: `size` bytes of the host's disk are reserved in one file, a file system is made in them and mounted, by a mount
    /// unit where systemd runs, else by two lines in fstab; that it clones is tried. One that was broken off is cleared away
    /// and made anew. Durable when it returns.
    ///
    /// # Errors
    /// `Permission` (not root), `InvalidArgument` (the size), `AlreadyExists` (a pool, or anything else, is there), `Busy`,
    /// `NoSpace`, `NotFound` (a program that has to be installed), `Command` (one that failed), `Unsupported` (it does not
    /// clone), `Cancelled`, `Io`. Nothing is left then, or the error says what.
    pub fn create(&self, size: u64, kind: PoolKind, control: &Control) -> Result<PoolCreated> {
        require_root("making a pool")?;
        // Whole blocks of every kind.
        let size = size >> 20 << 20;
        if size < SMALLEST_POOL {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("a pool of {} is too small", gib(size)))
                .with("size", size)
                .hint(format!("{} at least", gib(SMALLEST_POOL))));
        }
        let own_folder = self.make_folder()?;
        let lock = match self.enter("making a pool").and_then(|lock| self.clear_leftovers().map(|()| lock)) {
            Ok(lock) => lock,
            Err(error) => {
                if own_folder {
                    drop(std::fs::remove_dir(&self.folder));
                }
                return Err(error);
            }
        };
        let comes_back = self.host.way(&self.mount());
        let record = Record { format: FORMAT, state: PoolState::Making, file_system: kind, comes_back, own_folder };
        match self.make(&record, size, &lock, control) {
            Ok(warnings) => Ok(PoolCreated { status: self.status()?, warnings }),
            Err(error) => Err(match self.clear(&record) {
                Ok(()) => error,
                Err(left) => error.hint(format!(
                    "not all of it could be cleared away ({left}); `forklift pool remove {}` does the rest",
                    self.folder.display()
                )),
            }),
        }
    }

    /// Whether it was made just now.
    fn make_folder(&self) -> Result<bool> {
        if self.folder.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is not a folder", self.folder.display()))
                .with("path", self.folder.display())
                .hint("name another folder for the pool"));
        }
        if let Some(parent) = self.folder.parent().filter(|parent| !parent.is_dir()) {
            // Accounts that run servers have to pass.
            let missing: Vec<&Path> = parent.ancestors().take_while(|folder| !folder.exists()).collect();
            for folder in missing.into_iter().rev() {
                sys::fs::make_folder(folder, 0o711)?;
            }
        }
        match std::fs::DirBuilder::new().mode(0o711).create(&self.folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(Error::io("create folder", &self.folder, source)),
        }
    }

    /// Makes way for a new pool: of one that was broken off. Anything else is refused.
    fn clear_leftovers(&self) -> Result<()> {
        let taken = |what: &str, hint: String| {
            Err(Error::new(ErrorKind::AlreadyExists, format!("{} {what}", self.folder.display()))
                .with("path", self.folder.display())
                .hint(hint))
        };
        // The folder's lock is held: nobody writes the record now.
        remove_temporaries(&self.folder.join(FILE))?;
        match Record::load(&self.folder)? {
            None if sys::fs::names(&self.folder)?.is_empty() => Ok(()),
            None => taken("is neither a pool nor empty", "name an absent or empty folder for the pool".to_owned()),
            Some(record) => match record.state {
                PoolState::Ready => {
                    taken("holds a pool already", format!("`forklift pool grow` makes it larger: it has {}", gib(self.status()?.size)))
                }
                PoolState::Removing => {
                    taken("holds a pool that is being removed", format!("go on with `forklift pool remove {}`", self.folder.display()))
                }
                PoolState::Making => self.clear_contents(&record),
            },
        }
    }

    fn make(&self, record: &Record, size: u64, lock: &Lock, control: &Control) -> Result<Vec<String>> {
        let (image, mount) = (self.image(), self.mount());
        record.save(&self.folder)?;
        let mut warnings = self.warnings();
        let file = sys::fs::create_new(&image, 0o600)?;
        if !image::reserve(&file, &image, size, control)? {
            warnings.push(format!(
                "the file system of {} cannot reserve space: when it is full, writes in the pool fail",
                self.folder.display()
            ));
        }
        control.check()?;
        image::format(record.file_system, &image)?;
        let syncs = Syncs::new();
        syncs.file(&file, &image)?;
        drop(file);
        std::fs::DirBuilder::new().mode(0o711).create(&mount).map_err(|source| Error::io("create folder", &mount, source))?;
        syncs.folder(&self.folder)?;
        self.host.write(&record.comes_back, record.file_system, &image, &mount)?;
        control.check()?;
        self.host.mount(&record.comes_back, &mount)?;
        if self.mounted()?.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, format!("nothing is mounted at {} after all", mount.display()))
                .with("path", mount.display())
                .hint("look at what the system says of it: dmesg, journalctl"));
        }
        std::fs::set_permissions(&mount, std::fs::Permissions::from_mode(0o711))
            .map_err(|source| Error::io("set the mode of", &mount, source))?;
        if !clone::choose(&mount, &mount)?.shares_blocks() {
            return Err(Error::new(ErrorKind::Unsupported, format!("the new {} does not share blocks", record.file_system.name()))
                .with("path", mount.display())
                .hint("this kernel's file system is too old: try the other one with --fs"));
        }
        syncs.file_system(&mount)?;
        control.check()?;
        Record { state: PoolState::Ready, ..record.clone() }.save(&self.folder)?;
        // Held to here.
        let _ = lock;
        Ok(warnings)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if clone::choose(&self.folder, &self.folder).is_ok_and(|backend| backend.shares_blocks()) {
            warnings.push(format!("{} shares blocks by itself: a store there needs no pool", self.folder.display()));
        }
        if !self.host.systemd {
            warnings.push(format!("systemd does not run here: the pool comes back where {} is mounted at boot", self.host.fstab.display()));
        }
        warnings
    }

    /// Clears away what a failed or killed making left, and the folder where it was made for the pool.
    pub(super) fn clear(&self, record: &Record) -> Result<()> {
        self.clear_contents(record)?;
        if record.own_folder {
            drop(std::fs::remove_dir(&self.folder));
        }
        Ok(())
    }

    /// The same, and the folder stays. Nothing was ever put into such a pool; should anything be in it, it stays.
    fn clear_contents(&self, record: &Record) -> Result<()> {
        let (image, mount) = (self.image(), self.mount());
        remove_probes(&self.folder)?;
        if self.mounted()?.is_some() {
            remove_probes(&mount)?;
            let found = contents(&mount)?;
            if !found.is_empty() {
                return Err(Error::new(
                    ErrorKind::HasDependents,
                    format!("{} is of a pool that was not finished, and holds {}", mount.display(), found.join(", ")),
                )
                .with("path", mount.display())
                .hint("move that away"));
            }
            run("umount", &[mount.as_os_str()], "mount")?;
        }
        self.host.forget(&record.comes_back, &image, &mount)?;
        sys::fs::remove_file(&image)?;
        if mount.is_dir() {
            std::fs::remove_dir(&mount).map_err(|source| Error::io("remove", &mount, source))?;
        }
        self.remove_record()
    }

    /// The last step of every removal.
    pub(super) fn remove_record(&self) -> Result<()> {
        let file = self.folder.join(FILE);
        remove_temporaries(&file)?;
        sys::fs::remove_file(&file)?;
        Syncs::new().folder(&self.folder)
    }
}

/// Removes what a making that was killed while it tried to clone left.
fn remove_probes(folder: &Path) -> Result<()> {
    for name in sys::fs::names(folder)?.into_iter().filter(|name| is_probe(name)) {
        sys::fs::remove_file(&folder.join(name))?;
    }
    Ok(())
}
