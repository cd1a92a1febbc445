//! Captures through clones, on real XFS and btrfs, each compared with a capture that reads everything.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::clone::tests::Image;
use crate::postgres::{CloneSink, ClusterCache, Sink, SourceFile, StoreSink, StoredCluster, forget_kept};
use crate::progress::Control;
use crate::store::{Cutting, Half, Store};
use crate::sys::fs;

/// A folder on an image that shares blocks, and what captures of it left.
struct Lab {
    image: Image,
    base: tempfile::TempDir,
    store: Store,
    known: ClusterCache,
    compares: bool,
}

impl Lab {
    fn all(test: &str) -> Vec<Self> {
        ["xfs", "btrfs"].iter().filter_map(|kind| Image::new(test, kind, &["-q"])).map(Self::on).collect()
    }

    fn on(image: Image) -> Self {
        let base = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(&base.path().join("store")).unwrap();
        Self { image, base, store, known: ClusterCache::default(), compares: true }
    }

    fn data(&self) -> PathBuf {
        self.image.path().join("data")
    }

    fn kept(&self) -> PathBuf {
        self.image.path().join("kept")
    }

    fn kept_files(&self) -> Vec<PathBuf> {
        fs::names(&self.kept()).unwrap().into_iter().map(|name| self.kept().join(name)).collect()
    }

    /// Captures by `copy`, through clones and by reading everything, and compares the manifests.
    fn capture(&mut self, copy: impl Fn(&mut dyn Sink)) -> StoredCluster {
        let session = self.store.session(&Control::silent()).unwrap();
        let known = std::mem::take(&mut self.known);
        let mut sink = CloneSink::new(&session, known, &self.data(), &self.kept(), self.compares).unwrap().expect("blocks can be shared");
        copy(&mut sink);
        let stored = sink.store(&Control::silent()).unwrap();
        let path = self.base.path().join("cache");
        assert!(stored.cache.save(&path, "boot"));
        self.known = ClusterCache::load(&path, "boot");
        assert_eq!(self.known, stored.cache);
        let mut whole = StoreSink::new(&session, ClusterCache::default());
        copy(&mut whole);
        let (half, _) = whole.finish().unwrap();
        assert_eq!(half.root, stored.half.root, "{:?}", stored.reads);
        assert_eq!((half.bytes, half.entries), (stored.half.bytes, stored.half.entries));
        session.commit(&super::store_sink::reference(stored.half.clone())).unwrap();
        stored
    }

    fn files(&mut self, names: &[&str]) -> StoredCluster {
        let source =
            |name: &&str| SourceFile { source: self.data().join(name), path: PathBuf::from(name), live: true, cutting: Cutting::Pages };
        let files: Vec<SourceFile> = names.iter().map(source).collect();
        self.capture(|sink| sink.files(&files, &Control::silent()).unwrap())
    }

    fn open(&self, name: &str) -> File {
        fs::make_folder(&self.data(), 0o700).unwrap();
        File::options().read(true).write(true).create(true).truncate(false).open(self.data().join(name)).unwrap()
    }
}

