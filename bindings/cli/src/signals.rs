//! Ctrl-C and SIGTERM set a token that the running operation polls, so that it ends between two steps, however often they come.

use std::thread;

use forklift::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The tokens that signals set.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// Set by Ctrl-C and by SIGTERM: for forklift's own operations.
    pub interrupt: CancelToken,
    /// Set by SIGTERM alone. `project run` obeys only this one: a terminal sends Ctrl-C to its command as well, and the command decides.
    pub terminate: CancelToken,
}

impl Signals {
    /// Takes SIGINT and SIGTERM of this process from here on. Where that is not possible they keep their usual effect, which
    /// is safe too: an operation that is killed is recovered by the next one.
    #[must_use]
    pub fn watch() -> Self {
        let tokens = Self::default();
        if let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) {
            let Self { interrupt, terminate } = tokens.clone();
            thread::spawn(move || {
                for signal in signals.forever() {
                    interrupt.cancel();
                    if signal == SIGTERM {
                        terminate.cancel();
                    }
                }
            });
        }
        tokens
    }
}
