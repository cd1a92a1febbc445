//! The file system's own clock.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::error::{Error, Result};
use crate::postgres::FileClock;
use crate::sys::{fs, id};

/// The time that a file written now gets on the file system of the folder `data`, as its ctime. `None` where no file can be
/// made there without a trace in `data`.
pub(super) fn read(data: &Path) -> Result<Option<FileClock>> {
    // A file without a name leaves nothing behind, whatever happens.
    let nameless = rustix::fs::openat(CWD, data, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    if let Ok(descriptor) = nameless {
        return ctime(File::from(descriptor), data).map(Some);
    }
    let parent = data.parent().unwrap_or(data);
    if device(parent)? != device(data)? {
        return Ok(None);
    }
    let path = parent.join(format!(".clock-{}", id::sortable()?));
    let file = fs::create_new(&path, 0o600)?;
    let clock = ctime(file, &path);
    fs::remove_file(&path)?;
    clock.map(Some)
}

fn ctime(mut file: File, path: &Path) -> Result<FileClock> {
    let metadata = file.write_all(b"0").and_then(|()| file.metadata()).map_err(|source| Error::io("write beside", path, source))?;
    Ok(FileClock { device: metadata.dev(), ctime_ns: i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()) })
}

fn device(path: &Path) -> Result<u64> {
    path.metadata().map(|metadata| metadata.dev()).map_err(|source| Error::io("stat", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_lies_between_files_written_before_and_after_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let stamp = |name: &str| {
            let path = data.join(name);
            ctime(fs::create_new(&path, 0o600).unwrap(), &path).unwrap().ctime_ns
        };
        let before = stamp("before");
        let clock = read(&data).unwrap().unwrap();
        let after = stamp("after");
        assert!(before <= clock.ctime_ns && clock.ctime_ns <= after);
        assert_eq!(clock.device, device(&data).unwrap());
        assert_eq!(fs::names(&data).unwrap().len(), 2);
        assert_eq!(fs::names(folder.path()).unwrap().len(), 1);
    }
}
