//! The machine around a pool: its programs, and what mounts the pool again after a boot.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::PoolKind;
use super::record::ComesBack;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;
use crate::sys;
use crate::sys::fs::Syncs;
use crate::sys::lock::{Lock, Mode};

/// Where a machine keeps what is mounted at boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHost {
    /// Whether systemd runs: then it gets a mount unit, else fstab two lines.
    pub systemd: bool,
    /// Folder of the administrator's units.
    pub units: PathBuf,
    /// The mount table.
    pub fstab: PathBuf,
}

impl PoolHost {
    /// This machine.
    #[must_use]
    pub fn detect() -> Self {
        Self {
            // What sd_booted(3) looks at.
            systemd: Path::new("/run/systemd/system").is_dir(),
            units: PathBuf::from("/etc/systemd/system"),
            fstab: PathBuf::from("/etc/fstab"),
        }
    }

    /// What a pool that is mounted there will come back by.
    pub(super) fn way(&self, mount: &Path) -> ComesBack {
        if self.systemd {
            ComesBack::Systemd(self.units.join(unit_name(mount)))
        } else {
            // Through a link, so that the link stays one.
            ComesBack::Fstab(self.fstab.canonicalize().unwrap_or_else(|_| self.fstab.clone()))
        }
    }

    /// Writes that, so that it is there whole or not at all.
    pub(super) fn write(&self, way: &ComesBack, kind: PoolKind, image: &Path, mount: &Path) -> Result<()> {
        match way {
            ComesBack::Systemd(file) => {
                let text = unit(kind, image, mount);
                match sys::fs::read_optional(file)? {
                    Some(there) if there == text.as_bytes() => {}
                    Some(there) if !there.starts_with(MARK.as_bytes()) => {
                        return Err(Error::new(ErrorKind::AlreadyExists, format!("{} is not forklift's", file.display()))
                            .with("path", file.display())
                            .hint("remove that unit, or name another folder for the pool"));
                    }
                    _ => sys::fs::replace(file, text.as_bytes(), 0o644, &Syncs::new())?,
                }
                self.systemctl(&["daemon-reload"])?;
                self.systemctl(&["enable", &unit_name(mount)]).map(drop)
            }
            ComesBack::Fstab(file) => {
                let _lock = alone(file)?;
                let text = sys::fs::read_optional(file)?.unwrap_or_default();
                let mut lines = without(&text, image, mount);
                if lines.last().is_some_and(|last| *last != b'\n') {
                    lines.push(b'\n');
                }
                lines.extend_from_slice(fstab_lines(kind, image, mount).as_bytes());
                replace_keeping_mode(file, &lines)
            }
        }
    }

    /// Mounts it by what was written, so that this is known to work.
    pub(super) fn mount(&self, way: &ComesBack, mount: &Path) -> Result<()> {
        match way {
            ComesBack::Systemd(_) => self.systemctl(&["start", &unit_name(mount)]).map(drop),
            ComesBack::Fstab(file) => run("mount", &["--fstab".as_ref(), file.as_os_str(), mount.as_os_str()], "mount").map(drop),
        }
    }

    /// Whether what was written is still there.
    pub(super) fn comes_back(&self, way: &ComesBack, image: &Path, mount: &Path) -> Result<bool> {
        let text = sys::fs::read_optional(way.file())?.unwrap_or_default();
        Ok(match way {
            ComesBack::Systemd(_) => !text.is_empty(),
            ComesBack::Fstab(_) => text.split(|byte| *byte == b'\n').any(|line| is_entry(line, image, mount)),
        })
    }

