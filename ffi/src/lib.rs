//! The C ABI of forklift. The contract is `ffi/CONVENTIONS.md`; the header `include/forklift.h` is generated from this crate.
#![allow(unsafe_code, reason = "exported symbols and pointers handed over by C callers")]

pub mod version;
