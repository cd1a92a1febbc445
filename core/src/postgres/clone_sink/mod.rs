//! The sink that clones first and stores afterwards, from the clone: for file systems that share blocks.
//!
//! Read in this order: this file (what is cloned, and when), `kept` (the clone of the last capture), `blocks` (which chunks did not
//! change), `read` (one file into the store).

mod blocks;
mod kept;
mod read;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::cluster_cache::{CLOCK_SLACK_NS, Stat};
use super::sink::{STEP, check_path, open_source};
use super::store_sink::{count, file_entry, length};
use super::{ClusterCache, Sink, SourceFile, StoreSink, file_system_clock};
use crate::clone::{Method, choose};
use crate::error::{Error, Result};
use crate::progress::{Control, Unit};
use crate::report::{Reads, Why};
use crate::store::{ChunkRef, Cutting, Entry, EntryKind, Half, Session};
use crate::sys::extents::{blocks_tell, every_change_has_its_time, share};
use crate::sys::{fs, parallel};
use kept::Kept;
use read::{Looked, Plan};

/// Smaller files are read whole when they changed.
const LEAST_KEPT: u64 = 256 << 10;

/// Clones the files that the cache of the last capture does not know by an equal stat; [`CloneSink::store`] reads the clones, when
/// the copy is over and a stopped server runs again. A file that cannot be cloned (a tablespace on another file system) is read
/// at once, as a [`StoreSink`] does.
///
/// A file is cloned between two stats, and the kernel lets no write happen while it shares blocks: where the stats are equal, the
/// clone is what goes with that stat, however young it is.
#[derive(Debug)]
pub struct CloneSink<'a> {
    direct: StoreSink<'a>,
    kept: Kept,
    compares: bool,
    times: Times,
    cloned: Vec<Cloned>,
    /// Large files that did not change, and are kept as they are.
    unchanged: HashSet<PathBuf>,
}

/// What equal stats around a clone prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    /// That the clone is what goes with them.
    Fine,
    /// The same, where the last change is older than a tick.
    Coarse,
    /// No more than around a read: the file system is none that was tried.
    Unknown,
}

/// What [`CloneSink::store`] gives.
#[derive(Debug)]
pub struct StoredCluster {
    /// As of [`StoreSink::finish`].
    pub half: Half,
    /// For the next capture; it is what makes the kept clone worth something.
    pub cache: ClusterCache,
    /// What was read, and why.
    pub reads: Reads,
    /// What the file system got wrong.
    pub warnings: Vec<String>,
}

/// A file that was cloned.
#[derive(Debug)]
struct Cloned {
    clone: PathBuf,
    path: PathBuf,
    cutting: Cutting,
    /// Without its content.
    entry: Entry,
    /// Of the source, before it was cloned.
    stat: Stat,
    /// The clone is what goes with that stat.
    proven: bool,
    /// What is in it, where that is known.
    chunks: Option<Vec<ChunkRef>>,
    why: Why,
    size: u64,
}

/// The chunks of one file; why, and how many bytes of it, were read.
type Read = (Vec<ChunkRef>, Option<(Why, u64)>);

enum Seen {
    Gone,
    Known(Entry, Stat),
    Cloned(Box<Cloned>),
    /// It cannot be cloned.
    Refused,
}

impl<'a> CloneSink<'a> {
    /// Into `session`, by way of the folder `kept`, which is made where the cluster in `data` can be cloned to it; `None` where it
    /// cannot. `known` is what the last capture of the same cluster left. One sink at a time uses the folder. With `compares` the
    /// clones of large files are kept there for the next capture, and compared with those of the last.
    ///
    /// # Errors
    /// `NoSpace`, `Permission`, `Io`.
    pub fn new(session: &'a Session, mut known: ClusterCache, data: &Path, kept: &Path, compares: bool) -> Result<Option<Self>> {
        let kept = Kept::open(kept)?;
        if choose(data, kept.folder())?.method() != Method::Reflink {
            forget_kept(kept.folder())?;
            return Ok(None);
        }
        // Now, and not while a server is down.
        known.forget_missing(session)?;
        let direct = StoreSink::new(session, known);
        let folder = std::fs::File::open(kept.folder()).map_err(|source| Error::io("open", kept.folder(), source))?;
        let compares = compares && kept.is_trusted() && blocks_tell(&folder);
        let times = match (blocks_tell(&folder), every_change_has_its_time()) {
            (true, true) => Times::Fine,
            (true, false) => Times::Coarse,
            (false, _) => Times::Unknown,
        };
        Ok(Some(Self { direct, kept, compares, times, cloned: Vec::new(), unchanged: HashSet::new() }))
    }

