//! Checkpoints of turns that are forgotten.

use super::*;

#[test]
fn forgetting_tells_which_turns_stand_on_a_checkpoint_and_they_are_listed_as_forgotten() {
    let (machine, project) = Machine::with_project();
    let first = begin(&project, "a", "1", "").checkpoint.unwrap();
    edit(&machine.work());
    end(&project, "a", "1", "");
    turn(&project, "a", "2", || {});
    let preview = project.forget(std::slice::from_ref(&first), false, &Control::silent()).unwrap();
    assert_eq!(preview.windows.iter().map(|window| &*window.turn).collect::<Vec<_>>(), ["1"]);
    project.forget(std::slice::from_ref(&first), true, &Control::silent()).unwrap();
    let (turns, _) = project.turns(None, &Control::silent()).unwrap();
    assert!(!turns[0].forgotten && turns[1].forgotten);
    assert_eq!((turns[1].calls[0].changed, &turns[1].calls[0].forgotten), (None, &vec![first]));
    turn(&project, "a", "3", || {});
}

#[test]
fn an_edge_never_repeats_a_checkpoint_that_was_forgotten() {
    let (_machine, project) = Machine::with_project();
    let first = begin(&project, "a", "1", "").checkpoint.unwrap();
    project.forget(std::slice::from_ref(&first), true, &Control::silent()).unwrap();
    project.prune(true, &[], &Control::silent()).unwrap();
    let ended = end(&project, "a", "1", "");
    assert!(ended.new_checkpoint);
    restore(&project, &ended.checkpoint.unwrap());
}

#[test]
fn a_prune_keeps_what_turns_and_rewinds_stand_on() {
    let (machine, project) = Machine::with_project();
    let ended = turn(&project, "a", "1", || edit(&machine.work()));
    let edges = refs(&project);
    let safety: Vec<String> = (0..3)
        .map(|round| {
            write(&machine.work().join("app.py"), &format!("round {round}\n"));
            restore(&project, &edges[0]).safety
        })
        .collect();
    let mut log = project.timeline_log(&mut Vec::new(), &Control::silent()).unwrap();
    log.append(crate::timeline::What::Rewound(crate::timeline::Rewind {
        id: "r1".to_owned(),
        session: "a".to_owned(),
        turns: vec!["1".to_owned()],
        windows: vec![ended.window.id],
        before: safety[1].clone(),
        after: edges[0].clone(),
        undoes: None,
        facts: serde_json::Value::Null,
    }))
    .unwrap();
    drop(log);
    let pruned = project.prune(true, &[], &Control::silent()).unwrap();
    assert_eq!(pruned.safety.iter().map(|info| &info.id).collect::<Vec<_>>(), [&safety[0]]);
    assert_eq!(pruned.kept.iter().map(|info| &info.id).collect::<Vec<_>>(), [&safety[1]]);
    let left = refs(&project);
    assert!([&edges[0], &edges[1], &safety[1], &safety[2]].iter().all(|id| left.contains(id)));
}
