//! Prune, and stores that cannot be written.

use super::*;

#[test]
fn retained_copies_go_but_the_newest_and_only_on_request() {
    let (machine, project) = Machine::with_project();
    capture(&project, "first");
    let mut safety = Vec::new();
    for round in 0..3 {
        write(&machine.work().join("app.py"), &format!("round {round}\n"));
        safety.push(restore(&project, "first").safety);
    }
    let preview = project.prune(false, &Control::silent()).unwrap();
    assert_eq!(preview.safety.iter().map(|info| &info.id).collect::<Vec<_>>(), [&safety[0], &safety[1]]);
    assert_eq!(project.log().unwrap().0.len(), 4);
    assert!(project.prune(true, &Control::silent()).unwrap().applied);
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
    let preview = project.prune(false, &Control::silent()).unwrap();
    assert_eq!(preview.orphans, [(orphan.id().to_owned(), gone.clone())]);
    assert!(project.store().find_ref(&checkpoint).is_ok());
    project.prune(true, &Control::silent()).unwrap();
    assert!(project.store().find_ref(&checkpoint).is_err());
    assert!(project.prune(false, &Control::silent()).unwrap().orphans.is_empty());
    edit(&machine.work());
    restore(&project, "mine");
}
