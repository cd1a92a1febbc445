//! Every byte of a small store flipped, every kind of file cut, exchanged and taken away: found at the level that is named for
//! it, never wrong bytes, never a panic; and a sample repaired.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forklift::store::{Cutting, Entry, EntryKind, Half, Ref, RepairOptions, Store, VerifyLevel, VerifyOptions};
use forklift::{Control, ErrorKind, Result};

use crate::content::{Random, Tree, noise};
use crate::operations::{prune, reference, restore};
use crate::run::{Context, Stop};
use crate::tally::{Failure, Tally};

/// One damage to one file.
#[derive(Debug, Clone)]
enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Longer,
    Gone,
    /// Another file of its kind in its place.
    Other(PathBuf),
    /// A folder in its place.
    Folder,
}

#[derive(Debug, Clone)]
struct Case {
    /// Below the store.
    file: PathBuf,
    damage: Damage,
    /// The level at which verify finds it; none for what is worth nothing to any checkpoint.
    level: Option<VerifyLevel>,
}

pub fn run(context: &Context, tally: &mut Tally) -> std::result::Result<(), Stop> {
    let mut random = context.random("flips");
    let template = context.work.join("template");
    make(&template).map_err(Stop::broken)?;
    let (mut cases, mut flips) = cases_of(&template);
    tally.add("bytes to flip", flips.len() as u64);
    // Each byte once in an order of its own, so that a short run takes some of all; then other bits for as long as there is time.
    shuffle(&mut flips, &mut random);
    let whole = flips.len();
    cases.extend(flips);
    let first = cases.len();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (store, next, cases, template) = (context.work.join(format!("store{thread}")), &next, &cases, &template);
            let mut random = Random(context.seed ^ thread as u64);
            scope.spawn(move || -> std::result::Result<(u64, u64), (Failure, PathBuf)> {
                let (mut flipped, mut repaired) = (0, 0);
                copy(template, &store).map_err(|failure| (failure, store.clone()))?;
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at > first - whole + 20 && !context.goes_on() {
                        return Ok((flipped, repaired));
                    }
                    let mut case = cases[if at < first { at } else { first - whole + random.below(whole) }].clone();
                    if let (Damage::Flip(_, bit), true) = (&mut case.damage, at >= first) {
                        *bit = random.below(8) as u8;
                    }
                    flipped += u64::from(matches!(case.damage, Damage::Flip(..)));
                    // What was written to is another store afterwards.
                    let repairs = at % 25 == 0 || !matches!(case.damage, Damage::Flip(..));
                    repaired += u64::from(repairs);
                    try_one(template, &store, &case, repairs).map_err(|failure| (failure.at(format!("{case:?}")), store.clone()))?;
                }
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        handles.into_iter().map(|handle| handle.join().expect("a thread that catches panics")).collect()
    });
    tally.add("bytes that were flipped at least once", next.load(Ordering::Relaxed).min(first).saturating_sub(first - whole) as u64);
    for result in results {
        let (flipped, repaired) = result.map_err(|(failure, path)| Stop::Failed(failure, Some(path)))?;
        tally.add("flips", flipped);
        tally.add("repairs of flips", repaired);
    }
    Ok(())
}

/// What is stored under an id here: little, so that every byte can be flipped.
fn small(id: &str) -> Tree {
    let seed = u64::from(id.as_bytes()[0]);
    Tree::from([
        ("f".to_owned(), noise(seed, 40)),
        ("g".to_owned(), format!("text of {id} ").repeat(20).into_bytes()),
        ("same".to_owned(), noise(1, 60)),
    ])
}

/// Three checkpoints, one of which is in a rewritten pack; trash, two segments, a memory of verify.
fn make(path: &Path) -> Result<()> {
    let store = Store::create(path)?;
    for id in ["x", "a", "b"] {
        capture(&store, id)?;
    }
    store.remove_ref("x")?;
    prune(&store, &mut Random(3))?;
    capture(&store, "c")?;
    let options = VerifyOptions { level: VerifyLevel::Full, budget: Some(1 << 20), ..VerifyOptions::default() };
    store.verify(&options, &Control::silent()).map(drop)
}

