//! Making and opening a store.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::create;
use super::disk::{self, Disk};
use super::format::{self, Format, Use};
use super::index::View;
use super::layout::{Layout, PackId};
use super::{
    Drilled, PruneOptions, PruneReport, Reader, Ref, RefsAfter, RepairOptions, RepairReport, Session, StatsReport, VerifyLevel,
    VerifyOptions, VerifyReport, prune, refs, repair, stats, verify,
};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Control;

/// An open store. Cheap to clone and shared between threads; opening writes nothing.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    format: Format,
    uuid: [u8; 16],
    /// What was last loaded of the index, shared by the sessions and readers of this handle.
    view: Mutex<Option<Arc<View>>>,
    /// Packs in which damage was seen: sessions believe of them only what they have read.
    doubted: RwLock<HashSet<PackId>>,
}

impl Store {
    /// Makes a store in `path`, which must be absent or an empty folder (or one in which this was interrupted).
    /// Durable when it returns.
    ///
    /// # Errors
    /// `AlreadyExists` where there is a store, or anything else; `Unsupported` on a network file system; `NoSpace`,
    /// `Permission`, `ReadOnly`, `Io`.
    pub fn create(path: &Path) -> Result<Self> {
        Self::create_on(&disk::real(), &real_path(path)?)
    }

    pub(super) fn create_on(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self> {
        create::create(disk, path)?;
        Self::open_on(disk, path)
    }

    /// Opens the store in `path`; a folder that is not one is left untouched.
    ///
    /// # Errors
    /// `NotFound` where there is no store; `UnsupportedFormat` where it is newer than this build; `Corrupt`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_on(&disk::real(), &real_path(path)?)
    }