/// Content without two equal pages.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn any_way_to_change_a_file_gives_what_a_whole_read_gives() {
    for mut lab in Lab::all("any_way_to_change_a_file_gives_what_a_whole_read_gives") {
        let mut picks = 0;
        let mut pick = |from: u64, below: u64| {
            picks += 1;
            let number = noise(8, 1_000_000 + picks).into_iter().fold(0, |number, byte| number << 8 | u64::from(byte));
            from + number % (below - from)
        };
        let names = ["1", "2", "3"];
        for name in names {
            lab.open(name).write_all_at(&noise(2 << 20, 1), 0).unwrap();
        }
        lab.files(&names);
        let (mut compared, mut read, mut sizes) = (0, 0, 0);
        for round in 0..60_u64 {
            for name in names {
                let file = lab.open(name);
                let size = file.metadata().unwrap().len();
                for _ in 0..pick(0, 3) {
                    let at = pick(0, size / 512 + 1) * 512;
                    let length = pick(1, 40) * 1024;
                    match pick(0, 8) {
                        0 | 1 => file.write_all_at(&noise(8192, round), at / 8192 * 8192).unwrap(),
                        2 => file.write_all_at(&noise(usize::try_from(length).unwrap(), round), at).unwrap(),
                        3 => file.set_len(at).unwrap(),
                        4 => file.set_len(size + length).unwrap(),
                        5 => file.write_all_at(&noise(usize::try_from(length).unwrap(), round), size).unwrap(),
                        6 => {
                            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                            rustix::fs::fallocate(&file, flags, at, length).unwrap();
                        }
                        _ => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), size, length).unwrap(),
                    }
                }
                if pick(0, 12) == 0 {
                    // Another file under the name, with mostly the same content in other blocks.
                    let bytes = fs::read(&lab.data().join(name)).unwrap();
                    fs::replace(&lab.data().join(name), &bytes, 0o600, &fs::Syncs::new()).unwrap();
                }
                if file.metadata().unwrap().len() < 300 << 10 {
                    file.write_all_at(&noise(1 << 20, round), 0).unwrap();
                }
            }
            let stored = lab.files(&names);
            assert!(stored.warnings.is_empty());
            compared += stored.reads.why.extents;
            read += stored.reads.bytes_read;
            sizes += stored.half.bytes;
        }
        assert!(compared > 60 && read < sizes / 4, "{compared} compared, {read} of {sizes} bytes read");
    }
}

#[test]
fn whatever_happened_to_the_kept_clone_is_noticed_or_harmless() {
    for mut lab in Lab::all("whatever_happened_to_the_kept_clone_is_noticed_or_harmless") {
        let file = lab.open("1");
        file.write_all_at(&noise(4 << 20, 1), 0).unwrap();
        lab.files(&["1"]);
        let change = |lab: &Lab, seed: u64| lab.open("1").write_all_at(&noise(8192, seed), 8192 * (seed % 512)).unwrap();
        change(&lab, 2);
        let stored = lab.files(&["1"]);
        assert_eq!((stored.reads.why.extents, stored.reads.files_opened), (1, 1));
        // What changed, and what was read to check.
        assert!(stored.reads.bytes_read <= 3 * (32 << 10), "{:?}", stored.reads);

        let kept = |lab: &Lab| lab.kept_files().pop().unwrap();
        type Harm<'a> = (&'a str, &'a dyn Fn(&Path));
        let harms: [Harm<'_>; 6] = [
            ("a byte is written", &|path| File::options().write(true).open(path).unwrap().write_all_at(&[0x55], 1 << 20).unwrap()),
            ("a byte is written and the time put back", &|path| {
                let file = File::options().write(true).open(path).unwrap();
                let time = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(&[0x55], 2 << 20).unwrap();
                file.set_modified(time).unwrap();
            }),
            ("it is cut", &|path| File::options().write(true).open(path).unwrap().set_len(2 << 20).unwrap()),
            ("it is another file", &|path| {
                let length = path.metadata().unwrap().len();
                fs::replace(path, &noise(usize::try_from(length).unwrap(), 99), 0o600, &fs::Syncs::new()).unwrap();
            }),
            ("it is gone", &|path| fs::remove_file(path).unwrap()),
            ("it is a folder", &|path| {
                fs::remove_file(path).unwrap();
                fs::make_folder(path, 0o700).unwrap();
            }),
        ];
        for (seed, (what, harm)) in (3..).zip(harms) {
            harm(&kept(&lab));
            change(&lab, seed);
            let stored = lab.files(&["1"]);
            assert_eq!((stored.reads.why.times_changed, stored.reads.why.extents), (1, 0), "{what}: {:?}", stored.reads);
            // The next one has a whole clone again, unless a folder is in its place.
            change(&lab, seed + 100);
            let stored = lab.files(&["1"]);
            assert_eq!(stored.reads.why.extents, u64::from(what != "it is a folder"), "{what}: {:?}", stored.reads);
        }
        forget_kept(&lab.kept()).unwrap();
        change(&lab, 50);
        assert_eq!(lab.files(&["1"]).reads.why.times_changed, 1);

        // A killed capture leaves clones under other names, and a clone that the cache does not know.
        File::create(lab.kept().join("new-7")).unwrap();
        let older = lab.known.clone();
        change(&lab, 51);
        lab.files(&["1"]);
        change(&lab, 52);
        lab.known = older;
        assert_eq!(lab.files(&["1"]).reads.why.times_changed, 1);
        assert_eq!(lab.kept_files().len(), 1);
        change(&lab, 53);
        assert_eq!(lab.files(&["1"]).reads.why.extents, 1);
    }
}

