//! Gives the shared library its SONAME, which carries the ABI number.

#[allow(clippy::disallowed_methods, reason = "how cargo tells a build script its target")]
fn main() {
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "linux" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforklift.so.0");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
