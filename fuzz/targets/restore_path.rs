#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use forklift::store::fuzzing::{plant, restore_path};

/// One folder a run; the fuzzer ends without running destructors, so it lies below the run's own temporary folder.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| plant(&tempfile::tempdir().expect("folder").keep()).expect("planted"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| restore_path(&ROOT, input).expect("the folder is there"));
