//! The private native module behind the Python package `forklift`.
#![allow(unsafe_code, reason = "the module's entry point is expanded by PyO3")]

use pyo3::prelude::*;

/// The native module `forklift._forklift`.
#[pymodule(gil_used = false)]
mod _forklift {
    use pyo3::prelude::*;

    /// Version of the native library.
    #[pyfunction]
    fn version() -> &'static str {
        forklift::version()
    }
}
