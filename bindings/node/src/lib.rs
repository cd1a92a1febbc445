//! The private native module behind the npm package `forklift`.
#![allow(unsafe_code, reason = "the module's entry points are expanded by napi-rs")]

use napi_derive::napi;

/// Version of the native library.
#[napi]
#[must_use]
pub fn version() -> &'static str {
    forklift::version()
}
