//! One run: the time divided among the kinds, what fails kept, the counts printed.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::content::Random;
use crate::tally::{Failure, Tally};
use crate::{enclosure, flips, image, inject, kills, power, simulated, space, writeback};

/// What every kind is given.
#[derive(Debug)]
pub struct Context {
    /// A folder of its own, empty.
    pub work: PathBuf,
    pub seed: u64,
    /// Whether this run has a mount namespace of its own; if not, why.
    pub mounts: Result<(), String>,
    /// The test program of the library, for the simulated disk.
    pub core_tests: Option<PathBuf>,
    pub until: Instant,
    pub seconds: u64,
}

impl Context {
    /// Dice of its own for this kind, and the line that tells how to throw them again.
    pub fn random(&self, kind: &str) -> Random {
        Random(self.seed ^ crate::content::seed_of(kind))
    }

    pub fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }
}

/// Why a kind ended before its time.
#[derive(Debug)]
pub enum Stop {
    /// This machine cannot do it.
    Skipped(String),
    /// Something is wrong; the file or folder shows it.
    Failed(Failure, Option<PathBuf>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure, None)
    }
}

impl Stop {
    /// What must work for the torture itself did not.
    pub fn broken(why: impl std::fmt::Display) -> Self {
        Self::Failed(Failure::new(why.to_string()), None)
    }
}

/// Adds to a failure what shows it.
pub fn showing<T>(result: Result<T, Failure>, path: &Path) -> Result<T, Stop> {
    result.map_err(|failure| Stop::Failed(failure, Some(path.to_owned())))
}

/// One kind of fault.
struct Kind {
    name: &'static str,
    /// Its part of the time.
    share: u64,
    run: fn(&Context, &mut Tally) -> Result<(), Stop>,
}

const KINDS: [Kind; 7] = [
    Kind { name: "power", share: 26, run: power::run },
    Kind { name: "writeback", share: 8, run: writeback::run },
    Kind { name: "space", share: 8, run: space::run },
    Kind { name: "inject", share: 14, run: inject::run },
    Kind { name: "kills", share: 12, run: kills::run },
    Kind { name: "flips", share: 10, run: flips::run },
    Kind { name: "simulated", share: 22, run: simulated::run },
];

#[derive(Debug)]
struct Options {
    work: PathBuf,
    keep: PathBuf,
    seconds: u64,
    kinds: Vec<String>,
    seed: u64,
    core_tests: Option<PathBuf>,
}

pub fn main(arguments: &[&str]) -> ExitCode {
    // Where there is no namespace, children still end with this.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mounts = enclosure::mount_memory(&options.work);
    let chosen = |kind: &&Kind| options.kinds.is_empty() || options.kinds.iter().any(|name| name == kind.name);
    let shares: u64 = KINDS.iter().filter(chosen).map(|kind| kind.share).sum();
    let mut tally = Tally::default();
    println!("seed {}", options.seed);
    for kind in KINDS.iter().filter(chosen) {
        let begun = Instant::now();
        let seconds = (options.seconds * kind.share / shares.max(1)).max(1);
        let work = options.work.join(kind.name);
        std::fs::create_dir_all(&work).expect("a folder for this kind");
        let context = Context {
            work: work.clone(),
            seed: options.seed,
            mounts: mounts.clone(),
            core_tests: options.core_tests.clone(),
            until: begun + Duration::from_secs(seconds),
            seconds,
        };
        match (kind.run)(&context, &mut tally) {
            Ok(()) => println!("{:<12} {:>7.1} s", kind.name, begun.elapsed().as_secs_f64()),
            Err(Stop::Skipped(why)) => println!("SKIPPED {}: {why}", kind.name),
            Err(Stop::Failed(failure, shown)) => {
                let kept = shown.and_then(|path| keep(&path, &options.keep, kind.name));
                tally.fail(&format!("{} (seed {})", kind.name, options.seed), &failure, kept);
            }
        }
        std::fs::remove_dir_all(&work).ok();
    }
    tally.print();
    if tally.failures.is_empty() && tally.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Copies what shows a failure out of the memory that goes with this run.
fn keep(path: &Path, folder: &Path, kind: &str) -> Option<PathBuf> {
    let target = folder.join(format!("{kind}-{}", forklift::sys::id::sortable().ok()?));
    std::fs::create_dir_all(folder).ok()?;
    image::run(Command::new("cp").args(["-a", "--sparse=always"]).arg(path).arg(&target)).ok()?;
    Some(target)
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let mut options = Options { work: PathBuf::new(), keep: PathBuf::new(), seconds: 60, kinds: Vec::new(), seed: since, core_tests: None };
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    for pair in arguments.chunks(2) {
        match pair {
            ["--work", path] => options.work = PathBuf::from(path),
            ["--keep", path] => options.keep = PathBuf::from(path),
            ["--seconds", text] => options.seconds = number(text)?,
            ["--kinds", names] => options.kinds = names.split(',').map(str::to_owned).collect(),
            ["--seed", text] => options.seed = number(text)?,
            ["--core-tests", path] => options.core_tests = Some(PathBuf::from(path)),
            other => return Err(format!("{other:?} is no argument of a run")),
        }
    }
    if let Some(unknown) = options.kinds.iter().find(|name| KINDS.iter().all(|kind| kind.name != name.as_str())) {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!("{unknown} is no kind; there are {}", names.join(", ")));
    }
    if !options.work.is_dir() || options.keep.as_os_str().is_empty() {
        return Err("--work must be an empty folder, and --keep name one".to_owned());
    }
    Ok(options)
}
