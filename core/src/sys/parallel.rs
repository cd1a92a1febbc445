//! Spreading work over the cores with threads that end with the call: a pool that outlives it would hang a forked child.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Items that a thread takes at once: enough to make taking them cheap, few enough to share a slow end.
const BATCH: usize = 16;
/// More threads than this gain nothing on one disk.
const MOST_THREADS: usize = 8;

/// Does `work` for each item and gives the results in their order.
///
/// # Errors
/// The first failure that was met, by the order of the items; what was not begun then is not done.
pub fn map<'t, T: Sync, R: Send, E: Send>(items: &'t [T], work: impl Fn(&'t T) -> Result<R, E> + Sync) -> Result<Vec<R>, E> {
    in_batches(items, BATCH, work)
}

/// As [`map`] for items that are each worth the attention of a thread.
///
/// # Errors
/// As [`map`].
pub fn map_one_by_one<'t, T: Sync, R: Send, E: Send>(items: &'t [T], work: impl Fn(&'t T) -> Result<R, E> + Sync) -> Result<Vec<R>, E> {
    in_batches(items, 1, work)
}

fn in_batches<'t, T: Sync, R: Send, E: Send>(
    items: &'t [T],
    batch_size: usize,
    work: impl Fn(&'t T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let helpers = (items.len().saturating_sub(1) / batch_size).min(cores - 1);
    if helpers == 0 {
        return items.iter().map(work).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let start = next.fetch_add(batch_size, Ordering::Relaxed);
            let Some(rest) = items.get(start..).filter(|rest| !rest.is_empty()) else { break };
            let batch: Result<Vec<R>, E> = rest.iter().take(batch_size).map(&work).collect();
            if batch.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            done.push((start, batch));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        // Where no thread can be had, the caller does it all.
        let helpers: Vec<_> = (0..helpers).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok()).collect();
        let mut done = run();
        for helper in helpers {
            done.append(&mut helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(start, _)| *start);
    let mut results = Vec::with_capacity(items.len());
    for (_, batch) in done {
        results.append(&mut batch?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_a_failure_comes_out() {
        let items: Vec<u64> = (0..10_000).collect();
        let doubled = map(&items, |item| Ok::<_, String>(item * 2)).expect("results");
        assert!(doubled.iter().zip(&items).all(|(result, item)| *result == item * 2));
        assert_eq!(map(&items, |item| if *item == 5000 { Err(*item) } else { Ok(()) }), Err(5000));
        assert_eq!(map(&[] as &[u64], |item| Ok::<_, ()>(*item)), Ok(Vec::new()));
        assert_eq!(map(&[7], |item| Ok::<_, ()>(*item)), Ok(vec![7]));
    }
}
