//! Writeback errors: ext4 in a sparse image on a small memory file system. What is written is accepted; when it is synced the
//! image has no room, and what is synced once more succeeds with the data gone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forklift::ErrorKind;

use crate::children::{Worker, worker};
use crate::content::Random;
use crate::image::{self, Image};
use crate::model::{Model, Right};
use crate::run::{Context, Stop, showing};
use crate::tally::{Failure, Tally};

/// Room for the image, and what a file beside it takes away and gives back.
const MEMORY_MIB: u64 = 96;
const OPERATIONS: &str = "capture,capture,large,capture,remove,prune,restore";
/// How an operation may end on such a disk.
const KINDS: [ErrorKind; 4] = [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::ReadOnly, ErrorKind::Corrupt];

pub fn run(context: &Context, tally: &mut Tally) -> Result<(), Stop> {
    context.mounts.clone().map_err(Stop::Skipped)?;
    let mut random = context.random("writeback");
    let mut round = 0;
    while round < 2 || context.goes_on() {
        round += 1;
        let memory = Memory::new(&context.work.join(format!("memory{round}"))).map_err(Stop::Skipped)?;
        one(context, &memory, &mut random, tally)?;
    }
    Ok(())
}

/// A small memory file system.
struct Memory(PathBuf);

impl Memory {
    fn new(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir(folder).expect("a mount point");
        image::run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={MEMORY_MIB}m"), "tmpfs"]).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }

    /// Takes all that is left, but for so many KiB.
    fn fill(&self, leave_kib: u64) {
        use std::io::Write;
        let mut filler = std::fs::File::create(self.0.join("filler")).expect("a filler");
        let block = vec![1; 64 << 10];
        while filler.write_all(&block).is_ok() {}
        let len = filler.metadata().expect("its size").len();
        filler.set_len(len.saturating_sub(leave_kib << 10)).expect("shorter");
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).ok();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        image::run(Command::new("umount").arg("-l").arg(&self.0)).ok();
    }
}

fn one(context: &Context, memory: &Memory, random: &mut Random, tally: &mut Tally) -> Result<(), Stop> {
    // The journal and the tables have their blocks before, so that it is data that has none.
    let options = ["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-J", "size=8", "-N", "4096"];
    let mut image = Image::new(&memory.0, "ext4", 400, &options).map_err(Stop::Skipped)?;
    let path = image.path().join("store");
    let mut model = Model::default();
    // A store with something in it, while there is room.
    let mut first = Worker::start(with(worker(&path, random.next(), "capture"), &["--count", "4"]), &context.work);
    first.wait(Duration::from_secs(60));
    showing(model.learn(&[first.end()], Right::None), &image.file)?;
    let mut workers: Vec<Worker> =
        (0..2).map(|_| Worker::start(with(worker(&path, random.next(), OPERATIONS), &["--persist", "yes"]), &context.work)).collect();
    for _ in 0..6 {
        memory.fill(random.below(6_000) as u64);
        std::thread::sleep(Duration::from_millis(100 + random.below(150) as u64));
        memory.empty();
        std::thread::sleep(Duration::from_millis(random.below(150) as u64));
    }
    let ended: Vec<_> = workers.drain(..).map(Worker::end).collect();
    let failed = ended.iter().flat_map(|worker| &worker.lines).filter(|line| line.text.starts_with("FAIL")).count();
    tally.add("operations on failing writeback", ended.iter().map(|worker| worker.lines.len() as u64 / 2).sum());
    tally.add("injected faults", failed as u64);
    let learned = model.learn(&ended, Right::Kinds(&KINDS));
    // Only what reached the image is read from now on.
    memory.empty();
    image.umount().map_err(Stop::broken)?;
    image::run(Command::new("mount").args(["-o", "remount,size=800m"]).arg(&memory.0)).map_err(Stop::broken)?;
    if image.mount().is_err() {
        image::run(Command::new("e2fsck").args(["-f", "-y"]).arg(&image.file)).ok();
        image.mount().map_err(|why| Stop::Failed(Failure::lost(model.present.len(), why), Some(image.file.clone())))?;
    }
    showing(learned, &image.file)?;
    showing(model.check(&path), &image.file)
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}
