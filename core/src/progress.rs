//! How a long operation tells its caller how far it is.

use std::fmt;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::error::Result;

/// One report: which step, how much of it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The step in a few words, such as `copy cluster`.
    pub step: &'a str,
    /// Units done in this step.
    pub done: u64,
    /// Units in all, 0 where not known.
    pub total: u64,
    /// What is counted.
    pub unit: Unit,
}

/// What a [`Progress`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Files or other whole things.
    Items,
}

/// Receives reports on the thread that runs the operation; it must return quickly and must not panic.
pub trait ProgressSink: Send + Sync {
    /// Takes one report.
    fn report(&self, progress: Progress<'_>);
}

/// What every long operation is given besides its options: a cancel token and a progress sink. Cheap to clone.
#[derive(Clone, Default)]
pub struct Control {
    cancel: CancelToken,
    sink: Option<Arc<dyn ProgressSink>>,
}

impl Control {
    /// Cannot be cancelled from outside and reports to nobody.
    #[must_use]
    pub fn silent() -> Self {
        Self::default()
    }

    /// With a token and, perhaps, a sink.
    #[must_use]
    pub fn new(cancel: CancelToken, sink: Option<Arc<dyn ProgressSink>>) -> Self {
        Self { cancel, sink }
    }

    /// The token.
    #[must_use]
    pub fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// Fails once the token was set; call it between steps that leave nothing half done.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        self.cancel.check()
    }

    /// The same sink with a token that nobody sets: for the part of an operation that must not be left half done.
    #[must_use]
    pub fn uncancellable(&self) -> Self {
        Self { cancel: CancelToken::new(), sink: self.sink.clone() }
    }

    /// Passes one report on.
    pub fn report(&self, step: &str, done: u64, total: u64, unit: Unit) {
        if let Some(sink) = &self.sink {
            sink.report(Progress { step, done, total, unit });
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cancelled", &self.cancel.is_cancelled()).field("sink", &self.sink.is_some()).finish()
    }
}
