//! What is kept in step by hand is checked here: versions, paths named in pages, test files, profiles.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file of the tree but ignored ones, relative to the root.
fn tracked() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git ls-files failed");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).filter(|path| root().join(path).exists()).collect()
}

#[test]
fn every_manifest_has_the_same_version() {
    let version = env!("CARGO_PKG_VERSION");
    let package: serde_json::Value = serde_json::from_str(&read("bindings/node/package.json")).expect("package.json");
    assert_eq!(package["version"], version, "bindings/node/package.json");
    assert!(read("include/forklift.h").contains(&format!("\"{version}\"")), "include/forklift.h");
    assert!(read("CHANGELOG.md").contains("## [Unreleased]") || read("CHANGELOG.md").contains(&format!("## [{version}]")), "CHANGELOG.md");
}

#[test]
fn paths_named_in_pages_exist() {
    let mut missing = Vec::new();
    for page in ["README.md", "core/ARCHITECTURE.md", "ffi/CONVENTIONS.md", "CHANGELOG.md"] {
        for word in read(page).split('`').skip(1).step_by(2) {
            let first = word.split('/').next().unwrap_or_default();
            let ours = ["core", "ffi", "include", "bindings", "tests"].contains(&first) && word.contains('/');
            if ours && !word.contains(['*', '<', ' ', '{']) && !root().join(word.trim_end_matches('/')).exists() {
                missing.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn no_source_file_is_over_600_lines() {
    let long: Vec<String> = tracked()
        .into_iter()
        .filter(|path| ["rs", "py", "ts", "mjs", "cjs"].iter().any(|end| path.ends_with(&format!(".{end}"))))
        .filter(|path| read(path).lines().count() > 600)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn no_test_file_is_forgotten() {
    let mut forgotten = Vec::new();
    for folder in ["core/tests/all", "ffi/tests/all", "bindings/cli/tests/all"] {
        let main = read(&format!("{folder}/main.rs"));
        for name in
            std::fs::read_dir(root().join(folder)).expect(folder).flatten().map(|entry| entry.file_name().to_string_lossy().into_owned())
        {
            let module = name.strip_suffix(".rs").unwrap_or(&name);
            if module != "main" && !main.contains(&format!("mod {module};")) {
                forgotten.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(forgotten.is_empty(), "not named in main.rs: {forgotten:?}");
}

#[test]
fn panics_unwind_so_that_the_guards_of_the_bindings_work() {
    assert!(!read("Cargo.toml").contains("abort"), "panic = \"abort\" switches every guard off");
}

#[test]
fn no_test_is_switched_off() {
    let needle = concat!("#[ig", "nore");
    let off: Vec<String> = tracked().into_iter().filter(|path| path.ends_with(".rs") && read(path).contains(needle)).collect();
    assert!(off.is_empty(), "{off:?}");
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    let needles = [
        concat!("/work", "/"),
        concat!("../", "shared"),
        concat!("pypi", ".org"),
        concat!("registry.npm", "js.org"),
        concat!("index.crates", ".io"),
    ];
    let mut named = Vec::new();
    for path in tracked().into_iter().filter(|path| !path.ends_with(".lock") && !path.ends_with("lock.json")) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        named.extend(needles.iter().filter(|needle| text.contains(**needle)).map(|needle| format!("{path}: {needle}")));
    }
    assert!(named.is_empty(), "{named:#?}");
}
