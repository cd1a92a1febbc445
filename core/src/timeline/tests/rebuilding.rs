//! The log from the refs.

use super::*;
use crate::store::{Ref, RefKind};
use crate::sys::fs::{self, Syncs};

fn reference(id: &str, carried: serde_json::Value) -> Ref {
    Ref {
        id: id.to_owned(),
        name: None,
        created_ms: 0,
        kind: RefKind::Capture,
        project: Some("project".to_owned()),
        branch: None,
        session: None,
        turn: None,
        tool: None,
        files: None,
        cluster: None,
        facts: serde_json::json!({ FACT: carried }),
        boot_id: String::new(),
    }
}

/// A log of the sample whose new checkpoints have refs.
fn written(folder: &std::path::Path) -> Vec<Ref> {
    let mut log = log(folder);
    let mut refs = Vec::new();
    for what in sample() {
        match &what {
            What::Begin(Begin { start: Some(id), .. }) | What::End(End { end: id, .. }) => {
                let id = id.clone();
                log.append_with(what, &id, |facts| {
                    refs.push(reference(&id, facts));
                    Ok(())
                })
                .unwrap();
            }
            _ => log.append(what).unwrap(),
        }
    }
    assert_eq!(log.announced(), None);
    refs
}

#[test]
fn all_refs_together_are_the_log_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let refs = written(folder.path());
    assert_eq!(refs.len(), 3);
    let whole = fs::read(&folder.path().join("log")).unwrap();
    // The rewind came after the last ref.
    let carried = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    fs::remove_file(&folder.path().join("log")).unwrap();
    let mut log = log(folder.path());
    assert!(log.is_doubtful());
    let rebuilt = rebuild(&mut log, &refs, &Syncs::new()).unwrap();
    assert_eq!(rebuilt, Rebuilt { recovered: 6, missing: vec![], kept: None });
    assert_eq!(fs::read(&folder.path().join("log")).unwrap(), &whole[..carried]);
}

#[test]
fn a_torn_end_comes_back_at_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let refs = written(folder.path());
    let whole = fs::read(&folder.path().join("log")).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in 0..ends[6] {
        std::fs::File::options().write(true).open(folder.path().join("log")).unwrap().set_len(cut as u64).unwrap();
        let mut log = log(folder.path());
        rebuild(&mut log, &refs, &Syncs::new()).unwrap();
        assert_eq!(log.timeline().last_number(), 6, "{cut}");
        drop(log);
        assert_eq!(fs::read(&folder.path().join("log")).unwrap(), &whole[..ends[6]], "{cut}");
    }
}

#[test]
fn a_damaged_middle_comes_back_and_the_damaged_log_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let refs = written(folder.path());
    let path = folder.path().join("log");
    let whole = fs::read(&path).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for at in [header / 2, header + 20, whole.len() / 2] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), &damaged).unwrap();
        let mut log = log(folder.path());
        let rebuilt = rebuild(&mut log, &refs, &Syncs::new()).unwrap();
        assert!(rebuilt.missing.is_empty());
        assert!(log.damage().is_none());
        assert_eq!(fs::read(&path).unwrap(), whole, "{at}");
        assert_eq!(fs::read(&rebuilt.kept.unwrap()).unwrap(), damaged, "{at}");
    }
}

#[test]
fn what_no_ref_has_stays_lost_and_is_not_looked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut refs = written(folder.path());
    refs.remove(1);
    fs::remove_file(&folder.path().join("log")).unwrap();
    let mut first = log(folder.path());
    let rebuilt = rebuild(&mut first, &refs, &Syncs::new()).unwrap();
    assert_eq!(rebuilt.missing, [(2, 2)]);
    drop(first);
    let mut again = log(folder.path());
    assert!(!again.damage().is_none());
    rebuild(&mut again, &refs, &Syncs::new()).unwrap();
    drop(again);
    let last = log(folder.path());
    assert!(last.damage().is_none());
    assert_eq!(last.damage().lost, [(2, 2)]);
    assert_eq!(last.timeline().window("w1").unwrap().state, WindowState::Open, "its end was in the ref that is gone");
}

#[test]
fn a_ref_that_was_not_published_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = log(folder.path());
    let refused =
        log.append_with(begin("w1", "a", "1", "c1"), "c1", |_| Err::<(), _>(crate::Error::new(crate::ErrorKind::NoSpace, "full")));
    assert_eq!(refused.unwrap_err().kind(), crate::ErrorKind::NoSpace);
    assert_eq!((log.timeline().last_number(), log.announced()), (0, None));
}

#[test]
fn refs_of_others_carry_nothing() {
    for facts in [serde_json::Value::Null, serde_json::json!({ "timeline": 1 }), serde_json::json!({ "timeline": [{ "n": 1 }] })] {
        assert_eq!(records_of(&Ref { facts, ..reference("c1", serde_json::Value::Null) }), []);
    }
}