    /// Reads the clones into the session, keeps those of large files, and removes the others.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Cancelled`; nothing is kept anew then.
    pub fn store(mut self, control: &Control) -> Result<StoredCluster> {
        let cloned = std::mem::take(&mut self.cloned);
        let (mut plans, lie) = self.plan(&cloned, control)?;
        let mut warnings = Vec::new();
        if let Some(path) = lie {
            // What the other files' blocks say is worth no more.
            warnings.push(self.distrust(&path));
            self.compares = false;
            plans = self.plan(&cloned, control)?.0;
            plans.iter_mut().flatten().for_each(|plan| plan.doubted = true);
        }
        let mut done = 0;
        let items: Vec<(&Cloned, Option<Plan>)> = cloned.iter().zip(plans).collect();
        let mut lists = Vec::with_capacity(items.len());
        for step in items.chunks(STEP) {
            lists.extend(parallel::map(step, |(file, plan)| control.check().and_then(|()| self.read(file, plan.as_ref())))?);
            done += step.len();
            control.report("store cluster", count(done), count(items.len()), Unit::Items);
        }
        drop(items);
        for (file, (chunks, read)) in cloned.iter().zip(&lists) {
            if let Some((why, bytes)) = read {
                self.direct.reads.count(*why, *bytes);
            }
            if file.proven {
                self.direct.seen.insert(file.stat, chunks.clone());
            } else {
                self.direct.seen.insert_unproven(file.stat);
            }
            let kind = EntryKind::File { size: length(chunks), chunks: chunks.clone(), holes: Vec::new(), link: 0 };
            self.direct.add(Entry { kind, ..file.entry.clone() });
        }
        // What cannot be kept costs the next capture some reads.
        if self.keep(&cloned, lists.into_iter().map(|(chunks, _)| chunks).collect()).is_err() {
            drop(forget_kept(self.kept.folder()));
        }
        let (session, reads) = (self.direct.session, self.direct.reads);
        let direct = std::mem::replace(&mut self.direct, StoreSink::new(session, ClusterCache::default()));
        let (half, cache) = direct.finish()?;
        Ok(StoredCluster { half, cache, reads, warnings })
    }

    /// How each clone is read, and the path of one whose blocks lied.
    fn plan(&self, cloned: &[Cloned], control: &Control) -> Result<(Vec<Option<Plan>>, Option<PathBuf>)> {
        let kept = self.compares.then_some(&self.kept);
        let mut lie = None;
        let mut plans = Vec::with_capacity(cloned.len());
        for step in cloned.chunks(STEP) {
            let looked = parallel::map(step, |file| {
                control.check()?;
                let relation = file.chunks.is_none() && file.cutting == Cutting::Pages && file.size >= LEAST_KEPT;
                relation.then(|| read::look(&file.clone, &file.path, kept, &self.direct.known)).transpose()
            })?;
            for (file, looked) in step.iter().zip(looked) {
                plans.push(match looked {
                    Some(Looked::Plan(plan)) => Some(plan),
                    Some(Looked::Lie) => {
                        lie.get_or_insert_with(|| file.path.clone());
                        None
                    }
                    None => None,
                });
            }
        }
        Ok((plans, lie))
    }

    fn distrust(&self, path: &Path) -> String {
        let marked = self.kept.distrust();
        drop(marked);
        format!(
            "blocks of {} that did not change by what the file system says hold something else: all changed files were read whole, and are from now on; \
             check the disk (a removal of {} makes forklift compare blocks again)",
            path.display(),
            self.kept.folder().display()
        )
    }

    /// The chunks of one clone; why, and how many bytes of it, were read.
    fn read(&self, file: &Cloned, plan: Option<&Plan>) -> Result<Read> {
        if let Some(chunks) = &file.chunks {
            return Ok((chunks.clone(), None));
        }
        let Some(plan) = plan else {
            let open = fs::open_regular(&file.clone)?;
            let chunks = self.direct.session.put_file(&open, &file.clone, file.cutting)?.chunks;
            let bytes = length(&chunks);
            return Ok((chunks, Some((file.why, bytes))));
        };
        let (chunks, bytes) = read::read(self.direct.session, &file.clone, plan)?;
        let why = if plan.compared {
            Why::Extents
        } else if plan.doubted {
            Why::InDoubt
        } else {
            file.why
        };
        Ok((chunks, Some((why, bytes))))
    }

    /// Makes the clones of large files the kept ones. Without comparison none is kept.
    fn keep(&mut self, cloned: &[Cloned], lists: Vec<Vec<ChunkRef>>) -> Result<()> {
        let mut paths = HashSet::new();
        if self.compares {
            for path in &self.unchanged {
                if let Some((stat, chunks)) = self.kept.look(&self.direct.known, path) {
                    self.direct.seen.insert(stat, chunks.to_vec());
                    paths.insert(path.clone());
                }
            }
            for (file, chunks) in cloned.iter().zip(lists) {
                if is_kept(file.cutting, file.size) {
                    let stat = self.kept.adopt(&file.clone, &file.path)?;
                    self.direct.seen.insert(stat, chunks);
                    paths.insert(file.path.clone());
                }
            }
        }
        self.kept.retain(&paths)
    }

