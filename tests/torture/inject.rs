//! Errors and kills at the Nth call, injected by strace into the calls that each operation really makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forklift::ErrorKind;
use forklift::store::Store;

use crate::children::{Worker, worker};
use crate::content::Random;
use crate::image;
use crate::model::{Model, Right};
use crate::operations;
use crate::run::{Context, Stop, showing};
use crate::tally::{Failure, Tally};

/// What is traced: one operation each, on a store that gives it something to do. The seeds are of a prune that rewrites all it
/// can, once with and once without emptying the trash.
const OPERATIONS: [(&str, u64); 6] = [("capture", 1), ("remove", 2), ("prune", 3), ("prune", 11), ("repair", 4), ("restore", 5)];

/// The errors that a call may really give.
const ERRORS: [(&str, &[&str]); 14] = [
    ("openat", &["EIO", "EMFILE", "ENOSPC"]),
    ("write", &["EIO", "ENOSPC", "EINTR"]),
    ("pread64", &["EIO", "EINTR"]),
    ("read", &["EIO", "EINTR"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("rename", &["EIO", "ENOSPC"]),
    ("renameat2", &["EIO", "ENOSPC"]),
    ("unlink", &["EIO", "EROFS"]),
    ("unlinkat", &["EIO"]),
    ("getdents64", &["EIO"]),
    ("flock", &["EINTR", "ENOLCK"]),
    ("mkdir", &["EIO", "ENOSPC"]),
    ("newfstatat", &["EIO"]),
    ("statx", &["EIO"]),
];

/// Of calls that differ only in an id or a number at most so many are taken: the store lists 256 folders of packs.
const ALIKE: usize = 3;

/// How an operation may end: with the kind of an error that the system gave, or of data that could not be read.
const KINDS: [ErrorKind; 5] = [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::ReadOnly, ErrorKind::Corrupt, ErrorKind::Busy];

/// One fault: in which operation, at which call by that name since the process began, and what.
struct Fault {
    operation: usize,
    call: String,
    when: usize,
    what: String,
    /// What it does there, for the message.
    on: String,
}

pub fn run(context: &Context, tally: &mut Tally) -> Result<(), Stop> {
    image::run(Command::new("strace").args(["-o", "/dev/null", "true"])).map_err(Stop::Skipped)?;
    let mut random = context.random("inject");
    let template = context.work.join("template");
    prepare(&template, &mut random).map_err(Stop::broken)?;
    let mut faults = Vec::new();
    for operation in 0..OPERATIONS.len() {
        faults.extend(faults_of(context, &template, operation)?);
    }
    tally.add("calls worth a fault", faults.len() as u64);
    // One of each sort of call and fault in turn, so that a short run takes some of all.
    let mut sorts: BTreeMap<(String, String), Vec<Fault>> = BTreeMap::new();
    for fault in faults {
        sorts.entry((fault.call.clone(), fault.what.clone())).or_default().push(fault);
    }
    let mut sorts: Vec<Vec<Fault>> = sorts.into_values().collect();
    let mut done = 0;
    while !sorts.is_empty() && (done < 8 || context.goes_on()) {
        let sort = random.below(sorts.len());
        let among = sorts[sort].len();
        let fault = sorts[sort].swap_remove(random.below(among));
        if sorts[sort].is_empty() {
            sorts.swap_remove(sort);
        }
        let store = context.work.join("store");
        let result = inject(context, &template, &store, &fault, &mut random, tally);
        let place = || format!("{}, {} at call {} of {}", OPERATIONS[fault.operation].0, fault.what, fault.when, fault.on);
        let result = result.map_err(|failure| failure.at(place()));
        showing(result, &store)?;
        std::fs::remove_dir_all(&store).expect("the store goes");
        done += 1;
    }
    Ok(())
}

/// A store with something to rewrite, something to remove, trash and a damaged segment.
fn prepare(path: &Path, random: &mut Random) -> forklift::Result<()> {
    let store = Store::create(path)?;
    let id = |at: usize| format!("r{at}-small");
    for at in 0..3 {
        operations::capture(&store, &id(at))?;
    }
    store.remove_ref(&id(0))?;
    operations::prune(&store, &mut Random(11))?;
    for at in 3..8 {
        operations::capture(&store, &id(at))?;
    }
    store.remove_ref(&id(3))?;
    store.remove_ref(&id(5))?;
    let segments = forklift::sys::fs::names(&path.join("index"))?;
    let damaged = path.join("index").join(&segments[random.below(segments.len())]);
    std::fs::remove_file(&damaged).expect("a segment");
    std::fs::write(&damaged, b"damaged").expect("a damaged segment");
    Ok(())
}

fn copy(template: &Path, store: &Path) -> Result<Model, Failure> {
    image::run(Command::new("cp").arg("-a").arg(template).arg(store)).map_err(Failure::new)?;
    let found = Store::open(store).and_then(|store| store.refs()).map_err(|error| Failure::new(error.to_string()))?;
    let present: BTreeSet<String> = found.0.into_iter().map(|found| found.id).collect();
    let mut model = Model::default();
    model.present = present;
    Ok(model)
}

/// The operation in a process on one core, so that its calls are made by one thread and counted by it.
fn traced(store: &Path, operation: usize, log: &Path, options: &[&str]) -> Command {
    let (name, seed) = OPERATIONS[operation];
    let work = worker(store, seed, name);
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0", "strace", "-y", "-o"])
        .arg(log)
        .args(options)
        .arg(work.get_program())
        .args(work.get_args())
        .args(["--count", "1"]);
    command
}

/// Runs an operation once and gives the faults that its calls are worth.
fn faults_of(context: &Context, template: &Path, operation: usize) -> Result<Vec<Fault>, Stop> {
    let (store, log) = (context.work.join("store"), context.work.join("calls"));
    copy(template, &store)?;
    let mut worker = Worker::start(traced(&store, operation, &log, &[]), &context.work);
    worker.wait(Duration::from_secs(60));
    let ended = worker.end();
    if !ended.lines.iter().any(|line| line.text.starts_with("ACK")) {
        return Err(Stop::broken(format!("{} under strace does nothing: {ended:?}", OPERATIONS[operation].0)));
    }
    let text = std::fs::read_to_string(&log).expect("the log of strace");
    std::fs::remove_dir_all(&store).expect("the store goes");
    Ok(worth_a_fault(&text, &store, operation))
}

fn worth_a_fault(log: &str, store: &Path, operation: usize) -> Vec<Fault> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for line in log.lines() {
        let Some((call, arguments)) = line.split_once('(') else { continue };
        let when = *counts.entry(call).and_modify(|count| *count += 1).or_insert(1);
        // Only what concerns the store: not the loader, nor what is said on standard output.
        if !arguments.contains(store.to_str().expect("a path")) {
            continue;
        }
        let on = shape(call, arguments, store);
        let seen = alike.entry(on.clone()).or_insert(0);
        *seen += 1;
        if *seen > ALIKE {
            continue;
        }
        let errors = ERRORS.iter().find(|(name, _)| *name == call).map_or(&[][..], |(_, errors)| errors);
        let creates = |error: &str| call != "openat" || error != "ENOSPC" || arguments.contains("O_CREAT");
        let what = errors.iter().filter(|error| creates(error)).map(|error| format!("error={error}"));
        for what in what.chain(["signal=KILL".to_owned()]) {
            faults.push(Fault { operation, call: call.to_owned(), when, what, on: on.clone() });
        }
    }
    faults
}

/// A call without what differs from run to run: names with a digit, and the folders of packs.
fn shape(call: &str, arguments: &str, store: &Path) -> String {
    let mut shape = call.to_owned();
    let root = store.to_str().expect("a path");
    for place in arguments.split(root).skip(1) {
        let path: String = place.chars().take_while(|letter| !matches!(letter, '"' | '>')).collect();
        let part = |part: &str| {
            if part.len() == 2 || part.contains(|letter: char| letter.is_ascii_digit()) { "#".to_owned() } else { part.to_owned() }
        };
        let parts: Vec<String> = path.split('/').map(part).collect();
        shape.push(' ');
        shape.push_str(&parts.join("/"));
    }
    shape
}

fn inject(context: &Context, template: &Path, store: &Path, fault: &Fault, random: &mut Random, tally: &mut Tally) -> Result<(), Failure> {
    let mut model = copy(template, store)?;
    let log = context.work.join("calls");
    let injection = format!("inject={}:{}:when={}", fault.call, fault.what, fault.when);
    let trace = format!("trace={}", fault.call);
    // Faster, but it delivers no signals.
    let filter: &[&str] = if fault.what.starts_with("error") { &["-f", "--seccomp-bpf"] } else { &[] };
    let options = [filter, &["-e", &trace, "-e", &injection]].concat();
    let mut worker = Worker::start(traced(store, fault.operation, &log, &options), &context.work);
    if !worker.wait(Duration::from_secs(90)) {
        return Err(Failure::new("it does not end".to_owned()));
    }
    let ended = worker.end();
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    if !told.contains("INJECTED") && !told.contains("killed by SIGKILL") {
        tally.add("faults that met no call", 1);
    }
    tally.add("injected faults", 1);
    for line in ended.lines.iter().filter(|line| line.text.starts_with("FAIL")) {
        if !line.text.contains(store.to_str().expect("a path")) {
            return Err(Failure::new(format!("the message names no path: {}", line.text)));
        }
        if fault.what == "error=EINTR" && fault.call != "flock" {
            return Err(Failure::new(format!("an interrupted call is made again: {}", line.text)));
        }
    }
    model.learn(&[ended], Right::Kinds(&KINDS))?;
    // What was there is whole, and the next attempts work.
    let next = |what: &str, result: forklift::Result<()>| result.map_err(|error| Failure::new(format!("then {what} fails: {error}")));
    let opened = Store::open(store).map_err(|error| Failure::lost(model.present.len(), format!("the store does not open: {error}")))?;
    next("a repair", operations::repair(&opened))?;
    model.check(store)?;
    let id = format!("{:x}-small", random.next());
    next("a capture", operations::capture(&opened, &id))?;
    model.present.insert(id);
    next("a prune", operations::prune(&opened, random).map(drop))?;
    model.check(store)
}