#[test]
fn a_link_or_a_file_in_place_of_the_kept_clone_goes_and_is_not_followed() {
    for mut lab in Lab::all("a_link_or_a_file_in_place_of_the_kept_clone_goes_and_is_not_followed") {
        lab.open("1").write_all_at(&noise(1 << 20, 1), 0).unwrap();
        let elsewhere = lab.image.path().join("elsewhere");
        fs::make_folder(&elsewhere, 0o700).unwrap();
        std::os::unix::fs::symlink(&elsewhere, lab.kept()).unwrap();
        lab.files(&["1"]);
        assert!(fs::names(&elsewhere).unwrap().is_empty());
        assert_eq!(lab.kept_files().len(), 1);
        fs::remove_tree(&lab.kept()).unwrap();
        File::create(lab.kept()).unwrap();
        lab.files(&["1"]);
        assert!(lab.kept().is_dir());
    }
}

#[test]
fn equal_blocks_that_hold_something_else_are_reported_and_believed_no_more() {
    for mut lab in Lab::all("equal_blocks_that_hold_something_else_are_reported_and_believed_no_more") {
        for name in ["1", "2"] {
            lab.open(name).write_all_at(&noise(4 << 20, 1), 0).unwrap();
        }
        let change = |lab: &Lab, seed: u64| {
            for name in ["1", "2"] {
                lab.open(name).write_all_at(&noise(8192, seed), 0).unwrap();
            }
        };
        lab.files(&["1", "2"]);
        // The cache takes the kept clone of the one for something else.
        let session = lab.store.session(&Control::silent()).unwrap();
        let other = session.put_bytes(&noise(4 << 20, 5), Cutting::Pages).unwrap().chunks;
        session.commit(&super::store_sink::reference(last_half(&lab))).unwrap();
        let place = lab.kept_files().into_iter().max().unwrap();
        lab.known.pretend(&place, other);
        change(&lab, 2);
        let stored = lab.files(&["1", "2"]);
        assert_eq!((stored.reads.why.in_doubt, stored.reads.bytes_read), (2, 8 << 20), "{:?}", stored.reads);
        assert!(stored.warnings.iter().any(|warning| warning.contains("did not change")), "{:?}", stored.warnings);
        for seed in [3, 4] {
            change(&lab, seed);
            let stored = lab.files(&["1", "2"]);
            assert_eq!((stored.reads.why.times_changed, stored.warnings.len()), (2, 0), "{:?}", stored.reads);
        }
        forget_kept(&lab.kept()).unwrap();
        change(&lab, 5);
        assert_eq!(lab.files(&["1", "2"]).reads.why.times_changed, 2);
        change(&lab, 6);
        assert_eq!(lab.files(&["1", "2"]).reads.why.extents, 2);
    }
}

/// A half that is in the store already.
fn last_half(lab: &Lab) -> Half {
    lab.store.refs().unwrap().0.pop().unwrap().cluster.unwrap()
}

