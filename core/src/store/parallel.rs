//! Spreading work over the cores with threads that end with the call: a pool that outlives it would hang a forked child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::Result;

/// The threads that one session may add to those of its callers.
#[derive(Debug)]
pub(super) struct Helpers {
    free: AtomicUsize,
}

impl Helpers {
    pub(super) fn new(threads: usize) -> Self {
        Self { free: AtomicUsize::new(threads) }
    }

    /// The results in the order of the items, or the first failure that was met; then the rest is not begun.
    pub(super) fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
        let wanted = items.len().saturating_sub(1);
        let taken = self.take(wanted);
        if taken == 0 {
            return items.iter().map(work).collect();
        }
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let run = || -> Result<Vec<(usize, R)>> {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at).filter(|_| !failed.load(Ordering::Relaxed)) else { return Ok(done) };
                done.push((at, work(item).inspect_err(|_| failed.store(true, Ordering::Relaxed))?));
            }
        };
        let parts: Vec<Result<Vec<(usize, R)>>> = std::thread::scope(|scope| {
            // Where no thread can be had, the caller does it all.
            let helpers: Vec<_> = (0..taken).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok()).collect();
            let mut parts = vec![run()];
            for helper in helpers {
                parts.push(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            parts
        });
        self.free.fetch_add(taken, Ordering::Relaxed);
        let mut done = Vec::with_capacity(items.len());
        for part in parts {
            done.append(&mut part?);
        }
        done.sort_unstable_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }

    fn take(&self, wanted: usize) -> usize {
        let mut taken = 0;
        // Never fails: the closure always gives a value.
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                taken = free.min(wanted);
                Some(free - taken)
            })
            .ok();
        taken
    }
}

/// One fewer than there are cores.
pub(super) fn other_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn results_keep_their_order_and_failures_come_out() {
        let helpers = Helpers { free: AtomicUsize::new(3) };
        let items: Vec<u64> = (0..1000).collect();
        let doubled = helpers.map(&items, |item| Ok(item * 2)).unwrap();
        assert!(doubled.iter().zip(&items).all(|(result, item)| *result == item * 2));
        let error = helpers.map(&items, |item| if *item == 500 { Err(Error::new(ErrorKind::Io, "500")) } else { Ok(*item) }).unwrap_err();
        assert_eq!(error.message(), "500");
        assert_eq!(helpers.free.load(Ordering::Relaxed), 3);
        assert_eq!(helpers.map(&[1], |item| Ok(*item)).unwrap(), [1]);
    }
}
