//! A process that works on a store at random and says on its standard output what it begins and what was done.
//!
//! Lines: `BEGIN <operation> <id>`, then `ACK <operation> <id>` or `FAIL <operation> <id> <kind> <message>`. Ids are never used
//! again, so that the order of lines of several processes does not matter. What it sees that must not be is `FAIL` with `internal`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forklift::store::{Store, VerifyLevel};
use forklift::{ErrorKind, Result};

use crate::content::Random;
use crate::operations;

/// How to work.
#[derive(Debug, Default)]
struct Work {
    store: PathBuf,
    seed: u64,
    /// Operations to do; 0 for no end.
    count: u64,
    /// Names of operations; one that stands there twice is done twice as often.
    operations: Vec<String>,
    cluster: Option<PathBuf>,
    stamp: u64,
    /// Goes on after a failure.
    persist: bool,
}

/// Above this many refs nothing is captured.
const MOST_REFS: usize = 14;

/// The program of a worker.
pub fn main(arguments: &[&str]) -> ExitCode {
    // Whoever started this checks what it does, so nobody wants it longer.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
    let mut work = Work::default();
    for pair in arguments.chunks(2) {
        match pair {
            ["--store", path] => work.store = PathBuf::from(path),
            ["--seed", number] => work.seed = number.parse().unwrap(),
            ["--count", number] => work.count = number.parse().unwrap(),
            ["--operations", names] => work.operations = names.split(',').map(str::to_owned).collect(),
            ["--cluster", path] => work.cluster = Some(PathBuf::from(path)),
            ["--stamp", number] => work.stamp = number.parse().unwrap(),
            ["--persist", yes] => work.persist = *yes == "yes",
            other => panic!("{other:?} is no argument of a worker"),
        }
    }
    run(&work)
}

fn run(work: &Work) -> ExitCode {
    let mut random = Random(work.seed);
    let store = match Store::open_or_create(&work.store) {
        Ok(store) => store,
        Err(error) => {
            say(&format!("FAIL open - {} {error}", error.kind()));
            return ExitCode::from(3);
        }
    };
    let mut done = 0;
    while work.count == 0 || done < work.count {
        done += 1;
        let operation = &work.operations[random.below(work.operations.len())];
        let Some((id, result)) = one(work, &store, operation, &mut random) else { continue };
        let told = match &result {
            Ok(detail) => say(&format!("ACK {operation} {id} {detail}")),
            Err(error) => say(&format!("FAIL {operation} {id} {} {}", error.kind(), error.message().replace('\n', " "))),
        };
        if !told {
            return ExitCode::SUCCESS;
        }
        // What others do meanwhile may be in the way.
        let fatal = result.is_err_and(|error| !matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound));
        if fatal && !work.persist {
            return ExitCode::from(3);
        }
    }
    ExitCode::SUCCESS
}

/// Does one operation; `None` where there is nothing to do it to.
fn one(work: &Work, store: &Store, operation: &str, random: &mut Random) -> Option<(String, Result<String>)> {
    let done = |result: Result<()>| result.map(|()| String::new());
    let begin = |id: &str| say(&format!("BEGIN {operation} {id}"));
    Some(match operation {
        "capture" | "large" => {
            let id = fresh(random, if operation == "large" { "large" } else { "small" });
            if many(store) > MOST_REFS {
                return None;
            }
            begin(&id);
            let result = operations::capture(store, &id);
            (id, done(result))
        }
        "cluster" => {
            let id = fresh(random, "cluster");
            begin(&id);
            let result = operations::capture_cluster(store, &id, work.cluster.as_deref().unwrap_or(Path::new("")), work.stamp);
            (id, done(result))
        }
        "remove" => {
            let id = some_ref(store, random).filter(|id| goes(id))?;
            begin(&id);
            let result = store.remove_ref(&id);
            (id, done(result))
        }
        "restore" => {
            let id = some_ref(store, random)?;
            let result = operations::check_ref(store, &id);
            (id, done(result))
        }
        "prune" => {
            begin("-");
            ("-".to_owned(), operations::prune(store, random))
        }
        "repair" => ("-".to_owned(), done(operations::repair(store))),
        "verify" => {
            let level = [VerifyLevel::Refs, VerifyLevel::Metadata, VerifyLevel::Packs, VerifyLevel::Full][random.below(4)];
            ("-".to_owned(), done(operations::verify(store, level)))
        }
        other => panic!("{other} is no operation"),
    })
}

fn fresh(random: &mut Random, kind: &str) -> String {
    format!("{}{:04x}-{kind}", forklift::sys::id::sortable().unwrap(), random.next() & 0xffff)
}

fn many(store: &Store) -> usize {
    store.refs().map_or(0, |(refs, _)| refs.len())
}

fn some_ref(store: &Store, random: &mut Random) -> Option<String> {
    let (refs, _) = store.refs().ok()?;
    refs.get(random.below(refs.len())).map(|found| found.id.clone())
}

/// Whether a worker may remove it: clusters are started before they go.
fn goes(id: &str) -> bool {
    !id.ends_with("-cluster")
}

/// One whole line at once, so that a kill leaves none half told. `false` where nobody listens.
fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_ok()
}
