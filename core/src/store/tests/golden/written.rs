//! Writing the golden store of today's format, by hand.

use super::*;
use crate::store::PruneOptions;
use crate::store::fuzzing;

#[test]
#[allow(clippy::disallowed_methods, reason = "asked for by whoever runs it by hand")]
fn written() {
    if std::env::var_os("FORKLIFT_GOLDEN").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    fill(&store);
    let target = golden().join("format-1");
    sys::fs::remove_tree(&target).unwrap();
    for path in files_in(&store, "") {
        let to = target.join(path.strip_prefix(store.path()).unwrap());
        put(&to, &sys::fs::read(&path).unwrap());
    }
    put(&golden().join("format-1.txt"), describe(&store).as_bytes());
    corpus(&store);
}

fn put(path: &Path, bytes: &[u8]) {
    sys::fs::make_folder(path.parent().unwrap(), 0o755).unwrap();
    sys::fs::remove_file(path).unwrap();
    drop(sys::fs::write_unsynced(path, &[bytes], 0o644).unwrap());
}

/// Checkpoints of every shape, in packs of every kind, after a prune.
fn fill(store: &Store) {
    let text = |text: &str| Some(text.to_owned());
    commit(store, "00-removed", &tree(&[("goes", noise(50, 400)), ("a/block/of/its/own", noise(51, 30))]));
    for ((name, tree), id) in content::trees().into_iter().zip(["01k0000000aaaaaaaaaaaaaaaa", "01k0000001aaaaaaaaaaaaaaaa", "a-name_Z9"]) {
        let session = store.session(&Control::silent()).unwrap();
        let files = content::write(&session, &tree(&session));
        let mut made = reference(id, files.root);
        made.files = Some(files);
        if id.ends_with('a') {
            let cluster = content::write(&session, &tree(&session)[..2]);
            made = Ref {
                name: text(name),
                created_ms: u64::MAX >> 12,
                kind: if id.contains("1aa") { RefKind::Safety } else { RefKind::Capture },
                project: text("project-1"),
                branch: text("branch-1"),
                session: text("a session"),
                turn: text("7"),
                tool: text("edit \u{1f600}"),
                cluster: Some(cluster),
                facts: serde_json::json!({ "mode": "stopped", "nested": { "list": [null, true, 18_446_744_073_709_551_615_u64] } }),
                ..made
            };
        } else {
            made.kind = RefKind::Branch;
        }
        session.commit(&made).unwrap();
    }
    commit(store, "zz-removed", &tree(&[("goes", noise(52, 400))]));
    ["00-removed", "zz-removed"].iter().for_each(|id| store.remove_ref(id).unwrap());
    // What is needed of the second pack is written anew, content and metadata apart.
    let options = PruneOptions {
        apply: true,
        tolerated_in_pack: 0.0,
        tolerated_in_all: 0.0,
        most_rewritten: u64::MAX,
        empty_trash: true,
        ..Default::default()
    };
    store.prune(&options, &Control::silent()).unwrap();
}

/// Small inputs for each target from the store; those that crashed something once have other names and stay.
fn corpus(store: &Store) {
    let folder = corpus::folder();
    let seed = |target: &str, name: &str, bytes: &[u8]| put(&folder.join(target).join(format!("seed-{name}")), bytes);
    let small = |path: &PathBuf| path.metadata().unwrap().len() < 16 << 10;
    for (at, path) in files_in(store, "packs").iter().filter(|path| small(path)).enumerate() {
        let bytes = sys::fs::read(path).unwrap();
        seed("pack_footer", &at.to_string(), &bytes);
        let blobs = crate::store::pack::parse(&bytes, store.uuid_bytes()).unwrap();
        for (number, blob) in blobs.iter().filter(|blob| blob.stored < 4096).take(3).enumerate() {
            seed("blob_header", &format!("{at}-{number}"), &bytes[blob.offset as usize..usize::try_from(blob.end()).unwrap()]);
        }
    }
    for (at, path) in files_in(store, "index").iter().enumerate() {
        seed("index_segment", &at.to_string(), &sys::fs::read(path).unwrap());
    }
    for (at, path) in files_in(store, "refs").iter().enumerate() {
        let bytes = sys::fs::read(path).unwrap();
        seed("reference", &at.to_string(), &bytes);
        let reference = store.refs().unwrap().0.remove(at);
        seed("reference", &format!("{at}-json"), serde_json::to_string(&reference).unwrap().as_bytes());
    }
    seed("format", "0", &sys::fs::read(&store.path().join("FORMAT")).unwrap());
    let reader = store.reader(&Control::silent()).unwrap();
    let mut blocks = std::collections::BTreeSet::new();
    for reference in store.refs().unwrap().0 {
        for half in [&reference.files, &reference.cluster].into_iter().flatten() {
            crate::store::manifest::walk(&reader, &half.root, &Control::silent(), &mut |id, kind| {
                kind == crate::store::pack::Kind::Data || blocks.insert(*id)
            })
            .unwrap();
        }
    }
    let blocks = blocks.iter().map(|id| reader.blob(id).unwrap()).filter(|bytes| bytes.len() < 16 << 10);
    blocks.enumerate().for_each(|(at, bytes)| seed("manifest_block", &at.to_string(), &bytes));
    let deep = b"a/".repeat(40);
    let paths: [&[u8]; 16] = [
        b"",
        b"f",
        b"a",
        b"a/f",
        b"a/b/f",
        b"..",
        b"../outside/f",
        b"a/../../outside",
        b"/etc/passwd",
        b"out/f",
        b"up/root",
        b"a/in/f",
        b"a/top/etc",
        b"a/b/out",
        b"./a//f",
        &deep,
    ];
    paths.iter().enumerate().for_each(|(at, path)| seed("restore_path", &at.to_string(), path));
    assert_eq!(fuzzing::TARGETS.len() + 1, sys::fs::names(&folder).unwrap().len(), "every target has seeds");
}
