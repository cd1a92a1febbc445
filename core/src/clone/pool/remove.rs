//! Removing a pool, which never takes anything along that nobody asked to be removed.

use super::host::run;
use super::record::Record;
use super::{Pool, PoolState, contents};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;

/// Names of contents in a message.
const SHOWN: usize = 10;

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PoolRemoved {
    /// The folder of the pool.
    #[serde(serialize_with = "crate::report::path")]
    pub folder: std::path::PathBuf,
    /// The file from which the mount was taken out.
    #[serde(serialize_with = "crate::report::path")]
    pub written: std::path::PathBuf,
    /// Names at the top of the pool that went with it.
    pub contents: Vec<String>,
}

impl Pool {
    /// Unmounts it and removes its image, its record and what mounts it at boot. What is in it is looked at before and after it was
    /// unmounted: anything but nothing is refused, unless `with_contents`. One that was broken off goes on.
    ///
    /// # Errors
    /// `Permission` (not root), `NotFound`, `HasDependents` naming what is in it, `Busy` while somebody works in it, `Command`,
    /// `Cancelled`, `Io`. A refusal leaves it mounted as it was; a removal that fails later goes on with the next call.
    pub fn remove(&self, with_contents: bool, control: &Control) -> Result<PoolRemoved> {
        super::require_root("removing a pool")?;
        // Told before the lock, for a folder that is none.
        self.record()?;
        let _lock = self.enter("removing a pool")?;
        let record = self.record()?;
        let written = record.comes_back.file().to_owned();
        if record.state == PoolState::Making {
            self.clear(&record)?;
            return Ok(PoolRemoved { folder: self.folder.clone(), written, contents: Vec::new() });
        }
        control.check()?;
        let (image, mount) = (self.image(), self.mount());
        let mut found = Vec::new();
        let was_mounted = self.mounted()?.is_some();
        if was_mounted {
            found = contents(&mount)?;
            self.refuse(&found, with_contents)?;
            self.unmount()?;
        }
        // Nobody can put anything into it any more: what is in it now is what would go.
        let whole = image.exists();
        if whole && !with_contents {
            let looked = self.look(&record).and_then(|found| self.refuse(&found, false));
            if let Err(error) = looked {
                return Err(if was_mounted { self.put_back(&record, error) } else { error });
            }
        }
        Record { state: PoolState::Removing, ..record.clone() }.save(&self.folder)?;
        self.host.forget(&record.comes_back, &image, &mount)?;
        sys::fs::remove_file(&image)?;
        if mount.is_dir() {
            std::fs::remove_dir(&mount).map_err(|source| Error::io("remove", &mount, source))?;
        }
        self.remove_record()?;
        if record.own_folder {
            drop(std::fs::remove_dir(&self.folder));
        }
        Ok(PoolRemoved { folder: self.folder.clone(), written, contents: found })
    }

    fn refuse(&self, found: &[String], with_contents: bool) -> Result<()> {
        if found.is_empty() || with_contents {
            return Ok(());
        }
        let shown: Vec<&str> = found.iter().take(SHOWN).map(String::as_str).collect();
        let more = found.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::new(ErrorKind::HasDependents, format!("the pool in {} holds {}{more}", self.folder.display(), shown.join(", ")))
            .with("path", self.mount().display())
            .hint("move that away, or destroy it together with the pool: `forklift pool remove --with-contents`"))
    }

    fn unmount(&self) -> Result<()> {
        let mount = self.mount();
        run("umount", &[mount.as_os_str()], "mount").map(drop).map_err(|error| {
            if error.message().contains("busy") {
                Error::new(ErrorKind::Busy, format!("somebody works in {}", mount.display()))
                    .with("path", mount.display())
                    .hint("stop the servers of the store in it (`forklift branch stop`) and leave its folders; `fuser -vm` names who is there")
                    .because(error)
            } else {
                error
            }
        })
    }

    /// What is in an image that is not mounted.
    fn look(&self, record: &Record) -> Result<Vec<String>> {
        let (image, mount) = (self.image(), self.mount());
        let kind = record.file_system;
        let options = format!("{},ro", kind.options());
        run(
            "mount",
            &["-t".as_ref(), kind.name().as_ref(), "-o".as_ref(), options.as_ref(), image.as_os_str(), mount.as_os_str()],
            "mount",
        )
        .map_err(|error| {
            error
                .while_doing(format!("what is in {} could not be looked at", image.display()))
                .hint("repair it, or destroy it together with what is in it: `forklift pool remove --with-contents`")
        })?;
        let found = contents(&mount);
        self.unmount()?;
        found
    }

    fn put_back(&self, record: &Record, error: Error) -> Error {
        match self.host.mount(&record.comes_back, &self.mount()) {
            Ok(()) => error,
            Err(left) => error.hint(format!("it is whole, but not mounted any more ({left}): mount {}", self.mount().display())),
        }
    }
}
