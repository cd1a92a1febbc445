//! Captures and restores of real trees through a real store. Tests named `case_N` are public failures of other tools.

mod capturing;
mod installing;
mod racing;
mod refusing;
mod rewind_racing;
mod rewinding;
mod scanning;
mod store_rows;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::*;
use crate::progress::Control;
use crate::store::{Half, Reader, Ref, RefKind, Store};

/// A worktree, a store and the folders that a restore needs; all removed at the end.
pub(super) struct Lab {
    _folder: Option<tempfile::TempDir>,
    root: PathBuf,
    base: PathBuf,
    pub(super) store: Store,
    pub(super) cache: StatCache,
}

impl Lab {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let base = folder.path().canonicalize().expect("real path");
        let lab = Self::on(&base, &base);
        Self { _folder: Some(folder), ..lab }
    }

    /// With the worktree in one folder, and the store and all else in another.
    pub(super) fn on(work: &Path, base: &Path) -> Self {
        fs::create_dir(work.join("work")).expect("worktree");
        let store = Store::open_or_create(&base.join("store")).expect("store");
        Self { _folder: None, root: work.join("work"), base: base.to_owned(), store, cache: StatCache::default() }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.root.clone()
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(super) fn kept(&self) -> PathBuf {
        self.base.join("kept")
    }

    pub(super) fn scope(&self) -> Scope {
        Scope { root: self.root(), ..Scope::default() }
    }

    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        make(path.parent().expect("parent"));
        put(&path, content.as_ref());
    }

    pub(super) fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).expect("mode");
    }

    pub(super) fn capture(&mut self) -> Captured {
        let scope = self.scope();
        self.capture_scope(&scope)
    }

    pub(super) fn capture_scope(&mut self, scope: &Scope) -> Captured {
        let control = Control::silent();
        let session = self.store.session(&control).expect("session");
        let captured = capture(scope, &session, &mut self.cache, &control).expect("capture");
        session.commit(&reference(&captured.half)).expect("commit");
        captured
    }

    pub(super) fn reader(&self) -> Reader {
        self.store.reader(&Control::silent()).expect("reader")
    }

    /// The scope that the checkpoint carries.
    pub(super) fn scope_of(&self, captured: &Captured) -> Scope {
        Scope::from_facts(&captured.half.facts, &self.root(), Vec::new()).expect("scope")
    }

    pub(super) fn plan(&mut self, captured: &Captured) -> Plan {
        let today = self.scope();
        self.plan_scope(captured, &today)
    }

    pub(super) fn plan_scope(&mut self, captured: &Captured, today: &Scope) -> Plan {
        let (reader, scope) = (self.reader(), self.scope_of(captured));
        plan(&reader, &captured.half.root, &scope, today, &mut self.cache, &Control::silent()).expect("plan")
    }

    pub(super) fn request<'a>(
        &self,
        reader: &'a Reader,
        scope: &'a Scope,
        target: &Captured,
        safety: &Captured,
        folders: &'a [PathBuf; 2],
    ) -> InstallRequest<'a> {
        let [staging, kept] = folders;
        InstallRequest { reader, scope, target: target.half.root, safety: safety.half.root, staging, kept, extent: Extent::Whole }
    }

    pub(super) fn folders(&self) -> [PathBuf; 2] {
        [self.base.join("staging"), self.kept()]
    }

    /// Captures what is there, and makes it the checkpoint.
    pub(super) fn restore(&mut self, target: &Captured) -> InstallReport {
        let safety = self.capture();
        self.install(target, &safety)
    }

    pub(super) fn install(&self, target: &Captured, safety: &Captured) -> InstallReport {
        let (reader, scope, folders, control) = (self.reader(), self.scope_of(target), self.folders(), Control::silent());
        let request = self.request(&reader, &scope, target, safety, &folders);
        stage(&request, &control).expect("stage");
        install(&request, &control).expect("install")
    }

    pub(super) fn listing(&self) -> Listing {
        listing(&self.root())
    }
}

pub(super) fn reference(half: &Half) -> Ref {
    Ref {
        id: crate::sys::id::sortable().expect("id"),
        name: None,
        created_ms: 0,
        kind: RefKind::Capture,
        project: None,
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files: Some(half.clone()),
        cluster: None,
        facts: serde_json::Value::Null,
        boot_id: String::new(),
    }
}

/// In memory where this machine has such a place: for trees of many names.
pub(super) fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("folder")
}

/// A folder with those above it.
pub(super) fn make(path: impl AsRef<Path>) {
    crate::sys::fs::make_folder(path.as_ref(), 0o755).expect("folder");
}

/// Removes a folder with all below it.
pub(super) fn clear(path: impl AsRef<Path>) {
    crate::sys::fs::remove_tree(path.as_ref()).expect("remove");
}

pub(super) fn put(path: &Path, content: &[u8]) {
    fs::File::create(path).and_then(|mut file| file.write_all(content)).expect("write");
}

pub(super) fn get(path: &Path) -> Vec<u8> {
    crate::sys::fs::read(path).expect("read")
}

/// Path to mode, owner and content, of everything below a folder but `.git`.
pub(super) type Listing = BTreeMap<PathBuf, (u32, u32, Vec<u8>)>;

pub(super) fn listing(root: &Path) -> Listing {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let path = entry.expect("entry").path();
            let data = fs::symlink_metadata(&path).expect("stat");
            if path.file_name().is_some_and(|name| name == ".git") {
                continue;
            }
            let content = if data.is_dir() {
                folders.push(path.clone());
                b"folder".to_vec()
            } else if data.is_symlink() {
                fs::read_link(&path).expect("link").as_os_str().as_bytes().to_vec()
            } else if data.is_file() {
                get(&path)
            } else {
                b"other".to_vec()
            };
            found.insert(path.strip_prefix(root).expect("below").to_owned(), (data.mode(), data.uid(), content));
        }
    }
    found
}

pub(super) fn verdicts(items: &[PlanItem]) -> BTreeMap<String, Verdict> {
    items.iter().map(|item| (String::from_utf8_lossy(&item.path).into_owned(), item.verdict)).collect()
}

pub(super) fn left_out(captured: &Captured) -> BTreeMap<String, String> {
    captured.coverage.left_out.iter().map(|left| (left.path.to_string_lossy().into_owned(), left.reason.clone())).collect()
}
