//! Cancelling a running operation from another thread or a signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// A flag shared between the caller and a running operation. Cloning shares the flag.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks every operation that holds this token to stop. One atomic store: safe in a signal handler.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails with [`ErrorKind::Cancelled`] once it was set.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "cancelled")) } else { Ok(()) }
    }
}