#[test]
fn without_comparison_nothing_is_kept_and_after_a_boot_nothing_of_it_counts() {
    for mut lab in Lab::all("without_comparison_nothing_is_kept_and_after_a_boot_nothing_of_it_counts") {
        let change = |lab: &Lab, seed: u64| lab.open("1").write_all_at(&noise(8192, seed), 0).unwrap();
        lab.open("1").write_all_at(&noise(4 << 20, 1), 0).unwrap();
        lab.compares = false;
        lab.files(&["1"]);
        change(&lab, 2);
        let stored = lab.files(&["1"]);
        assert_eq!((stored.reads.why.times_changed, stored.reads.bytes_read), (1, 4 << 20));
        assert!(lab.kept_files().is_empty());
        assert_eq!(lab.files(&["1"]).reads.files_opened, 0);

        // Switched on: a file that did not change is kept without being read.
        lab.compares = true;
        assert_eq!(lab.files(&["1"]).reads.files_opened, 0);
        assert_eq!(lab.kept_files().len(), 1);
        change(&lab, 3);
        assert_eq!(lab.files(&["1"]).reads.why.extents, 1);

        let path = lab.base.path().join("cache");
        lab.known = ClusterCache::load(&path, "another boot");
        let stored = lab.files(&["1"]);
        assert_eq!((stored.reads.why.other_boot, stored.reads.bytes_read), (1, 4 << 20), "{:?}", stored.reads);
        lab.known = ClusterCache::load(&path, "another boot");
        change(&lab, 4);
        let stored = lab.files(&["1"]);
        assert_eq!((stored.reads.why.times_changed, stored.reads.why.extents), (1, 0), "{:?}", stored.reads);
        change(&lab, 5);
        assert_eq!(lab.files(&["1"]).reads.why.extents, 1);
    }
}

#[test]
fn a_sparse_relation_is_read_where_it_has_blocks() {
    for mut lab in Lab::all("a_sparse_relation_is_read_where_it_has_blocks") {
        let file = lab.open("1");
        file.set_len(200 << 20).unwrap();
        file.write_all_at(&noise(8192, 1), 100 << 20).unwrap();
        let stored = lab.files(&["1"]);
        assert!(stored.reads.bytes_read <= 64 << 10, "{:?}", stored.reads);
        file.write_all_at(&noise(8192, 2), 50 << 20).unwrap();
        let stored = lab.files(&["1"]);
        // XFS sets space aside around what it copies on write, which is read.
        assert!(stored.reads.bytes_read <= 512 << 10, "{:?}", stored.reads);
        assert_eq!(stored.reads.why.extents, 1);
        assert!(lab.kept_files().pop().unwrap().metadata().unwrap().blocks() < 1 << 10);
    }
}

#[test]
fn a_file_that_cannot_be_cloned_is_read_at_once() {
    for mut lab in Lab::all("a_file_that_cannot_be_cloned_is_read_at_once") {
        lab.open("1").write_all_at(&noise(1 << 20, 1), 0).unwrap();
        let elsewhere = lab.base.path().join("elsewhere");
        fs::create_new(&elsewhere, 0o600).unwrap().write_all_at(&noise(1 << 20, 2), 0).unwrap();
        std::os::unix::fs::symlink(&elsewhere, lab.data().join("2")).unwrap();
        let stored = lab.files(&["1", "2", "gone"]);
        assert_eq!((stored.reads.files_opened, stored.half.entries), (2, 2));
        assert_eq!(lab.kept_files().len(), 1);
        // Its stat is believed only when it is older; that of a clone at once.
        let stored = lab.files(&["1", "2"]);
        assert_eq!((stored.reads.files_opened, stored.reads.why.racy), (1, 1), "{:?}", stored.reads);
    }
}

#[test]
fn where_blocks_are_not_shared_there_is_no_clone() {
    let test = "where_blocks_are_not_shared_there_is_no_clone";
    let Some(image) = Image::new(test, "ext4", &["-q"]) else { return };
    let lab = Lab::on(image);
    lab.open("1");
    let session = lab.store.session(&Control::silent()).unwrap();
    assert!(CloneSink::new(&session, ClusterCache::default(), &lab.data(), &lab.kept(), true).unwrap().is_none());
    assert!(!lab.kept().exists());
}