fn capture(store: &Store, id: &str) -> Result<()> {
    let session = store.session(&Control::silent())?;
    let mut manifest = session.manifest();
    for (path, bytes) in &small(id) {
        let read = session.put_bytes(bytes, Cutting::Content)?;
        let kind = EntryKind::File { size: read.size, chunks: read.chunks, holes: Vec::new(), link: 0 };
        let (path, xattrs) = (path.as_bytes().to_vec(), Vec::new());
        manifest.push(&Entry { path, kind, mode: 0o644, uid: 0, gid: 0, mtime_ns: 1, xattrs, unstable: false })?;
    }
    let half = Half { root: manifest.finish()?, entries: 3, bytes: 0, facts: serde_json::Value::Null };
    session.commit(&Ref { files: Some(half), created_ms: 1, ..reference(id) }).map(drop)
}

/// All other damages, and a flip of each byte.
fn cases_of(template: &Path) -> (Vec<Case>, Vec<Case>) {
    let (mut cases, mut flips) = (Vec::new(), Vec::new());
    for (folder, flip, cut) in [
        ("packs", Some(VerifyLevel::Packs), Some(VerifyLevel::Refs)),
        ("index", Some(VerifyLevel::Refs), Some(VerifyLevel::Refs)),
        ("refs", Some(VerifyLevel::Refs), Some(VerifyLevel::Refs)),
        ("trash", None, None),
        ("FORMAT", Some(VerifyLevel::Refs), Some(VerifyLevel::Refs)),
        // A digit that became another digit is not told; see ARCHITECTURE.
        ("gc_generation", None, None),
        ("verified", None, None),
    ] {
        let files = files_below(template, folder);
        for (at, file) in files.iter().enumerate() {
            let len = std::fs::metadata(template.join(file)).expect("a file").len() as usize;
            flips.extend((0..len).map(|byte| Case { file: file.clone(), damage: Damage::Flip(byte, (byte % 8) as u8), level: flip }));
            let mut case = |damage, level| cases.push(Case { file: file.clone(), damage, level });
            // The newline at the end of FORMAT says nothing.
            let last = len.saturating_sub(if folder == "FORMAT" { 2 } else { 1 });
            for cut_to in [0, 1, 31, len / 2, last].into_iter().filter(|to| *to < len) {
                case(Damage::Cut(cut_to), cut);
            }
            case(Damage::Longer, cut);
            // A segment that is gone is no loss, and a ref that is gone nobody knows of.
            case(Damage::Gone, if matches!(folder, "index" | "refs") { None } else { cut });
            case(Damage::Folder, cut);
            if files.len() > 1 {
                let other = files[(at + 1) % files.len()].clone();
                case(Damage::Other(other), if folder == "packs" { Some(VerifyLevel::Metadata) } else { cut });
            }
        }
    }
    (cases, flips)
}

fn files_below(root: &Path, name: &str) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::from(name)]);
    while let Some(path) = left.pop() {
        if root.join(&path).is_dir() {
            left.extend(std::fs::read_dir(root.join(&path)).expect("a folder").flatten().map(|entry| path.join(entry.file_name())));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn copy(template: &Path, store: &Path) -> std::result::Result<(), Failure> {
    std::fs::remove_dir_all(store).ok();
    crate::image::run(std::process::Command::new("cp").arg("-a").arg(template).arg(store)).map_err(Failure::new)
}

fn try_one(template: &Path, store: &Path, case: &Case, repairs: bool) -> std::result::Result<(), Failure> {
    let path = store.join(&case.file);
    let whole = std::fs::read(&path).expect("the file");
    inflict(store, &path, &whole, &case.damage);
    catch_unwind(AssertUnwindSafe(|| look(store, case, repairs))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure::new(format!("a panic: {text:?}")))
    })?;
    if repairs {
        return copy(template, store);
    }
    if path.is_dir() {
        std::fs::remove_dir_all(&path).expect("the folder goes");
    }
    replace(&path, &whole);
    Ok(())
}

