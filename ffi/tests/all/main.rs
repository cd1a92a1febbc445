//! Tests of the C ABI against the built library and a real C compiler.
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
use std::sync::OnceLock;

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    crate_folder().parent().expect("the crate has a parent").join("include/forklift.h")
}

/// Folder of the built libraries: the test program lies in `<profile>/deps`. cargo builds no cdylib for a test, so it is
/// asked to.
fn library_folder() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let program = std::env::current_exe().expect("own path");
            let folder = program.parent().and_then(Path::parent).expect("profile folder").to_owned();
            let target = folder.parent().expect("target folder");
            let build = Command::new(env!("CARGO"))
                .args(["build", "--package", "forklift-ffi", "--target-dir"])
                .arg(target)
                .current_dir(crate_folder())
                .output();
            let build = build.expect("cargo runs");
            assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
            folder
        })
        .clone()
}

fn compile(compiler: &str, arguments: &[&str], source: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let extension = if compiler == "c++" { "cpp" } else { "c" };
    let file = folder.path().join(format!("program.{extension}"));
    std::fs::write(&file, source).expect("source");
    let program = folder.path().join("program");
    let output = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(header().parent().expect("include folder"))
        .arg(&file)
        .arg("-L")
        .arg(library_folder())
        .args(["-lforklift", "-o"])
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    (folder, program)
}

const PROGRAM: &str = r#"
#include <forklift.h>
#include <forklift.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    if (forklift_abi_check(FORKLIFT_ABI_VERSION) != 0) return 1;
    if (forklift_abi_check(FORKLIFT_ABI_VERSION + 1) >= 0) return 2;
    if (strcmp(forklift_version_string(), FORKLIFT_VERSION) != 0) return 3;
    puts(forklift_version_string());
    return 0;
}
"#;

/// cargo builds a cdylib only as `libforklift.so`; its SONAME asks for the numbered name.
fn run(program: &Path) -> std::process::Output {
    let libraries = tempfile::tempdir().expect("temporary folder");
    std::os::unix::fs::symlink(library_folder().join("libforklift.so"), libraries.path().join("libforklift.so.0")).expect("link");
    Command::new(program).env("LD_LIBRARY_PATH", libraries.path()).output().expect("the program runs")
}

#[test]
fn a_c99_and_a_cpp17_program_link_and_agree_on_the_version() {
    for (compiler, arguments) in [("cc", ["-std=c99"]), ("c++", ["-std=c++17"])] {
        let (_folder, program) = compile(compiler, &arguments, PROGRAM);
        let output = run(&program);
        assert_eq!(output.status.code(), Some(0), "{compiler}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), env!("CARGO_PKG_VERSION"));
    }
}

/// Set `FORKLIFT_REWRITE=1` to write the header anew.
#[test]
fn the_committed_header_is_the_generated_one() {
    let mut generated = Vec::new();
    let mut configuration = cbindgen::Config::from_file(crate_folder().join("cbindgen.toml")).expect("cbindgen.toml");
    configuration.after_includes =
        Some(format!("\n// Version that this header was made for.\n#define FORKLIFT_VERSION \"{}\"", env!("CARGO_PKG_VERSION")));
    cbindgen::generate_with_config(crate_folder(), configuration).expect("generated").write(&mut generated);
    if std::env::var_os("FORKLIFT_REWRITE").is_some() {
        std::fs::write(header(), &generated).expect("header");
    }
    let committed = std::fs::read(header()).expect("include/forklift.h");
    assert!(committed == generated, "include/forklift.h is out of step: run this test with FORKLIFT_REWRITE=1");
}

#[test]
fn nothing_without_the_prefix_is_exported() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library_folder().join("libforklift.so")).output().expect("nm runs");
    let symbols: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect();
    assert!(symbols.iter().any(|name| name == "forklift_version_string"), "{symbols:?}");
    let foreign: Vec<&String> = symbols.iter().filter(|name| !name.starts_with("forklift_")).collect();
    assert!(foreign.is_empty(), "exported without prefix: {foreign:?}");
}
