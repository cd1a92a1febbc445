//! Making a pool larger while it is used.

use std::fs::OpenOptions;

use super::host::run;
use super::{Pool, PoolKind, PoolState, PoolStatus, gib, image};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys::fs::Syncs;

impl Pool {
    /// Makes it `size` bytes large, mounted as it is. One that was broken off goes on when it is asked for the same size again.
    ///
    /// # Errors
    /// `Permission` (not root), `InvalidArgument` (not larger), `NotFound`, `Busy`, `NoSpace`, `Command`, `Cancelled`, `Io`: it is
    /// as large as before then, or only a part of the new size is used yet.
    pub fn grow(&self, size: u64, control: &Control) -> Result<PoolStatus> {
        super::require_root("growing a pool")?;
        // Told before the lock, for a folder that is none.
        self.record()?;
        let _lock = self.enter("growing a pool")?;
        let record = self.record()?;
        let size = size >> 20 << 20;
        let (image, mount) = (self.image(), self.mount());
        if record.state != PoolState::Ready {
            return Err(Error::new(ErrorKind::Busy, format!("the pool in {} is not whole", self.folder.display()))
                .with("path", self.folder.display())
                .hint("finish what was begun with it: `forklift pool create` or `forklift pool remove`"));
        }
        let Some(mounted) = self.mounted()? else {
            return Err(Error::new(ErrorKind::NotFound, format!("the pool in {} is not mounted", self.folder.display()))
                .with("path", mount.display())
                .hint(format!("mount it: mount {}", mount.display())));
        };
        let (before, _) = image::sizes(&image)?;
        if size < before {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the pool has {} already and cannot become smaller", gib(before)))
                .with("size", before)
                .hint("name a larger size; for a smaller pool make another one and move the store"));
        }
        if size > before {
            let file = OpenOptions::new().read(true).write(true).open(&image).map_err(|source| Error::io("open", &image, source))?;
            image::reserve(&file, &image, size, control)?;
            Syncs::new().file(&file, &image)?;
        }
        // From here on each step may be done again.
        run("losetup", &["--set-capacity".as_ref(), mounted.source.as_os_str()], "mount")?;
        match record.file_system {
            PoolKind::Xfs => run("xfs_growfs", &[mount.as_os_str()], "xfsprogs")?,
            PoolKind::Btrfs => run("btrfs", &["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), mount.as_os_str()], "btrfs-progs")?,
        };
        self.status()
    }
}
