//! Versions of the library and of its ABI.

use std::ffi::c_char;

/// Number of the ABI that the header describes. Rises with every break; the SONAME carries it.
pub const FORKLIFT_ABI_VERSION: u32 = 0;

const VERSION_NUL: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Version of the loaded library, such as `0.1.0`.
///
/// NUL-terminated and valid for the life of the process. Any thread; safe in a signal handler.
// SAFETY: the name is prefixed and exported by no other crate.
#[unsafe(no_mangle)]
pub extern "C" fn forklift_version_string() -> *const c_char {
    VERSION_NUL.as_ptr().cast()
}

/// Number of the ABI of the loaded library. Any thread; safe in a signal handler.
// SAFETY: the name is prefixed and exported by no other crate.
#[unsafe(no_mangle)]
pub extern "C" fn forklift_abi_version() -> u32 {
    FORKLIFT_ABI_VERSION
}

/// Whether a program built with a header of this ABI number can use the loaded library.
///
/// Pass `FORKLIFT_ABI_VERSION`. Gives 0 where it can, else a negative status (the number of `unsupported_format` in core).
/// Any thread; safe in a signal handler.
// SAFETY: the name is prefixed and exported by no other crate.
#[unsafe(no_mangle)]
pub extern "C" fn forklift_abi_check(abi_version: u32) -> i32 {
    if abi_version == FORKLIFT_ABI_VERSION { 0 } else { forklift_core::ErrorKind::UnsupportedFormat.code() }
}
