//! Whose a change is: windows, turns, spans.

use super::*;
use WindowState::{Ended, Failed, Interrupted, Open};

fn spans(range: &Range) -> Vec<(&str, &str, bool)> {
    range.spans.iter().map(|span| (&*span.start, &*span.end, span.ours)).collect()
}

#[test]
fn windows_that_follow_each_other_are_spans_with_gaps_between() {
    let timeline = timeline(vec![
        begin("w1", "a", "1", "c1"),
        end("w1", "c2", Ended),
        edited("human", "x"),
        begin("w2", "a", "2", "c3"),
        end("w2", "c4", Failed),
        begin("w3", "a", "3", "c4"),
        end("w3", "c5", Interrupted),
    ]);
    let all = timeline.range("a", RangeStart::Before("1")).unwrap();
    assert_eq!(spans(&all), [("c1", "c2", true), ("c3", "c4", true), ("c4", "c5", true)]);
    assert_eq!((all.target().unwrap(), all.base().unwrap()), (&"c1".to_owned(), &"c5".to_owned()));
    assert_eq!(all.turns, ["1", "2", "3"]);
    assert_eq!(all.edits.len(), 1);
    assert!(all.spans[2].interrupted && !all.spans[1].interrupted);
    let after = timeline.range("a", RangeStart::After("1")).unwrap();
    assert_eq!(after.target().unwrap(), "c3", "what a human did between the turns stays");
    assert_eq!(timeline.range("a", RangeStart::After("3")).unwrap().spans, []);
    let states: Vec<_> = timeline.turns("a").iter().map(|turn| turn.state).collect();
    assert_eq!(states, [Ended, Failed, Interrupted]);
}

#[test]
fn parallel_tools_share_one_span() {
    let timeline = timeline(vec![
        begin("w1", "a", "1", "c1"),
        begin("w2", "a", "1", "c2"),
        end("w1", "c3", Ended),
        begin("w3", "a", "1", "c3"),
        end("w2", "c4", Ended),
        end("w3", "c5", Ended),
        begin("w4", "a", "1", "c5"),
        end("w4", "c6", Ended),
    ]);
    let range = timeline.range("a", RangeStart::Before("1")).unwrap();
    assert_eq!(spans(&range), [("c1", "c5", true), ("c5", "c6", true)]);
    assert_eq!(range.spans[0].windows, ["w1", "w2", "w3"]);
    assert!(timeline.windows().iter().all(|window| !window.overlaps_other_session));
}

#[test]
fn case_19_overlapping_windows_of_two_sessions_are_nobodys() {
    let timeline = timeline(vec![
        begin("w1", "a", "1", "c1"),
        begin("w2", "b", "1", "c2"),
        end("w1", "c3", Ended),
        end("w2", "c4", Ended),
        begin("w3", "a", "2", "c4"),
        end("w3", "c5", Ended),
    ]);
    assert_eq!(spans(&timeline.range("a", RangeStart::Before("1")).unwrap()), [("c1", "c3", false), ("c4", "c5", true)]);
    assert_eq!(spans(&timeline.range("b", RangeStart::Before("1")).unwrap()), [("c2", "c4", false)]);
    assert_eq!(timeline.sessions(), ["a", "b"]);
    assert!(timeline.turns("a")[0].overlaps_other_session && !timeline.turns("a")[1].overlaps_other_session);
}

#[test]
fn case_2_a_session_without_changes_has_nothing_to_take_back() {
    let timeline = timeline(vec![begin("w1", "a", "1", "c1"), end("w1", "c2", Ended), begin("w2", "b", "1", "c2"), end("w2", "c2", Ended)]);
    assert_eq!(spans(&timeline.range("b", RangeStart::Before("1")).unwrap()), [("c2", "c2", true)]);
}

#[test]
fn an_instant_window_marks_where_a_turn_begins() {
    let instant = |window: &str, turn: &str, start: &str| {
        let What::Begin(begin) = begin(window, "a", turn, start) else { panic!() };
        What::Begin(Begin { instant: true, tool: None, ..begin })
    };
    let timeline = timeline(vec![
        instant("w1", "1", ""),
        begin("w2", "b", "1", "c1"),
        What::Captured(Captured { window: "w1".to_owned(), start: "c1".to_owned() }),
        end("w2", "c2", Ended),
        begin("w3", "a", "1", "c2"),
        end("w3", "c3", Ended),
        instant("w4", "2", "c3"),
    ]);
    assert!(timeline.windows().iter().all(|window| !window.is_open() && !window.overlaps_other_session));
    assert_eq!(spans(&timeline.range("a", RangeStart::Before("1")).unwrap()), [("c1", "c1", true), ("c2", "c3", true), ("c3", "c3", true)]);
}

