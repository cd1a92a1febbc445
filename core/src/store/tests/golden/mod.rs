//! Stores that an earlier build wrote, kept in `core/tests/golden`: every build opens, lists, verifies and restores them.
//!
//! `FORKLIFT_GOLDEN=1 cargo test -p forklift --lib golden::written` writes that of today's format, its contents as text and
//! the seeds for fuzzing anew. Once a format is released its store is never written again: a new format gets a folder beside it.

mod content;
mod corpus;
pub(super) mod refused;
mod written;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use super::faults::in_namespace;
use super::verifying::verify;
use super::*;
use crate::store::{Reader, VerifyLevel, VerifyOptions};

/// `core/tests/golden`.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A copy of a golden store that can be written, with the empty folders that Git does not keep.
pub(super) fn copy(format: &str, to: &Path) {
    for name in crate::store::layout::FOLDERS {
        sys::fs::make_folder(&to.join(name), 0o700).unwrap();
    }
    for first in 0..=u8::MAX {
        sys::fs::make_folder(&to.join(format!("packs/{first:02x}")), 0o700).unwrap();
    }
    let from = golden().join(format);
    let status = Command::new("cp").arg("-R").arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success());
}

/// Everything that refs and manifests say, and the hash of every content, as text.
fn describe(store: &Store) -> String {
    let reader = store.reader(&Control::silent()).unwrap();
    let (refs, bad) = store.refs().unwrap();
    assert!(bad.is_empty(), "{bad:?}");
    let mut text = format!("store {} generation {:?}\n", store.uuid(), store.generation().unwrap());
    for reference in refs {
        text.push_str(&format!("{}\n", serde_json::to_string(&reference).unwrap()));
        for half in [&reference.files, &reference.cluster].into_iter().flatten() {
            let lines: Vec<String> = reader.manifest(&half.root).unwrap().map(|entry| line(&reader, &entry.unwrap())).collect();
            assert_eq!(lines.len() as u64, half.entries);
            let hash = blake3::hash(lines.concat().as_bytes());
            text.push_str(&format!("  {}: {} entries {hash}\n", half.root, lines.len()));
            // The others are told by their hash.
            lines.iter().take(100).for_each(|line| text.push_str(line));
        }
    }
    text
}

fn line(reader: &Reader, entry: &Entry) -> String {
    let kind = match &entry.kind {
        EntryKind::File { size, chunks, holes, link } => {
            let mut bytes = Vec::new();
            reader.copy(chunks, &mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, *size);
            format!("file {size} {} in {} holes {holes:?} link {link}", blake3::hash(&bytes).to_hex(), chunks.len())
        }
        EntryKind::Symlink(to) => format!("link {}", to.escape_ascii()),
        EntryKind::Folder => "folder".to_owned(),
        EntryKind::Fifo => "pipe".to_owned(),
        EntryKind::Socket => "socket".to_owned(),
    };
    let xattrs: Vec<String> = entry.xattrs.iter().map(|one| format!(" {}={}", one.name.escape_ascii(), one.value.escape_ascii())).collect();
    let (path, unstable) = (entry.path.escape_ascii(), if entry.unstable { " unstable" } else { "" });
    format!("    {path} {:o} {}:{} {} {kind}{unstable}{}\n", entry.mode, entry.uid, entry.gid, entry.mtime_ns, xattrs.concat())
}

fn expected(format: &str) -> String {
    String::from_utf8(sys::fs::read(&golden().join(format!("{format}.txt"))).unwrap()).unwrap()
}

/// Opens, lists, reads every byte, verifies in every level and restores.
fn check(path: &Path, format: &str) {
    let store = Store::open(path).unwrap();
    assert_eq!(describe(&store), expected(format));
    for level in [VerifyLevel::Refs, VerifyLevel::Metadata, VerifyLevel::Packs, VerifyLevel::Full] {
        let report = verify(&store, level);
        assert!(report.is_whole(), "{report:?}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let options = VerifyOptions { scratch: Some(scratch.path().to_owned()), ..VerifyOptions::default() };
    let reader = store.reader(&Control::silent()).unwrap();
    let report = store.drill(
        &options,
        &mut |drilled| {
            for (half, folder) in [(&drilled.checkpoint.files, &drilled.files), (&drilled.checkpoint.cluster, &drilled.cluster)] {
                let (Some(half), Some(folder)) = (half, folder) else { continue };
                reader.manifest(&half.root)?.for_each(|entry| compare(&reader, &entry.unwrap(), folder));
            }
            Ok(())
        },
        &Control::silent(),
    );
    let report = report.unwrap();
    assert!(report.is_whole() && report.drilled == report.checkpoints && report.drilled > 0, "{report:?}");
}

/// One restored name against its entry.
fn compare(reader: &Reader, entry: &Entry, folder: &Path) {
    let path = folder.join(std::ffi::OsStr::from_bytes(&entry.path));
    match &entry.kind {
        EntryKind::File { chunks, .. } => {
            let mut bytes = Vec::new();
            reader.copy(chunks, &mut bytes).unwrap();
            assert!(sys::fs::read(&path).unwrap() == bytes, "{}", path.display());
        }
        EntryKind::Symlink(text) => assert_eq!(std::fs::read_link(&path).unwrap().as_os_str().as_bytes(), text),
        EntryKind::Folder => assert!(path.is_dir()),
        EntryKind::Fifo | EntryKind::Socket => {}
    }
}

#[test]
fn format_1_is_read_by_this_build() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    copy("format-1", &path);
    check(&path, "format-1");
    // The index is a cache.
    sys::fs::remove_tree(&path.join("index")).unwrap();
    sys::fs::make_folder(&path.join("index"), 0o700).unwrap();
    assert_eq!(describe(&Store::open(&path).unwrap()), expected("format-1"));
}

#[test]
fn format_1_is_written_by_this_build() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    copy("format-1", &path);
    let store = Store::open(&path).unwrap();
    let (refs, _) = store.refs().unwrap();
    for ((name, tree), reference) in content::trees().into_iter().zip(&refs) {
        let session = store.session(&Control::silent()).unwrap();
        let half = content::write(&session, &tree(&session));
        assert_eq!(Some(&half), reference.files.as_ref(), "{name}: blocks, nodes and chunks are those that an earlier build wrote");
        assert_eq!(session.report().bytes_new, 0, "{name}");
        session.commit(&Ref { id: format!("z-{}", reference.id), ..reference.clone() }).unwrap();
    }
    let options = crate::store::PruneOptions { apply: true, tolerated_in_pack: 0.0, tolerated_in_all: 0.0, ..Default::default() };
    store.prune(&options, &Control::silent()).unwrap();
    assert!(verify(&store, VerifyLevel::Full).is_whole());
}

#[test]
fn format_1_is_read_on_a_read_only_mount() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mount) = (folder.path().join("store"), folder.path().join("mount"));
    copy("format-1", &path);
    sys::fs::make_folder(&mount, 0o700).unwrap();
    let before = refused::snapshot(&path);
    let shell = format!("mount --bind {from} {to} && mount -o remount,bind,ro {to}", from = path.display(), to = mount.display());
    in_namespace("golden::child_that_reads", &shell, &mount);
    assert_eq!(refused::snapshot(&path), before, "nothing was written");
}

#[test]
fn child_that_reads() {
    let Some(path) = super::crash::child_input() else { return };
    assert!(sys::fs::create_new(&path.join("new"), 0o600).is_err(), "the mount is read-only");
    check(&path, "format-1");
    println!("DONE");
}
