//! Git's administrative folder of a worktree, found by our own code: git itself obeys GIT_DIR and refuses other owners.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::fs;

/// The administrative folder of the worktree whose top is `root`: its `.git` folder, or what its `.git` file names (linked
/// worktrees, submodules). `None` where `root` is not the top of a worktree.
///
/// # Errors
/// `NotFound` where the `.git` file names a folder that is not there.
pub(super) fn admin_folder(root: &Path) -> Result<Option<PathBuf>> {
    let git = root.join(".git");
    let Ok(metadata) = std::fs::metadata(&git) else { return Ok(None) };
    let folder = if metadata.is_dir() {
        git
    } else if metadata.is_file() && metadata.len() < 64 * 1024 {
        match named_by(&fs::read(&git)?) {
            Some(path) => root.join(path),
            None => return Ok(None),
        }
    } else {
        return Ok(None);
    };
    if !folder.join("HEAD").exists() {
        if folder.parent() == Some(root) {
            return Ok(None);
        }
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{} names {}, which is not a Git folder", root.join(".git").display(), folder.display()),
        )
        .with("path", folder.display())
        .hint("run `git worktree repair` in the main worktree"));
    }
    folder.canonicalize().map(Some).map_err(|source| Error::io("resolve", &folder, source))
}

/// Whether `root` is the top of a linked worktree.
pub(super) fn is_linked(root: &Path) -> bool {
    matches!(admin_folder(root), Ok(Some(admin)) if admin.join("commondir").is_file())
}

fn named_by(bytes: &[u8]) -> Option<PathBuf> {
    let path = bytes.strip_prefix(b"gitdir:")?.trim_ascii();
    (!path.is_empty() && !path.contains(&0)).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_and_absolute_gitdir_lines_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let admin = top.join("main/.git/worktrees/b");
        fs::make_folder(&admin, 0o755).unwrap();
        fs::make_folder(&top.join("b"), 0o755).unwrap();
        let write = |path: &Path, text: &str| fs::replace(path, text.as_bytes(), 0o644, &fs::Syncs::new()).unwrap();
        write(&admin.join("HEAD"), "x");
        assert_eq!(admin_folder(&top.join("main")).unwrap(), None, "a .git folder without HEAD is none of git's");
        write(&top.join("main/.git/HEAD"), "x");
        assert_eq!(admin_folder(&top.join("main")).unwrap(), Some(top.join("main/.git")));
        for line in ["gitdir: ../main/.git/worktrees/b\n".to_owned(), format!("gitdir: {}\n", admin.display())] {
            write(&top.join("b/.git"), &line);
            assert_eq!(admin_folder(&top.join("b")).unwrap(), Some(admin.clone()), "{line}");
        }
        write(&top.join("b/.git"), "gitdir: ../gone\n");
        let error = admin_folder(&top.join("b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains("gone"), "{error}");
        write(&top.join("b/.git"), "something else");
        assert_eq!(admin_folder(&top.join("b")).unwrap(), None);
    }
}
