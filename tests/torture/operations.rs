//! The operations on a store that the worker does and the checks repeat.

use std::path::Path;

use forklift::postgres::{ClusterCache, StoreSink, copy_stopped};
use forklift::store::{
    Cutting, Entry, EntryKind, Half, PruneOptions, Ref, RefKind, RepairOptions, Session, Store, VerifyLevel, VerifyOptions,
};
use forklift::{Control, Error, ErrorKind, Result};

use crate::content::{Random, Tree, content};

pub fn reference(id: &str) -> Ref {
    Ref {
        id: id.to_owned(),
        name: None,
        created_ms: forklift::sys::id::now_ms(),
        kind: RefKind::Capture,
        project: None,
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files: None,
        cluster: None,
        facts: serde_json::Value::Null,
        boot_id: "torture".to_owned(),
    }
}

/// Stores the content of an id under it.
pub fn capture(store: &Store, id: &str) -> Result<()> {
    let session = store.session(&Control::silent())?;
    let files = put(&session, &content(id))?;
    session.commit(&Ref { files: Some(files), ..reference(id) }).map(drop)
}

fn put(session: &Session, files: &Tree) -> Result<Half> {
    let mut manifest = session.manifest();
    for (path, bytes) in files {
        let read = session.put_bytes(bytes, Cutting::Content)?;
        let kind = EntryKind::File { size: read.size, chunks: read.chunks, holes: Vec::new(), link: 0 };
        let (path, xattrs) = (path.as_bytes().to_vec(), Vec::new());
        manifest.push(&Entry { path, kind, mode: 0o644, uid: 0, gid: 0, mtime_ns: 1, xattrs, unstable: false })?;
    }
    let bytes = files.values().map(|bytes| bytes.len() as u64).sum();
    Ok(Half { root: manifest.finish()?, entries: files.len() as u64, bytes, facts: serde_json::Value::Null })
}

/// Stores a stopped cluster under an id, with what tells its content.
pub fn capture_cluster(store: &Store, id: &str, data: &Path, stamp: u64) -> Result<()> {
    let session = store.session(&Control::silent())?;
    let mut sink = StoreSink::new(&session, ClusterCache::default());
    copy_stopped(data, &mut sink, &Control::silent())?;
    let (cluster, _) = sink.finish()?;
    session.commit(&Ref { cluster: Some(cluster), facts: serde_json::json!({ "stamp": stamp }), ..reference(id) }).map(drop)
}

/// Reads the files of a checkpoint back; those of a cluster are read and not kept.
pub fn restore(store: &Store, id: &str) -> Result<Tree> {
    let reader = store.reader(&Control::silent())?;
    let found = store.find_ref(id)?;
    let mut files = Tree::new();
    for half in [&found.files, &found.cluster].into_iter().flatten() {
        for entry in reader.manifest(&half.root)? {
            let entry = entry?;
            let EntryKind::File { chunks, size, .. } = &entry.kind else { continue };
            let mut bytes = Vec::new();
            reader.copy(chunks, &mut bytes)?;
            if bytes.len() as u64 != *size {
                return Err(Error::new(ErrorKind::Internal, format!("{id}: {} bytes came back where {size} were stored", bytes.len())));
            }
            if found.cluster.is_none() {
                files.insert(String::from_utf8_lossy(&entry.path).into_owned(), bytes);
            }
        }
    }
    Ok(files)
}

/// Whether a checkpoint reads back as it was stored: `Internal` where it has other bytes.
pub fn check_ref(store: &Store, id: &str) -> Result<()> {
    let files = restore(store, id)?;
    if !id.ends_with("-cluster") && files != content(id) {
        let differing: Vec<_> =
            content(id).into_iter().filter(|(path, bytes)| files.get(path) != Some(bytes)).map(|(path, _)| path).collect();
        return Err(Error::new(ErrorKind::Internal, format!("checkpoint {id} has other bytes than were stored: {differing:?}")));
    }
    Ok(())
}

/// A prune that rewrites as much as the dice say.
pub fn prune(store: &Store, random: &mut Random) -> Result<String> {
    let tolerated = [0.0, 0.1, 0.3][random.below(3)];
    let options = PruneOptions {
        apply: true,
        tolerated_in_pack: tolerated,
        tolerated_in_all: [0.0, 0.05][random.below(2)],
        empty_trash: random.chance(3),
        attempts: 2,
        ..PruneOptions::default()
    };
    let report = store.prune(&options, &Control::silent())?;
    if !report.packs_unreadable.is_empty() {
        return Err(Error::new(ErrorKind::Internal, format!("packs that nobody damaged cannot be read: {:?}", report.packs_unreadable)));
    }
    Ok(format!("{} removed, {} rewritten", report.packs_removed, report.packs_rewritten))
}

pub fn repair(store: &Store) -> Result<()> {
    let report = store.repair(&RepairOptions { attempts: 2, ..RepairOptions::default() }, &Control::silent())?;
    if report.is_whole() { Ok(()) } else { Err(Error::new(ErrorKind::Internal, format!("repair found losses: {report:?}"))) }
}

pub fn verify(store: &Store, level: VerifyLevel) -> Result<()> {
    let report = store.verify(&VerifyOptions { level, ..VerifyOptions::default() }, &Control::silent())?;
    if report.is_whole() { Ok(()) } else { Err(Error::new(ErrorKind::Internal, format!("verify found: {report:?}"))) }
}