    /// Takes it out again; nothing to do where it is gone.
    pub(super) fn forget(&self, way: &ComesBack, image: &Path, mount: &Path) -> Result<()> {
        match way {
            ComesBack::Systemd(file) => {
                let Some(there) = sys::fs::read_optional(file)? else { return Ok(()) };
                if !there.starts_with(MARK.as_bytes()) {
                    return Ok(());
                }
                // A machine on which systemd does not run now has only the files.
                if self.systemd {
                    self.systemctl(&["disable", &unit_name(mount)])?;
                }
                sys::fs::remove_file(file)?;
                if self.systemd {
                    self.systemctl(&["daemon-reload"])?;
                }
                Ok(())
            }
            ComesBack::Fstab(file) => {
                let _lock = alone(file)?;
                let Some(text) = sys::fs::read_optional(file)? else { return Ok(()) };
                let lines = without(&text, image, mount);
                if lines == text { Ok(()) } else { replace_keeping_mode(file, &lines) }
            }
        }
    }

    fn systemctl(&self, arguments: &[&str]) -> Result<String> {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        run("systemctl", &arguments, "systemd")
    }
}

/// How long another such command is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// First line of our units, and the comment before our line of fstab.
const MARK: &str = "# A pool of forklift: `forklift pool remove` takes this out";

fn unit(kind: PoolKind, image: &Path, mount: &Path) -> String {
    let (image, mount) = (image.display(), mount.display());
    let (name, options) = (kind.name(), kind.options());
    format!(
        "{MARK}\n[Unit]\nDescription=Pool of forklift in {image}\nRequiresMountsFor={image}\n\n\
         [Mount]\nWhat={image}\nWhere={mount}\nType={name}\nOptions={options}\n\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// `nofail`: a machine boots also where the image is gone.
fn fstab_lines(kind: PoolKind, image: &Path, mount: &Path) -> String {
    format!("{MARK}\n{} {} {} {},nofail 0 0\n", image.display(), mount.display(), kind.name(), kind.options())
}

fn is_entry(line: &[u8], image: &Path, mount: &Path) -> bool {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split_whitespace();
    fields.next().map(Path::new) == Some(image) && fields.next().map(Path::new) == Some(mount)
}

/// The text without the line for this pool and the comment before it; every other byte as it was.
fn without(text: &[u8], image: &Path, mount: &Path) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !is_entry(line, image, mount) {
            kept.push(line);
        } else if kept.last().is_some_and(|last| last.trim_ascii_end() == MARK.as_bytes()) {
            kept.pop();
        }
    }
    kept.concat()
}

/// Alone among commands like this one, each of which reads the table and replaces it; what one that was killed left is removed.
fn alone(file: &Path) -> Result<Lock> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let lock = Lock::wait_folder(folder, Mode::Exclusive, PATIENCE, &Control::silent())?;
    remove_temporaries(file)?;
    Ok(lock)
}

/// Removes what a process that was killed while it replaced `file` left beside it. Nobody must be replacing it now.
pub(super) fn remove_temporaries(file: &Path) -> Result<()> {
    let Some((folder, name)) = file.parent().zip(file.file_name()) else { return Ok(()) };
    for beside in sys::fs::names(folder)? {
        if is_temporary(&beside, name) {
            sys::fs::remove_file(&folder.join(beside))?;
        }
    }
    Ok(())
}

