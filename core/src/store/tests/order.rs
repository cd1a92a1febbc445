//! The order of the system calls of a commit, as the kernel saw them.

use std::process::{Command, Stdio};

use super::crash::{CHILD, child_command, child_input, feed};
use super::*;

#[test]
fn child_that_commits_once() {
    let Some(path) = child_input() else { return };
    let store = Store::open(&path).unwrap();
    commit(&store, "turn", &tree(&[("f", noise(5, 9_000))]));
    commit(&store, "same", &tree(&[("f", noise(5, 9_000))]));
}

/// What one line of the trace did, with paths relative to the store.
#[derive(Debug, PartialEq)]
enum Step {
    Synced(String),
    Renamed(String, String),
}

fn steps(trace: &str, store: &str) -> Vec<Step> {
    let inside =
        |text: &str| text.split_once(&format!("{store}/")).and_then(|(_, rest)| rest.split(['"', '>']).next()).map(ToOwned::to_owned);
    trace
        .lines()
        .filter(|line| line.ends_with("= 0"))
        .filter_map(|line| {
            if line.contains("fsync(") {
                return inside(line).map(Step::Synced);
            }
            let (from, to) = line.split_once("\", ")?;
            line.contains("rename").then(|| Some(Step::Renamed(inside(&format!("{from}\""))?, inside(to)?))).flatten()
        })
        .collect()
}

#[test]
fn row_25_row_26_everything_is_durable_before_what_names_it() {
    let (folder, store) = new_store();
    let trace = folder.path().join("trace");
    let inner = child_command("order::child_that_commits_once");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "4096", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o"]).arg(&trace);
    command
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        println!("SKIPPED row_25_row_26_everything_is_durable_before_what_names_it: there is no strace");
        return;
    };
    feed(&mut child, store.path());
    child.wait().unwrap();
    if store.refs().unwrap().0.is_empty() {
        println!("SKIPPED row_25_row_26_everything_is_durable_before_what_names_it: strace may not trace here");
        return;
    }
    let steps = steps(&String::from_utf8(sys::fs::read(&trace).unwrap()).unwrap(), store.path().to_str().unwrap());
    let shape: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Synced(path) => format!("sync {}", shorten(path)),
            Step::Renamed(from, to) => format!("{} to {}", shorten(from), shorten(to)),
        })
        .collect();
    let turn = [
        "sync tmp/*",
        "tmp/* to packs/*",
        "sync packs",
        "sync tmp/*",
        "tmp/* to index/*",
        "sync index",
        "sync tmp/*",
        "tmp/* to refs/*",
        "sync refs",
    ];
    assert_eq!(shape, turn.iter().chain(&turn[6..]).copied().collect::<Vec<_>>(), "{steps:#?}");
    for pair in steps.windows(3) {
        if let [Step::Synced(synced), Step::Renamed(from, to), Step::Synced(folder)] = pair {
            assert_eq!((synced, to.rsplit_once('/').unwrap().0), (from, folder.as_str()));
        }
    }
}

/// `packs/ab` as `packs`, `packs/ab/x` as `packs/*`, `tmp/x` as `tmp/*`.
fn shorten(path: &str) -> String {
    let (top, rest) = path.split_once('/').unwrap_or((path, ""));
    let folder = rest.is_empty() || (top == "packs" && !rest.contains('/'));
    if folder { top.to_owned() } else { format!("{top}/*") }
}
