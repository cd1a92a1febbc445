//! Tests of the command line. Those without a database run the library in this process; the others run real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failure here is a failed test; the lints know no helpers of tests"
)]

mod branch;
mod harness;
mod help;
mod hook;
mod machine;
mod process;
mod project;
mod readme;
mod rewind;
mod store;
mod turn;
mod usage;

/// A file beside this one that no `mod` line names would never run.
#[test]
fn no_test_file_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all");
    let main = harness::read(&folder.join("main.rs"));
    for entry in folder.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not part of the tests");
    }
}
