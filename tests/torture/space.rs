//! Small disks: no bytes or no inodes left at any step. What fails says so, what was acknowledged stays, and a prune works
//! without a byte.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use forklift::ErrorKind;
use forklift::store::{PruneOptions, Store};
use forklift::{Control, Result};

use crate::children::{Worker, worker};
use crate::content::Random;
use crate::image::Image;
use crate::model::{Model, Right};
use crate::operations;
use crate::run::{Context, Stop, showing};
use crate::tally::{Failure, Tally};

/// What runs while there is almost no space.
const OPERATIONS: &str = "capture,capture,large,remove,prune,repair,restore";

pub fn run(context: &Context, tally: &mut Tally) -> std::result::Result<(), Stop> {
    context.mounts.clone().map_err(Stop::Skipped)?;
    let mut random = context.random("space");
    let mut disks = Vec::new();
    for (name, kind, mib, options) in [
        ("ext4", "ext4", 48, &["-N", "2000", "-J", "size=4"][..]),
        ("xfs", "xfs", 300, &[]),
        // The folders of a store take 270 inodes.
        ("inodes", "ext4", 48, &["-N", "400", "-J", "size=4"]),
    ] {
        let image = Image::new(&context.work.join(name), kind, mib, options).map_err(Stop::Skipped)?;
        disks.push((name, image, Model::default()));
    }
    let mut round = 0;
    while round < disks.len() * 2 || context.goes_on() {
        let at = round % disks.len();
        let (name, image, model) = &mut disks[at];
        let filler = if *name == "inodes" { Filler::Inodes } else { Filler::Bytes };
        let path = image.path().join("store");
        let result =
            one(context, &filler, &path, model, &mut random, tally).map_err(|failure| failure.at(format!("{name}, round {round}")));
        showing(result, &image.file)?;
        round += 1;
    }
    for (name, mut image, mut model) in disks {
        let path = image.path().join("store");
        image.remount().map_err(Stop::broken)?;
        showing(model.check(&path).map_err(|failure| failure.at(name)), &image.file)?;
    }
    Ok(())
}

/// What takes the space away.
enum Filler {
    Bytes,
    Inodes,
}

impl Filler {
    /// Takes all but so many blocks or inodes.
    fn fill(&self, folder: &Path, leave: u64) {
        let name = folder.join("filler");
        match self {
            Self::Bytes => {
                let mut file = File::create(&name).expect("a filler");
                let mut size = 1 << 20;
                while size >= 512 {
                    if file.write_all(&vec![1; size]).and_then(|()| file.sync_data()).is_err() {
                        size /= 4;
                    }
                }
                let len = file.metadata().expect("its size").len();
                file.set_len((len.saturating_sub(leave * 4096)) & !4095).and_then(|()| file.sync_all()).expect("shorter");
            }
            Self::Inodes => {
                std::fs::create_dir_all(&name).expect("a folder of fillers");
                let made = (0..).take_while(|at| File::create(name.join(at.to_string())).is_ok()).count() as u64;
                for at in made.saturating_sub(leave)..made {
                    std::fs::remove_file(name.join(at.to_string())).expect("one fewer");
                }
            }
        }
    }

    fn empty(&self, folder: &Path) {
        let name = folder.join("filler");
        match self {
            Self::Bytes => std::fs::remove_file(name).ok(),
            Self::Inodes => std::fs::remove_dir_all(name).ok(),
        };
    }
}

fn one(
    context: &Context,
    filler: &Filler,
    path: &Path,
    model: &mut Model,
    random: &mut Random,
    tally: &mut Tally,
) -> std::result::Result<(), Failure> {
    let folder = path.parent().expect("the mount point");
    work(context, path, "capture", 3, model, Right::None, random)?;
    // Space that ends at each step of what follows.
    filler.fill(folder, [random.below(12) as u64, random.below(120) as u64][random.below(2)]);
    tally.add("disks filled", 1);
    let done = work(context, path, OPERATIONS, 8, model, Right::Kinds(&[ErrorKind::NoSpace]), random);
    filler.empty(folder);
    tally.add("injected faults", done?);
    settle(path, random)?;
    model.check(path)?;
    // Not a byte: removing and pruning make room all the same.
    filler.fill(folder, 0);
    let freed = make_room(path, model, random);
    filler.empty(folder);
    let freed = freed?;
    tally.add("prunes without a byte free", 1);
    if !freed {
        return Err(Failure::new("a prune without a byte free did not make room".to_owned()));
    }
    settle(path, random)?;
    model.check(path)
}

/// With room again, a prune writes what it had no room for.
fn settle(path: &Path, random: &mut Random) -> std::result::Result<(), Failure> {
    let pruned = Store::open(path).and_then(|store| operations::prune(&store, random));
    pruned.map(drop).map_err(|error| Failure::new(format!("a prune with room again: {error}")))
}

/// Removes about half of the refs and prunes; whether that gave bytes back, where something was there to go.
fn make_room(path: &Path, model: &mut Model, random: &mut Random) -> std::result::Result<bool, Failure> {
    let failed = |what: &str, error: &forklift::Error| Failure::new(format!("{what} without a byte free: {error}"));
    let store = Store::open(path).map_err(|error| failed("opening", &error))?;
    let goes: Vec<String> = model.present.iter().filter(|_| random.chance(2)).cloned().collect();
    for id in &goes {
        model.forget(&store, id)?;
    }
    let before = bytes_of_packs(path);
    let options = PruneOptions { apply: true, tolerated_in_pack: 0.0, tolerated_in_all: 0.0, ..PruneOptions::default() };
    let prune = || -> Result<u64> {
        let report = store.prune(&options, &Control::silent())?;
        Ok(report.packs_removed + report.packs_rewritten)
    };
    let gone = prune().map_err(|error| failed("a prune", &error))?;
    Ok(gone == 0 || bytes_of_packs(path) < before)
}

fn bytes_of_packs(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![path.join("packs"), path.join("trash"), path.join("tmp")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => bytes += found.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Some operations in a worker; gives how many failed.
fn work(
    context: &Context,
    path: &Path,
    operations: &str,
    count: u32,
    model: &mut Model,
    right: Right<'_>,
    random: &mut Random,
) -> std::result::Result<u64, Failure> {
    let mut command = worker(path, random.next(), operations);
    command.args(["--count", &count.to_string(), "--persist", "yes"]);
    let mut worker = Worker::start(command, &context.work);
    if !worker.wait(Duration::from_secs(120)) {
        return Err(Failure::new("it goes on for ever".to_owned()));
    }
    let ended = worker.end();
    let failed = ended.lines.iter().filter(|line| line.text.starts_with("FAIL")).count();
    model.learn(&[ended], right)?;
    Ok(failed as u64)
}
