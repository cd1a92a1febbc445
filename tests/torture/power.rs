//! Power cuts on ext4 and XFS: workers capture, remove, prune, repair and restore until the file system goes away under them
//! with all that was not synced.

use std::time::{Duration, Instant};

use forklift::store::Store;

use crate::children::{Worker, worker};
use crate::clusters::Source;
use crate::content::Random;
use crate::image::Image;
use crate::model::{Model, Right};
use crate::run::{Context, Stop, showing};
use crate::tally::{Failure, Tally};

/// What workers do, the likelier the more often it is named.
const OPERATIONS: &str = "capture,capture,capture,capture,remove,remove,remove,prune,prune,restore,repair";
const WITH_LARGE: &str = "capture,large,remove,remove,prune,prune,restore";
const WITH_CLUSTER: &str = "cluster,cluster,capture,remove,prune";

/// One disk and what it must hold.
struct Disk {
    name: &'static str,
    image: Image,
    model: Model,
    /// Power was cut and nobody looked since.
    unseen: bool,
}

pub fn run(context: &Context, tally: &mut Tally) -> Result<(), Stop> {
    context.mounts.clone().map_err(Stop::Skipped)?;
    let mut random = context.random("power");
    let mut disks = Vec::new();
    for (name, options) in [("ext4", &["-E", "lazy_itable_init=1"][..]), ("xfs", &[])] {
        let folder = context.work.join(name);
        let image = Image::new(&folder, name, 512, options).map_err(Stop::Skipped)?;
        disks.push(Disk { name, image, model: Model::default(), unseen: false });
    }
    let mut source = match Source::new(&context.work) {
        Ok(source) => Some(source),
        Err(why) => {
            println!("SKIPPED power_cuts_of_clusters: {why}");
            None
        }
    };
    let mut cycle = 0;
    while cycle < 4 || context.goes_on() {
        let at = cycle % disks.len();
        // One cluster in any case, however short the run is.
        let source_now = source.as_ref().filter(|_| cycle == 2 || random.chance(8));
        cut_one(context, &mut disks[at], source_now, &mut random, tally).map_err(|stop| place(stop, cycle))?;
        cycle += 1;
        if cycle.is_multiple_of(12) {
            if let Some(source) = &mut source {
                source.advance().map_err(Stop::broken)?;
            }
            for disk in &mut disks {
                start_clusters(context, disk, source.as_ref(), tally)?;
            }
        }
    }
    for disk in &mut disks {
        start_clusters(context, disk, source.as_ref(), tally)?;
        let path = disk.image.path().join("store");
        let store = Store::open(&path).map_err(Stop::broken)?;
        let ended = crate::operations::prune(&store, &mut random).map_err(|error| Failure::new(format!("the last prune: {error}")));
        showing(ended, &disk.image.file)?;
        showing(disk.model.check(&path), &disk.image.file)?;
    }
    Ok(())
}

fn place(stop: Stop, cycle: usize) -> Stop {
    match stop {
        Stop::Failed(failure, shown) => Stop::Failed(failure.at(format!("cycle {cycle}")), shown),
        skipped => skipped,
    }
}

/// Mounts, looks (but for one time in three, when power is cut again in what follows), works, cuts.
fn cut_one(context: &Context, disk: &mut Disk, source: Option<&Source>, random: &mut Random, tally: &mut Tally) -> Result<(), Stop> {
    disk.image.mount().map_err(|why| Stop::Failed(Failure::lost(disk.model.present.len(), why), Some(disk.image.file.clone())))?;
    let store = disk.image.path().join("store");
    let again = disk.unseen && random.chance(3);
    if !again {
        showing(disk.model.check(&store).map_err(|failure| failure.at(disk.name)), &disk.image.file)?;
    }
    let mut workers: Vec<Worker> = (0..1 + random.below(2)).map(|_| start(context, &store, None, random)).collect();
    if let Some(source) = source {
        let mut worker = start(context, &store, Some(source), random);
        if !random.chance(3) {
            worker.wait_for("ACK cluster", Duration::from_secs(20));
        }
        workers.push(worker);
    }
    for worker in &mut workers {
        worker.wait_for("BEGIN", Duration::from_secs(10));
    }
    // Soon after something began, or much later; one that follows a cut at once falls into what opens and recovers.
    let most = if again { 30_000 } else { [4_000, 60_000, 400_000][random.below(3)] };
    std::thread::sleep(Duration::from_micros(random.below(most) as u64));
    let since = Instant::now();
    let log = random.chance(4);
    disk.image.cut(log).map_err(Stop::broken)?;
    let ended: Vec<_> = workers.into_iter().map(Worker::end).collect();
    tally.add("power cuts", 1);
    let learned = disk.model.learn(&ended, Right::Since(since)).map_err(|failure| failure.at(disk.name));
    disk.image.umount().map_err(Stop::broken)?;
    let done = showing(learned, &disk.image.file)?;
    tally.add("operations acknowledged before power cuts", done.values().sum());
    tally.add("clusters captured", done.get("cluster").copied().unwrap_or_default());
    disk.unseen = true;
    Ok(())
}

fn start(context: &Context, store: &std::path::Path, source: Option<&Source>, random: &mut Random) -> Worker {
    let seed = random.next();
    let command = match source {
        None => worker(store, seed, if random.chance(8) { WITH_LARGE } else { OPERATIONS }),
        Some(source) => {
            let mut command = worker(store, seed, WITH_CLUSTER);
            command.arg("--cluster").arg(&source.data).args(["--stamp", &source.stamp().to_string()]);
            command
        }
    };
    Worker::start(command, &context.work)
}

/// Looks at all of it, restores and starts every cluster, and removes those that were started.
fn start_clusters(context: &Context, disk: &mut Disk, source: Option<&Source>, tally: &mut Tally) -> Result<(), Stop> {
    disk.image.mount().map_err(Stop::broken)?;
    let path = disk.image.path().join("store");
    showing(disk.model.check(&path).map_err(|failure| failure.at(disk.name)), &disk.image.file)?;
    let Some(source) = source else { return Ok(()) };
    let store = Store::open(&path).map_err(Stop::broken)?;
    let scratch = context.work.join("scratch");
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    let started = showing(source.restore_and_start_all(&store, &scratch).map_err(|failure| failure.at(disk.name)), &disk.image.file)?;
    let captured = disk.model.present.iter().filter(|id| id.ends_with("-cluster")).count();
    if captured != started.len() {
        let failure =
            Failure::lost(captured.saturating_sub(started.len()), format!("{captured} clusters captured, {} started", started.len()));
        return Err(Stop::Failed(failure, Some(disk.image.file.clone())));
    }
    tally.add("clusters restored and started", started.len() as u64);
    for id in &started {
        showing(disk.model.forget(&store, id), &disk.image.file)?;
    }
    Ok(())
}