fn inflict(store: &Path, path: &Path, whole: &[u8], damage: &Damage) {
    match damage {
        Damage::Flip(at, bit) => {
            let mut bytes = whole.to_vec();
            bytes[*at] ^= 1 << bit;
            replace(path, &bytes);
        }
        Damage::Cut(len) => replace(path, &whole[..*len]),
        Damage::Longer => replace(path, &[whole, &[0; 7]].concat()),
        Damage::Gone => std::fs::remove_file(path).expect("a file"),
        Damage::Other(other) => replace(path, &std::fs::read(store.join(other)).expect("the other")),
        Damage::Folder => {
            std::fs::remove_file(path).expect("a file");
            std::fs::create_dir(path).expect("a folder");
            replace(&path.join("inside"), b"x");
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) {
    std::fs::remove_file(path).ok();
    std::fs::write(path, bytes).expect("a file");
}

/// Verify finds it, what restores is right, and a repair leaves nothing that is neither whole nor named.
fn look(path: &Path, case: &Case, repairs: bool) -> std::result::Result<(), Failure> {
    let store = match Store::open(path) {
        Ok(store) => store,
        Err(error) if case.file.as_path() == Path::new("FORMAT") => {
            let right = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::UnsupportedFormat | ErrorKind::NotFound | ErrorKind::Io);
            return if right { Ok(()) } else { Err(Failure::new(format!("{:?}: {error}", error.kind()))) };
        }
        Err(error) => return Err(Failure::new(format!("the store does not open: {error}"))),
    };
    let whole = right_or_refused(&store)?;
    if let Some(level) = case.level {
        let options = VerifyOptions { level, ..VerifyOptions::default() };
        let report = store.verify(&options, &Control::silent()).map_err(|error| Failure::new(format!("verify fails: {error}")))?;
        if report.is_whole() {
            return Err(Failure::new(format!("not found at level {level:?}")));
        }
    } else if whole < 3 && !matches!(case.damage, Damage::Gone) {
        return Err(Failure::lost(3 - whole, "what no checkpoint needs is damaged, and one does not restore".to_owned()));
    }
    if repairs {
        captures_go_on(&store)?;
    }
    if repairs && case.level.is_some() && case.file.as_path() != Path::new("FORMAT") {
        repaired(&store)?;
    }
    Ok(())
}

/// Whatever is damaged.
fn captures_go_on(store: &Store) -> std::result::Result<(), Failure> {
    match capture(store, "d") {
        Ok(()) => match restore(store, "d") {
            Ok(files) if files == small("d") => Ok(()),
            // It relied on a chunk that is damaged and that nobody has read.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            other => Err(Failure::lost(1, format!("a capture on the damaged store gives {other:?}"))),
        },
        Err(error) if error.kind() == ErrorKind::UnsupportedFormat => Ok(()),
        Err(error) => Err(Failure::new(format!("a capture on the damaged store: {error}"))),
    }
}

/// How many of the three restore; those that do not give an error, never other bytes.
fn right_or_refused(store: &Store) -> std::result::Result<usize, Failure> {
    let mut whole = 0;
    for id in ["a", "b", "c"] {
        match restore(store, id) {
            Ok(files) if files == small(id) => whole += 1,
            Ok(_) => return Err(Failure::new(format!("{id} has other bytes than were stored"))),
            Err(error)
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound | ErrorKind::UnsupportedFormat | ErrorKind::Io) => {}
            Err(error) => return Err(Failure::new(format!("{id} fails with {:?}: {error}", error.kind()))),
        }
    }
    Ok(whole)
}

fn repaired(store: &Store) -> std::result::Result<(), Failure> {
    let failed = |error: &forklift::Error| Failure::new(format!("after damage: {error}"));
    let report = store
        .repair(&RepairOptions { set_aside_refs: true, ..RepairOptions::default() }, &Control::silent())
        .map_err(|error| failed(&error))?;
    for id in ["a", "b", "c"] {
        let named = report.losses.iter().any(|loss| loss.checkpoint == id) || report.refs_unreadable.iter().any(|path| path.ends_with(id));
        match restore(store, id) {
            Ok(files) if files == small(id) && !named => {}
            Err(_) if named || store.find_ref(id).is_err() => {}
            other => return Err(Failure::new(format!("after a repair that names {:?} as lost, {id} gives {other:?}", report.losses))),
        }
    }
    Ok(())
}

fn shuffle(cases: &mut [Case], random: &mut Random) {
    for at in (1..cases.len()).rev() {
        cases.swap(at, random.below(at + 1));
    }
}
