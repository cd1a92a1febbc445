//! A file system in an image on a loop device, whose power can be cut.
//!
//! All of it lives in a mount namespace of this program and its children (see `enclosure`): when the last of them is dead,
//! the kernel unmounts it, and the loop device, which `mount -o loop` makes with autoclear, goes with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An image and where it is mounted.
#[derive(Debug)]
pub struct Image {
    pub file: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

impl Image {
    /// Makes a file system of `kind` in a sparse file of `mib` MiB in `folder` and mounts it; `Err` says why that cannot be done here.
    pub fn new(folder: &Path, kind: &str, mib: u64, options: &[&str]) -> Result<Self, String> {
        let (file, mount) = (folder.join("image"), folder.join("mount"));
        std::fs::create_dir_all(&mount).expect("a mount point");
        std::fs::File::create(&file).and_then(|image| image.set_len(mib << 20)).expect("an image");
        run(Command::new(format!("mkfs.{kind}")).arg("-q").args(options).arg(&file))?;
        let mut image = Self { file, mount, mounted: false };
        image.mount()?;
        Ok(image)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    pub fn mount(&mut self) -> Result<(), String> {
        if !self.mounted {
            run(Command::new("mount").args(["-o", "loop"]).arg(&self.file).arg(&self.mount))?;
            self.mounted = true;
        }
        Ok(())
    }

    pub fn umount(&mut self) -> Result<(), String> {
        if self.mounted {
            run(Command::new("umount").arg(&self.mount))?;
            self.mounted = false;
        }
        Ok(())
    }

    /// The shutdown ioctl, which ext4 and XFS share: from now on every call fails, and what was not synced is lost. With
    /// `log` what is in the journal's memory is written first.
    pub fn cut(&self, log: bool) -> Result<(), String> {
        run(Command::new("xfs_io").args(["-x", "-c", if log { "shutdown -f" } else { "shutdown" }]).arg(&self.mount))
    }

    /// Lets the kernel forget what it has read, after the file system was mounted anew.
    pub fn remount(&mut self) -> Result<(), String> {
        self.umount()?;
        self.mount()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.umount().is_err() {
            // Somebody still works there: it goes with the last of them.
            run(Command::new("umount").arg("-l").arg(&self.mount)).ok();
        }
    }
}

/// Runs a command; its standard error where it fails.
pub fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