/// Whether a file was one on its way to become the file `name`, as [`sys::fs::replace`] calls them.
pub(super) fn is_temporary(beside: &OsStr, name: &OsStr) -> bool {
    let parts = || beside.to_str()?.strip_prefix('.')?.strip_prefix(name.to_str()?)?.strip_prefix('.')?.strip_suffix(".tmp");
    parts().is_some_and(|id| id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn replace_keeping_mode(file: &Path, bytes: &[u8]) -> Result<()> {
    let mode = std::fs::metadata(file).map_or(0o644, |metadata| metadata.permissions().mode() & 0o7777);
    sys::fs::replace(file, bytes, mode, &Syncs::new())
}

/// The name that systemd demands of the unit for a mount point, as `systemd-escape --path --suffix=mount` gives it.
fn unit_name(mount: &Path) -> String {
    let text = mount.to_string_lossy();
    let mut name = String::new();
    for (index, byte) in text.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if index == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    format!("{name}.mount")
}

/// Runs a program of the system and gives what it printed. `package` is what to install where it is missing.
pub(super) fn run(program: &str, arguments: &[&OsStr], package: &str) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::new(ErrorKind::NotFound, format!("the program {program} was not found"))
                .with("program", program)
                .hint(format!("install the package {package}")));
        }
        Err(source) => return Err(Error::io("execute", Path::new(program), source)),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = if said.is_empty() { output.status.to_string() } else { said.join("; ") };
    Err(Error::new(ErrorKind::Command, format!("{program} failed: {said}")).with("program", program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_the_names_that_systemd_gives() {
        for path in ["/var/lib/forklift/pool/mount", "/srv/my-pool/mount", "/.hidden/a.b/mount", "/x@y/~z+/mount", "/a_b:c,d=e"] {
            let ours = unit_name(Path::new(path));
            match Command::new("systemd-escape").args(["--path", "--suffix=mount", path]).output() {
                Ok(theirs) => assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout).trim()),
                Err(error) => eprintln!("SKIPPED units_have_the_names_that_systemd_gives: no systemd-escape: {error}"),
            }
        }
        assert_eq!(unit_name(Path::new("/srv/my-pool/mount")), "srv-my\\x2dpool-mount.mount");
    }

    #[test]
    fn fstab_gets_two_lines_and_is_as_it_was_without_them() {
        let folder = tempfile::tempdir().unwrap();
        let fstab = folder.path().join("fstab");
        let (image, mount) = (Path::new("/p/image"), Path::new("/p/mount"));
        let host = PoolHost { systemd: false, units: folder.path().to_owned(), fstab: fstab.clone() };
        // Without a line end at its end, and with bytes that are no text.
        for before in
            [&b"# a comment\nUUID=1 / ext4 defaults 0 1\n/p/image /elsewhere xfs loop 0 0\n"[..], b"UUID=1 / ext4 x=\xff 0 1", b""]
        {
            sys::fs::replace(&fstab, before, 0o640, &Syncs::new()).unwrap();
            let way = host.way(mount);
            assert!(!host.comes_back(&way, image, mount).unwrap());
            for _ in 0..2 {
                host.write(&way, PoolKind::Xfs, image, mount).unwrap();
                assert!(host.comes_back(&way, image, mount).unwrap());
            }
            let text = sys::fs::read(&fstab).unwrap();
            assert!(text.starts_with(before) && text.ends_with(b"/p/image /p/mount xfs loop,nodev,nosuid,nofail 0 0\n"));
            assert_eq!(String::from_utf8_lossy(&text).matches(MARK).count(), 1);
            host.forget(&way, image, mount).unwrap();
            let after = sys::fs::read(&fstab).unwrap();
            assert_eq!(after.strip_suffix(b"\n").unwrap_or(&after), before.strip_suffix(b"\n").unwrap_or(before));
            assert_eq!(std::fs::metadata(&fstab).unwrap().permissions().mode() & 0o777, 0o640);
        }
    }

    #[test]
    fn a_unit_that_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let host = PoolHost { systemd: true, units: folder.path().to_owned(), fstab: folder.path().join("fstab") };
        let mount = Path::new("/p/mount");
        let way = host.way(mount);
        assert_eq!(way.file(), folder.path().join("p-mount.mount"));
        sys::fs::replace(way.file(), b"[Mount]\nWhere=/p/mount\n", 0o644, &Syncs::new()).unwrap();
        let error = host.write(&way, PoolKind::Btrfs, Path::new("/p/image"), mount).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        host.forget(&way, Path::new("/p/image"), mount).unwrap();
        assert!(way.file().exists());
        let text = unit(PoolKind::Btrfs, Path::new("/p/image"), mount);
        assert!(text.contains("\nWhat=/p/image\nWhere=/p/mount\nType=btrfs\nOptions=loop,nodev,nosuid,nodiscard\n"), "{text}");
    }
}
