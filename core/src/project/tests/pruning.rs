//! Prune, and stores that cannot be written.

use super::*;
use crate::ErrorKind;

#[test]
fn retained_copies_go_but_the_newest_and_only_on_request() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let mut safety = Vec::new();
    for round in 0..3 {
        write(&machine.work().join("app.py"), &format!("round {round}\n"));
        safety.push(restore(&project, "first").safety);
    }
    let preview = project.prune(false, &[], &Control::silent()).unwrap();
    assert_eq!(preview.safety.iter().map(|info| &info.id).collect::<Vec<_>>(), [&safety[0], &safety[1]]);
    assert_eq!(project.log().unwrap().0.len(), 4);
    let pruned = project.prune(true, &[], &Control::silent()).unwrap();
    assert!(pruned.applied && pruned.packs > 0);
    assert_eq!((preview.packs, preview.bytes), (pruned.packs, pruned.bytes));
    assert_eq!(project.log().unwrap().0.len(), 2);
    restore(&project, &safety[2]);
    assert_eq!(read(&machine.work().join("app.py")), "round 2\n");
}

#[test]
fn the_state_of_a_removed_worktree_goes_on_request() {
    let (machine, project) = Machine::with_project();
    capture(&project, "mine");
    let gone = machine.path("gone");
    write(&gone.join("x"), "only there\n");
    let (orphan, _) = machine.setup(&gone).unwrap();
    let checkpoint = capture(&orphan, "theirs").id;
    crate::sys::fs::remove_tree(&gone).unwrap();
    let named = [orphan.id().to_owned()];
    // Not named, it is told of and stays: a worktree that was moved looks the same.
    let kept = project.prune(true, &[], &Control::silent()).unwrap();
    assert!(!kept.orphans[0].goes && project.store().find_ref(&checkpoint).is_ok());
    assert_eq!(
        project.prune(true, &["01m8aaaaaaaaaaaaaaaaaaaaaa".to_owned()], &Control::silent()).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let holder = orphan.hold(crate::project::lock::HolderKind::Run, "a command", &Control::silent()).unwrap();
    assert_eq!(project.prune(true, &named, &Control::silent()).unwrap_err().kind(), ErrorKind::Busy);
    drop(holder);
    assert!(project.store().find_ref(&checkpoint).is_ok());
    let preview = project.prune(false, &named, &Control::silent()).unwrap();
    let [told] = preview.orphans.as_slice() else { panic!("{preview:?}") };
    assert_eq!((told.id.as_str(), &told.root, &told.branch), (orphan.id(), &gone, &None));
    assert_eq!(told.checkpoints.iter().map(|info| (&*info.id, info.name.as_deref())).collect::<Vec<_>>(), [(&*checkpoint, Some("theirs"))]);
    assert!(project.store().find_ref(&checkpoint).is_ok());
    let pruned = project.prune(true, &named, &Control::silent()).unwrap();
    assert!(pruned.packs > 0);
    assert_eq!((preview.packs, preview.bytes), (pruned.packs, pruned.bytes));
    assert!(project.store().find_ref(&checkpoint).is_err());
    assert!(project.prune(false, &[], &Control::silent()).unwrap().orphans.is_empty());
    edit(&machine.work());
    restore(&project, "mine");
}

#[test]
fn what_rewriting_gains_is_told_before_and_is_what_it_gains() {
    let (machine, project) = Machine::with_project();
    let mut noise = vec![0; 300_000];
    blake3::Hasher::new().update(b"large").finalize_xof().fill(&mut noise);
    drop(crate::sys::fs::write_unsynced(&machine.work().join("large"), &[&noise], 0o644).expect("write"));
    let large = capture(&project, "large").id;
    std::fs::remove_file(machine.work().join("large")).expect("remove");
    capture(&project, "small");
    project.forget(&[large], true, &Control::silent()).unwrap();
    let bytes = || project.store().stats(&Control::silent()).unwrap().pack_bytes;
    let before = bytes();
    let preview = project.prune(false, &[], &Control::silent()).unwrap();
    assert_eq!(bytes(), before);
    let pruned = project.prune(true, &[], &Control::silent()).unwrap();
    assert_eq!(
        (preview.packs, preview.packs_written, preview.bytes, preview.trash_emptied),
        (pruned.packs, pruned.packs_written, pruned.bytes, pruned.trash_emptied)
    );
    assert!(pruned.packs_written > 0 && pruned.bytes >= 300_000, "{pruned:?}");
    assert_eq!(before - bytes(), pruned.bytes);
    restore(&project, "small");
}
