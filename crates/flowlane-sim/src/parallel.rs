//! Independent runs on several threads, with results in the order of the work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` for every number below `count` on `threads` threads. The results do not depend on the number of
/// threads; `watch` receives the number of finished runs, from any thread.
pub fn run<R: Send>(
    threads: usize,
    count: usize,
    watch: &(dyn Fn(usize) + Sync),
    work: &(dyn Fn(usize) -> R + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = results.get(number) else { return };
                    let result = work(number);
                    *place.lock().expect("no holder panics") = Some(result);
                    watch(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    results.into_iter().map(|r| r.into_inner().expect("as above").expect("all work was done")).collect()
}

/// Runs fallible `work` for every item on `threads` threads, and returns the results in the order of the items.
///
/// # Errors
/// Returns the error of the first item that has one.
pub fn try_map<T: Sync, R: Send, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    run(threads, items.len(), &|_| {}, &|n| work(&items[n])).into_iter().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_work() {
        for threads in [1, 2, 7] {
            let squares = super::run(threads, 100, &|_| {}, &|n| n * n);
            assert!(squares.iter().enumerate().all(|(n, square)| *square == n * n));
        }
        assert!(super::run(3, 0, &|_| {}, &|n| n).is_empty());
        let halves =
            |items: &[u32]| super::try_map(3, items, |n| if n % 2 == 0 { Ok(n / 2) } else { Err(*n) });
        assert_eq!((halves(&[4, 2, 8]), halves(&[4, 7, 8, 9])), (Ok(vec![2, 1, 4]), Err(7)));
    }
}
