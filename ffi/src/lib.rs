//! forklift-ffi
