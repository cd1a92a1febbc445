//! Ctrl-C, SIGTERM and a hang-up set a token that the running operation polls, so that it ends between two steps, however
//! often they come.

use std::thread;

use forklift::CancelToken;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The tokens that signals set.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// Set by Ctrl-C, SIGTERM and SIGHUP: for forklift's own operations.
    pub interrupt: CancelToken,
    /// Set by SIGTERM and SIGHUP. `project run` obeys only these: a terminal sends Ctrl-C to its command as well, and the command decides.
    pub terminate: CancelToken,
}

impl Signals {
    /// Takes SIGINT, SIGTERM and SIGHUP of this process from here on. Where that is not possible they keep their usual effect, which
    /// is safe too: an operation that is killed is recovered by the next one.
    #[must_use]
    pub fn watch() -> Self {
        let tokens = Self::default();
        if let Ok(mut signals) = signal_hook::iterator::Signals::new(taken()) {
            let Self { interrupt, terminate } = tokens.clone();
            thread::spawn(move || {
                for signal in signals.forever() {
                    interrupt.cancel();
                    if signal != SIGINT {
                        terminate.cancel();
                    }
                }
            });
        }
        tokens
    }
}

/// A hang-up that whoever started us has switched off (`nohup`) stays so.
fn taken() -> Vec<i32> {
    let status = forklift::sys::fs::read(std::path::Path::new("/proc/self/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hang_up = ignored.is_none_or(|mask| mask & (1 << (SIGHUP - 1)) == 0);
    [SIGINT, SIGTERM].into_iter().chain(hang_up.then_some(SIGHUP)).collect()
}
