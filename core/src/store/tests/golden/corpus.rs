//! The corpus of the fuzz targets, on a stable compiler: every file, and every file mutated.

use proptest::prelude::*;

use super::*;
use crate::store::fuzzing::{self, TARGETS};

/// `fuzz/corpus`: a folder for each target.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz/corpus")
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder().join(target);
    let seeds: Vec<_> = sys::fs::names(&folder).unwrap().into_iter().map(|name| folder.join(name)).collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds.into_iter().map(|path| (path.clone(), sys::fs::read(&path).unwrap())).collect()
}

#[test]
fn every_file_of_the_corpus_passes_every_target() {
    let planted = tempfile::tempdir().unwrap();
    let root = fuzzing::plant(&planted.path().canonicalize().unwrap()).unwrap();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).chain(["restore_path"]).collect();
    names.sort_unstable();
    assert_eq!(sys::fs::names(&folder()).unwrap(), names, "every target has a folder, and every folder a target");
    for name in names {
        for (path, bytes) in seeds(name) {
            println!("{}", path.display());
            TARGETS.iter().for_each(|(_, target)| target(&bytes));
            fuzzing::restore_path(&root, &bytes).unwrap();
        }
    }
}

/// Seeds are whole: a target that refuses all of them would find nothing.
#[test]
fn seeds_are_accepted() {
    let any = |target: &str, accepts: &dyn Fn(&[u8]) -> bool| assert!(seeds(target).iter().any(|(_, bytes)| accepts(bytes)), "{target}");
    any("pack_footer", &|bytes| crate::store::pack::parse(bytes, bytes[16..32].try_into().unwrap()).is_ok_and(|blobs| !blobs.is_empty()));
    any("blob_header", &|bytes| crate::store::pack::Blob::parse(bytes, 0).is_ok());
    any("index_segment", &|bytes| crate::store::index::Segment::parse(bytes.to_vec(), bytes[32..48].try_into().unwrap()).is_ok());
    any("reference", &|bytes| crate::store::refs::decode(bytes).is_ok());
    any("format", &|bytes| crate::store::format::Format::decode(bytes, Path::new("FORMAT")).is_ok());
    any("manifest_block", &|bytes| bytes.starts_with(b"FLKM\x01\x00"));
    any("manifest_block", &|bytes| bytes.starts_with(b"FLKM\x01\x01"));
    any("manifest_block", &|bytes| bytes.starts_with(b"FLKL\x01\x00"));
    any("manifest_block", &|bytes| bytes.starts_with(b"FLKL\x01\x02"));
}

/// One step of what a fuzzer does.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(prop::sample::Index, u8),
    Number(prop::sample::Index, u64),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Copy(prop::sample::Index, prop::sample::Index, u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    let number = prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(u64::from(u32::MAX)), Just(1 << 31), Just(1 << 63), any::<u64>()];
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        2 => (at(), number).prop_map(|(at, number)| Mutation::Number(at, number)),
        1 => at().prop_map(Mutation::Cut),
        1 => (at(), any::<u8>()).prop_map(|(at, len)| Mutation::Remove(at, len)),
        1 => (at(), any::<Vec<u8>>()).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (at(), at(), any::<u8>()).prop_map(|(from, to, len)| Mutation::Copy(from, to, len)),
    ]
}

fn mutate(mut bytes: Vec<u8>, mutation: &Mutation) -> Vec<u8> {
    let place = |at: &prop::sample::Index, bytes: &[u8]| at.index(bytes.len() + 1).min(bytes.len().saturating_sub(1));
    let end = |from: usize, len: u8, bytes: &[u8]| (from + usize::from(len)).min(bytes.len());
    match mutation {
        _ if bytes.is_empty() => {}
        Mutation::Flip(at, bits) => {
            let at = place(at, &bytes);
            bytes[at] ^= bits;
        }
        Mutation::Number(at, number) => {
            let at = place(at, &bytes);
            bytes[at..].iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        Mutation::Cut(at) => bytes.truncate(place(at, &bytes)),
        Mutation::Remove(at, len) => {
            let at = place(at, &bytes);
            let end = end(at, *len, &bytes);
            bytes.drain(at..end);
        }
        Mutation::Insert(at, new) => {
            let at = place(at, &bytes);
            bytes.splice(at..at, new.iter().copied());
        }
        Mutation::Copy(from, to, len) => {
            let from = place(from, &bytes);
            let piece = bytes[from..end(from, *len, &bytes)].to_vec();
            let to = place(to, &bytes);
            bytes.splice(to..to, piece);
        }
    }
    bytes
}

#[test]
fn mutated_seeds_pass_their_targets() {
    let planted = tempfile::tempdir().unwrap();
    let root = fuzzing::plant(&planted.path().canonicalize().unwrap()).unwrap();
    let restore = |bytes: &[u8]| fuzzing::restore_path(&root, bytes).unwrap();
    let targets =
        TARGETS.iter().map(|(name, target)| (*name, target as &dyn Fn(&[u8]))).chain([("restore_path", &restore as &dyn Fn(&[u8]))]);
    for (name, target) in targets {
        let seeds = seeds(name);
        let cases = (any::<prop::sample::Index>(), prop::collection::vec(mutation(), 1..6));
        let mut runner =
            proptest::test_runner::TestRunner::new(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() });
        let run = runner.run(&cases, |(seed, mutations)| {
            target(&mutations.iter().fold(seeds[seed.index(seeds.len())].1.clone(), mutate));
            Ok(())
        });
        run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}