    /// Clones one file, unless it is known.
    fn look(&self, file: &SourceFile, settled_by: i64) -> Result<Seen> {
        check_path(&file.path)?;
        let known = &self.direct.known;
        if let Ok(metadata) = std::fs::metadata(&file.source) {
            let stat = Stat::new(&metadata, file.cutting);
            // A large one is cloned all the same where it is not kept: for the next comparison.
            let needed = || self.compares && is_kept(file.cutting, metadata.len()) && self.kept.look(known, &file.path).is_none();
            if let Some(chunks) = known.find(&stat).filter(|_| !needed()) {
                return Ok(Seen::Known(file_entry(file, &metadata, chunks.clone()), stat));
            }
        }
        let Some(open) = open_source(file)? else { return Ok(Seen::Gone) };
        let (stat, metadata) = Stat::of(&open, &file.source, file.cutting)?;
        let clone = self.kept.fresh();
        // Whatever is wrong with the clone, its source can still be read.
        let Ok(target) = fs::create_new(&clone, 0o600) else { return Ok(Seen::Refused) };
        if share(&open, &target).is_err() {
            fs::remove_file(&clone)?;
            return Ok(Seen::Refused);
        }
        let (after, _) = Stat::of(&open, &file.source, file.cutting)?;
        let still = stat == after;
        let size = target.metadata().map_err(|source| Error::io("examine", &clone, source))?.len();
        Ok(Seen::Cloned(Box::new(Cloned {
            clone,
            path: file.path.clone(),
            cutting: file.cutting,
            entry: file_entry(file, &metadata, Vec::new()),
            stat,
            proven: still && stat.is_settled(settled_by),
            chunks: known.find(&stat).filter(|_| still).cloned(),
            why: known.why(&stat),
            size,
        })))
    }
}

impl Sink for CloneSink<'_> {
    fn begin(&mut self, c0_ns: i64) {
        self.direct.begin(c0_ns);
    }

    fn folder(&mut self, path: &Path, mode: u32) -> Result<()> {
        self.direct.folder(path, mode)
    }

    fn files(&mut self, files: &[SourceFile], control: &Control) -> Result<()> {
        let mut refused = Vec::new();
        let mut done = 0;
        for step in files.chunks(STEP) {
            let (live, still) = match self.times {
                Times::Fine => (i64::MAX, i64::MAX),
                Times::Coarse => {
                    let tick = file_system_clock(self.kept.folder())?.saturating_sub(CLOCK_SLACK_NS);
                    (tick, tick)
                }
                Times::Unknown => (self.direct.settled_by(true), self.direct.settled_by(false)),
            };
            let look = |file: &SourceFile| control.check().and_then(|()| self.look(file, if file.live { live } else { still }));
            let seen = parallel::map(step, look)?;
            for (file, seen) in step.iter().zip(seen) {
                match seen {
                    Seen::Gone => {}
                    Seen::Refused => refused.push(file.clone()),
                    Seen::Cloned(cloned) => self.cloned.push(*cloned),
                    Seen::Known(entry, stat) => {
                        if let EntryKind::File { size, chunks, .. } = &entry.kind {
                            if is_kept(file.cutting, *size) {
                                self.unchanged.insert(file.path.clone());
                            }
                            self.direct.seen.insert(stat, chunks.clone());
                        }
                        self.direct.add(entry);
                    }
                }
            }
            done += step.len();
            control.report("clone cluster", count(done), count(files.len()), Unit::Items);
        }
        if refused.is_empty() { Ok(()) } else { self.direct.files(&refused, control) }
    }

    fn bytes(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        self.direct.bytes(path, mode, bytes)
    }

    fn copied(&self) -> u64 {
        self.direct.copied() + self.cloned.iter().map(|file| file.size).sum::<u64>()
    }
}

impl Drop for CloneSink<'_> {
    fn drop(&mut self) {
        // What stays is removed by the next capture.
        let swept = self.kept.sweep();
        drop(swept);
    }
}

/// Removes a kept clone: a cache, without which the next capture reads the changed files whole.
///
/// # Errors
/// `Permission`, `Io`.
pub fn forget_kept(folder: &Path) -> Result<()> {
    fs::remove_tree(folder)
}

fn is_kept(cutting: Cutting, size: u64) -> bool {
    cutting == Cutting::Pages && size >= LEAST_KEPT
}
