//! The log and what is made of it.

mod attributing;
mod logging;
mod rebuilding;

use super::*;
use crate::progress::Control;

/// Records with numbers from 1.
fn numbered(what: Vec<What>) -> Vec<Record> {
    (1..).zip(what).map(|(n, what)| Record { n, at_ms: n * 1000, from: 1, boot: "boot".to_owned(), what }).collect()
}

fn timeline(what: Vec<What>) -> Timeline {
    Timeline::of(numbered(what))
}

fn begin(window: &str, session: &str, turn: &str, start: &str) -> What {
    What::Begin(Begin {
        window: window.to_owned(),
        session: session.to_owned(),
        turn: turn.to_owned(),
        tool: Some("Bash".to_owned()),
        call: None,
        owner: None,
        start: (!start.is_empty()).then(|| start.to_owned()),
        instant: false,
    })
}

fn end(window: &str, end: &str, state: WindowState) -> What {
    What::End(End { window: window.to_owned(), end: end.to_owned(), state })
}

fn edited(author: &str, path: &str) -> What {
    What::Edited(Edited { author: author.to_owned(), paths: vec![path.as_bytes().to_vec()] })
}

fn rewound(id: &str, windows: &[&str], edges: [&str; 2], undoes: Option<&str>) -> What {
    What::Rewound(Rewind {
        id: id.to_owned(),
        session: "a".to_owned(),
        turns: vec!["2".to_owned()],
        windows: windows.iter().map(|window| (*window).to_owned()).collect(),
        before: edges[0].to_owned(),
        after: edges[1].to_owned(),
        undoes: undoes.map(str::to_owned),
        facts: serde_json::Value::Null,
    })
}

fn log(folder: &std::path::Path) -> TimelineLog {
    TimelineLog::open(folder, "project", &Control::silent()).unwrap()
}

/// One of every kind.
fn sample() -> Vec<What> {
    vec![
        begin("w1", "a", "1", "c1"),
        end("w1", "c2", WindowState::Ended),
        begin("w2", "a", "2", ""),
        What::Captured(Captured { window: "w2".to_owned(), start: "c2".to_owned() }),
        What::Edited(Edited { author: "human".to_owned(), paths: vec![b"a\xff\\b\n".to_vec(), "日本".as_bytes().to_vec()] }),
        end("w2", "c3", WindowState::Failed),
        rewound("r1", &["w2"], ["c3", "c4"], None),
    ]
}