#[test]
fn case_9_a_range_of_a_turn_that_runs_is_refused() {
    let timeline = timeline(vec![begin("w1", "a", "1", "c1"), end("w1", "c2", Ended), begin("w2", "a", "2", "c2")]);
    let error = timeline.range("a", RangeStart::Before("1")).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Busy);
    assert!(error.message().contains("turn 2 of session a"), "{error}");
    assert_eq!(timeline.turns("a")[1].state, Open);
}

#[test]
fn rewinds_are_spans_and_mark_their_windows_until_a_redo() {
    let before_redo = vec![
        begin("w1", "a", "1", "c1"),
        end("w1", "c2", Ended),
        begin("w2", "a", "2", "c2"),
        end("w2", "c3", Ended),
        rewound("r1", &["w2"], ["c4", "c5"], None),
    ];
    let rewound_timeline = timeline(before_redo.clone());
    assert_eq!(rewound_timeline.turns("a")[1].rewound.as_deref(), Some("r1"));
    assert_eq!(rewound_timeline.turns("a")[0].rewound, None);
    assert_eq!(rewound_timeline.last_rewind("a").unwrap().id, "r1");
    assert_eq!(rewound_timeline.last_checkpoint().unwrap(), "c5");
    let range = rewound_timeline.range("a", RangeStart::Before("1")).unwrap();
    assert_eq!(spans(&range), [("c1", "c2", true), ("c2", "c3", true), ("c4", "c5", true)]);
    let redone = timeline([before_redo, vec![rewound("r2", &["w2"], ["c6", "c7"], Some("r1"))]].concat());
    assert_eq!(redone.turns("a")[1].rewound, None);
    assert_eq!(redone.last_rewind("a"), None);
}

#[test]
fn turns_are_found_by_name_prefix_and_place_and_told_when_not() {
    let timeline = timeline(
        ["msg-a1", "msg-b2", "other"]
            .iter()
            .enumerate()
            .flat_map(|(at, turn)| [begin(&format!("w{at}"), "a", turn, "c1"), end(&format!("w{at}"), "c1", Ended)])
            .collect(),
    );
    for (asked, found) in [("other", "other"), ("o", "other"), ("msg-b", "msg-b2"), ("#1", "msg-a1"), ("#3", "other")] {
        assert_eq!(timeline.turn("a", asked).unwrap().turn, found);
    }
    for (session, turn, kind, hint) in [
        ("a", "msg", crate::ErrorKind::InvalidArgument, "msg-a1, msg-b2"),
        ("a", "#4", crate::ErrorKind::NotFound, "other, msg-b2, msg-a1"),
        ("a", "", crate::ErrorKind::NotFound, "other"),
        ("b", "other", crate::ErrorKind::NotFound, "a"),
    ] {
        let error = timeline.turn(session, turn).unwrap_err();
        assert_eq!(error.kind(), kind, "{turn}");
        assert!(error.hint_text().unwrap().contains(hint), "{:?}", error.hint_text());
    }
}

#[test]
fn a_window_of_another_boot_is_abandoned_also_without_an_owner() {
    let timeline = timeline(vec![begin("w1", "a", "1", "c1")]);
    assert!(timeline.windows()[0].is_abandoned());
    let boot = crate::sys::process::boot_id().unwrap();
    let record = Record { n: 1, at_ms: 0, from: 1, boot, what: begin("w1", "a", "1", "c1") };
    assert!(!Timeline::of([record]).windows()[0].is_abandoned());
}

#[test]
fn the_death_of_an_owner_is_seen_and_a_reused_pid_is_no_owner() {
    let own = Owner::of(std::process::id()).unwrap();
    assert!(own.is_alive());
    assert!(!Owner { ticks: own.ticks + 1, ..own.clone() }.is_alive());
    assert!(!Owner { boot: "another boot".to_owned(), ..own }.is_alive());
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let owner = Owner::of(child.id()).unwrap();
    assert!(owner.is_alive());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!owner.is_alive());
    assert_eq!(Owner::of(child.id()).unwrap_err().kind(), crate::ErrorKind::NotFound);
}
