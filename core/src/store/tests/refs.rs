use super::*;
use crate::ErrorKind;
use crate::store::refs::{check_id, encode};

#[test]
fn refs_come_in_the_order_of_their_ids() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 10))]);
    for id in ["c", "a", "b"] {
        commit(&store, id, &files);
    }
    let (refs, bad) = store.refs().unwrap();
    assert_eq!(refs.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(bad.is_empty());
    assert_eq!(store.find_ref("b").unwrap(), refs[1]);
    store.remove_ref("b").unwrap();
    for error in [store.find_ref("b").unwrap_err(), store.remove_ref("b").unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn facts_of_any_kind_come_back() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 10))]));
    let root = store.find_ref("a").unwrap().files.unwrap().root;
    let mut all = reference("full", root);
    all.name = Some("naïve \"name\"\n\u{1}".to_owned());
    all.facts = serde_json::json!({"z": 1, "a": [0.1, 1e300, -3, u64::MAX, null, true], "nested": {"ß": "\u{1F600}"}});
    all.files.as_mut().unwrap().facts = serde_json::json!({"hash": "mine"});
    store.session(&Control::silent()).unwrap().commit(&all).unwrap();
    assert_eq!(store.find_ref("full").unwrap(), all);
    // What could not be read back is refused before it is written.
    let mut deep = serde_json::Value::Null;
    for _ in 0..200 {
        deep = serde_json::json!([deep]);
    }
    all.id = "deep".to_owned();
    all.facts = deep;
    let error = store.session(&Control::silent()).unwrap().commit(&all).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.refs().unwrap().1.len(), 0);
}

#[test]
fn every_flip_in_a_ref_is_found() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 10))]));
    let path = store.path().join("refs/a");
    let bytes = sys::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        overwrite(&path, &damaged);
        let error = store.find_ref("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}");
        assert!(error.message().contains("refs/a"));
    }
    assert_eq!(store.refs().unwrap(), (Vec::new(), vec!["a".to_owned()]));
}

#[test]
fn row_23_a_bad_ref_is_reported_and_the_rest_usable() {
    let (_folder, store) = new_store();
    let files = tree(&[("f", noise(1, 10))]);
    commit(&store, "good", &files);
    let good = sys::fs::read(&store.path().join("refs/good")).unwrap();
    let root = store.find_ref("good").unwrap().files.unwrap().root;
    let put = |name: &str, bytes: &[u8]| drop(sys::fs::write_unsynced(&store.path().join("refs").join(name), &[bytes], 0o400).unwrap());
    put("empty", b"");
    put("renamed", &good);
    put("odd name", &good);
    put(".hidden", b"x");
    // A good hash over a member that this build does not know.
    let text = String::from_utf8(encode(&reference("newer", root)).unwrap()).unwrap();
    let body = format!("{},\"more\":1}}", text.split(",\"hash\"").next().unwrap());
    let newer = format!("{},\"hash\":\"{}\"}}\n", &body[..body.len() - 1], blake3::hash(body.as_bytes()).to_hex());
    put("newer", newer.as_bytes());
    let (refs, bad) = store.refs().unwrap();
    assert_eq!(refs.len(), 1);
    assert_eq!(bad, [".hidden", "empty", "newer", "odd name", "renamed"]);
    assert_eq!(store.find_ref("newer").unwrap_err().kind(), ErrorKind::UnsupportedFormat);
    assert_eq!(store.find_ref("empty").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(store.find_ref("renamed").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(restore(&store, "good").unwrap(), files);
}

#[test]
fn row_42_ids_are_names_not_paths() {
    for bad in ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b", "a b", "-x", ".x", &"x".repeat(129)] {
        assert!(check_id(bad).is_err(), "{bad:?}");
    }
    let (_folder, store) = new_store();
    assert_eq!(store.find_ref("../FORMAT").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.remove_ref("../FORMAT").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(store.path().join("FORMAT").exists());
}

#[test]
fn the_last_refs_are_read_and_no_others() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 10))]));
    let root = store.find_ref("a").unwrap().files.unwrap().root;
    for at in 0..30 {
        let id = format!("r{at:02}");
        drop(sys::fs::write_unsynced(&store.path().join("refs").join(&id), &[&encode(&reference(&id, root)).unwrap()], 0o400).unwrap());
    }
    overwrite(&store.path().join("refs/r27"), b"?");
    overwrite(&store.path().join("refs/r03"), b"?");
    let (last, bad) = store.last_refs(4).unwrap();
    assert_eq!(last.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), ["r26", "r28", "r29"]);
    assert_eq!(bad, ["r27"], "one that is not asked for is not read");
    assert_eq!(store.last_refs(1000).unwrap().0.len(), 29);
    assert_eq!(store.last_refs(0).unwrap(), (Vec::new(), Vec::new()));
}

#[test]
fn refs_can_be_read_from_any_one_on_from_both_ends() {
    let (_folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 10))]));
    let root = store.find_ref("a").unwrap().files.unwrap().root;
    for id in ["b", "c", "d", "e"] {
        drop(sys::fs::write_unsynced(&store.path().join("refs").join(id), &[&encode(&reference(id, root)).unwrap()], 0o400).unwrap());
    }
    overwrite(&store.path().join("refs/c"), b"?");
    let ids =
        |after| store.refs_after(after).unwrap().map(|found| found.map(|found| found.id).map_err(|error| error.kind())).collect::<Vec<_>>();
    let ok = |id: &str| Ok(id.to_owned());
    assert_eq!(ids(None), [ok("a"), ok("b"), Err(ErrorKind::Corrupt), ok("d"), ok("e")]);
    assert_eq!(ids(Some("b")), [Err(ErrorKind::Corrupt), ok("d"), ok("e")]);
    assert_eq!(ids(Some("bb")), ids(Some("b")), "one that is gone is a place too");
    assert_eq!(ids(Some("z")), []);
    let mut both = store.refs_after(Some("a")).unwrap();
    store.remove_ref("e").unwrap();
    assert_eq!(both.next_back().unwrap().unwrap().id, "d", "one that was removed since is left out");
    assert_eq!(both.next().unwrap().unwrap().id, "b");
    assert!(both.next_back().unwrap().is_err() && both.next().is_none() && both.next_back().is_none());
}

#[test]
fn a_ref_that_became_a_link_to_nothing_is_not_taken_for_a_removed_one() {
    let (folder, store) = new_store();
    commit(&store, "a", &tree(&[("f", noise(1, 200_000))]));
    let (path, elsewhere) = (store.path().join("refs/a"), folder.path().join("elsewhere"));
    sys::fs::rename(&path, &elsewhere).unwrap();
    // As where another disk, which is not mounted now, holds it.
    std::os::unix::fs::symlink(folder.path().join("absent"), &path).unwrap();
    assert_eq!(store.refs().unwrap(), (Vec::new(), vec!["a".to_owned()]));
    assert_eq!(store.refs_after(None).unwrap().count(), 1);
    let error = store.find_ref("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("refs/a") && error.hint_text().is_some());
    let options = crate::store::PruneOptions { apply: true, empty_trash: true, ..Default::default() };
    store.prune(&options, &Control::silent()).unwrap_err();
    assert!(!store.verify(&Default::default(), &Control::silent()).unwrap().is_whole());
    std::fs::remove_file(&path).unwrap();
    sys::fs::rename(&elsewhere, &path).unwrap();
    assert!(store.verify(&Default::default(), &Control::silent()).unwrap().is_whole());
}