    pub(super) fn open_on(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))?;
        let layout = Layout::new(Arc::clone(disk), path);
        let file = layout.format();
        let bytes = match disk.read_at_most(&file, format::MAX_BYTES as u64) {
            Err(error) if error.kind() == ErrorKind::NotFound || error.os() == Some(libc::ENOTDIR) => {
                let root = layout.root().display();
                return Err(Error::new(ErrorKind::NotFound, format!("there is no store in {root}"))
                    .with("path", root)
                    .hint("name the folder of a store with --store, or make one by setting up a project"));
            }
            other => other?,
        };
        let format = Format::decode(&bytes, &file)?;
        let uuid = format.uuid_bytes().ok_or_else(|| Error::new(ErrorKind::Internal, "a uuid was not checked"))?;
        Ok(Self { inner: Arc::new(Inner { layout, format, uuid, view: Mutex::new(None), doubted: RwLock::default() }) })
    }

    /// Opens it, or makes it where `path` is absent or empty. Two processes may do this at once.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::create`].
    pub fn open_or_create(path: &Path) -> Result<Self> {
        Self::open_or_create_on(&disk::real(), &real_path(path)?)
    }

    pub(super) fn open_or_create_on(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self> {
        match Self::open_on(disk, path) {
            Err(error) if error.kind() == ErrorKind::NotFound => match create::create(disk, path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::open_on(disk, path).map_err(|_| error),
                Err(error) => Err(error),
                Ok(()) => Self::open_on(disk, path),
            },
            other => other,
        }
    }

    /// Refuses a path that is a store or lies in one.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_outside(path: &Path) -> Result<()> {
        match create::enclosing(disk::real().as_ref(), path) {
            Some(store) => Err(create::inside(path, &store).hint("a store's folder holds nothing but its own files; name another folder")),
            None => Ok(()),
        }
    }

    /// Its folder, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.layout.root()
    }

    /// Its uuid: 32 hexadecimal characters.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.inner.format.uuid
    }

    /// `branches/`: clusters owned by forklift (used by the branch layer).
    #[must_use]
    pub fn branches(&self) -> PathBuf {
        self.layout().folder("branches")
    }

    /// `projects/`: records, journals and stat caches (used by the project layer).
    #[must_use]
    pub fn projects(&self) -> PathBuf {
        self.layout().folder("projects")
    }

    /// `caches/`: clusters of checkpoints that are ready to clone.
    #[must_use]
    pub fn caches(&self) -> PathBuf {
        self.layout().folder("caches")
    }

    /// What prune bumps when it removes packs: a list of chunks that are known to exist is worth nothing under another
    /// number. `None` where the file does not parse; then no such list may be believed.
    ///
    /// # Errors
    /// `Io`, `Permission`.
    pub fn generation(&self) -> Result<Option<u64>> {
        self.layout().generation()
    }

    /// A writing session: shared lock, deduplication, packs. Nothing of it is visible until `commit`.
    ///
    /// # Errors
    /// `Busy` where a prune does not end, `Cancelled`, `ReadOnly`, `Permission`, `UnsupportedFormat`, `Io`.
    pub fn session(&self, control: &Control) -> Result<Session> {
        self.allow(Use::Write)?;
        Session::begin(self, false, control)
    }

    /// As [`Store::session`], for what is about to be removed elsewhere: a stored chunk counts only after its copy was read
    /// and is whole, once in the session; a damaged one is stored anew.
    ///
    /// # Errors
    /// As [`Store::session`].
    pub fn verifying_session(&self, control: &Control) -> Result<Session> {
        self.allow(Use::Write)?;
        Session::begin(self, true, control)
    }

    /// A reader: shared lock (where the store is writable) and index. Writes nothing.
    ///
    /// # Errors
    /// `Busy` where a prune does not end, `Cancelled`, `Io`.
    pub fn reader(&self, control: &Control) -> Result<Reader> {
        Reader::begin(self, control)
    }

    /// All refs, oldest first (by id). A ref that does not parse or whose hash is wrong is reported in the second list by file name.
    ///
    /// # Errors
    /// `Io`, `Permission`: the folder cannot be listed.
    pub fn refs(&self) -> Result<(Vec<Ref>, Vec<String>)> {
        refs::list(self.layout())
    }

    /// The last `count` refs by id, which is by time, oldest first, and the names of those of them that do not parse. Only
    /// they are read, however many there are.
    ///
    /// # Errors
    /// As [`Store::refs`].
    pub fn last_refs(&self, count: usize) -> Result<(Vec<Ref>, Vec<String>)> {
        refs::last(self.layout(), count)
    }

    /// The refs whose id is greater than `after` (all of them without it), from which a timeline can be rebuilt: each is read as
    /// the iterator comes to it, from either end, and only the names are held. One that was removed since is left out; one
    /// that cannot be read is an error in its place, which ends nothing.
    ///
    /// # Errors
    /// As [`Store::refs`]; of an item as [`Store::find_ref`].
    pub fn refs_after(&self, after: Option<&str>) -> Result<RefsAfter<'_>> {
        refs::after(self.layout(), after)
    }

    /// One ref by its exact id.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` (no id), `Corrupt`, `UnsupportedFormat`, `Io`.
    pub fn find_ref(&self, id: &str) -> Result<Ref> {
        refs::find(self.layout(), id)
    }

    /// Removes a ref, durably. `NotFound` where there is none.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` (no id), `Permission`, `ReadOnly`, `Io`.
    pub fn remove_ref(&self, id: &str) -> Result<()> {
        self.allow(Use::Write)?;
        refs::remove(self.layout(), id)
    }

    /// Removes what no ref needs. Without `options.apply` only tells what it would do.
    ///
    /// # Errors
    /// `Busy` where captures or restores run (nothing was done), `Corrupt` where a ref or a chunk that a ref needs is
    /// damaged or missing (nothing was done), `Cancelled`, `NoSpace`, `Io`.
    pub fn prune(&self, options: &PruneOptions, control: &Control) -> Result<PruneReport> {
        self.allow(Use::Prune)?;
        if options.apply {
            // It rewrites packs and the index.
            self.allow(Use::Write)?;
        }
        prune::prune(self, options, control)
    }

    /// Checks the store; what is wrong is in the report. Writes nothing, but for the memory of a budget (see
    /// [`VerifyOptions`]), and works on a read-only mount.
    ///
    /// # Errors
    /// `Busy` where a prune does not end, `Cancelled`, `Io` where the store's folders cannot be listed; a drill also
    /// `InvalidArgument` (no scratch folder) and `NoSpace`.
    pub fn verify(&self, options: &VerifyOptions, control: &Control) -> Result<VerifyReport> {
        verify::verify(self, options, &mut |_| Ok(()), control)
    }

    /// As [`Store::verify`] with [`VerifyLevel::Drill`], whatever `options` say: `started` is given each restored checkpoint
    /// before its trees are removed, to start its cluster; a failure becomes a finding.
    ///
    /// # Errors
    /// As [`Store::verify`].
    pub fn drill(
        &self,
        options: &VerifyOptions,
        started: &mut dyn FnMut(&Drilled<'_>) -> Result<()>,
        control: &Control,
    ) -> Result<VerifyReport> {
        verify::verify(self, &VerifyOptions { level: VerifyLevel::Drill, ..options.clone() }, started, control)
    }

    /// Puts right what can be: rebuilds the index, copies whole chunks out of damaged packs, looks for missing ones in the
    /// trash, and puts what is damaged into the quarantine. Deletes nothing; may be interrupted and run again. What is lost all
    /// the same is in the report.
    ///
    /// # Errors
    /// `Busy` where captures or restores run or another prune or repair does, `Cancelled`, `NoSpace`, `ReadOnly`,
    /// `Permission`, `UnsupportedFormat`, `Io`; what was copied by then is kept, and nothing was moved or lost.
    pub fn repair(&self, options: &RepairOptions, control: &Control) -> Result<RepairReport> {
        self.allow(Use::Write)?;
        repair::repair(self, options, control)
    }

    /// What the store holds, in all and by checkpoint. Writes nothing.
    ///
    /// # Errors
    /// `Busy` where a prune does not end, `Corrupt` where a manifest is damaged, `Cancelled`, `Io`.
    pub fn stats(&self, control: &Control) -> Result<StatsReport> {
        stats::stats(self, control)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(super) fn uuid_bytes(&self) -> &[u8; 16] {
        &self.inner.uuid
    }

    /// The index as it is now; with `complete` also the packs that no segment covers.
    pub(super) fn view(&self, complete: bool) -> Result<Arc<View>> {
        let mut slot = self.inner.view.lock().unwrap_or_else(PoisonError::into_inner);
        let view = View::load(self.layout(), self.uuid_bytes(), slot.as_ref(), complete)?;
        *slot = Some(Arc::clone(&view));
        Ok(view)
    }

    /// Damage was seen in a pack.
    pub(super) fn doubt(&self, id: PackId) {
        self.inner.doubted.write().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    pub(super) fn is_doubted(&self, id: &PackId) -> bool {
        self.inner.doubted.read().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    pub(super) fn allow(&self, what: Use) -> Result<()> {
        self.inner.format.allow(what, &self.layout().format())
    }
}

/// The path without `..` and links, as far as it exists: a store that lies in a worktree must be known again by its path,
/// and must be found from elsewhere.
fn real_path(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))?;
    for above in absolute.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(above), absolute.strip_prefix(above)) {
            // What does not exist yet cannot be a link; `..` in it has nothing to go up from.
            let plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            return Ok(if plain { real.join(rest) } else { absolute });
        }
    }
    Ok(absolute)
}
