//! Core-to-core latency: loads of lines that another core has modified.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::chase::Chain;

/// The size of a chain, which fits every core's private cache.
const BYTES: usize = 128 << 10;

const ROUNDS: u32 = 15;

/// Returns the nanoseconds of a load of a line that another core has modified; `None` with a single core.
///
/// One thread writes all lines of a chain, the other follows it. Both spin in between, so that the system runs them
/// on different cores.
pub(super) fn dirty_line_ns() -> Option<f64> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let chain = Mutex::new(Chain::new(BYTES, 3));
    let turn = AtomicU32::new(0);
    // Even turns are the writer's, odd ones the reader's.
    let wait = |wanted: u32| {
        while turn.load(Ordering::Acquire) != wanted {
            std::hint::spin_loop();
        }
    };
    let mut rounds = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                wait(2 * round);
                chain.lock().expect("no holder panics").write();
                turn.store(2 * round + 1, Ordering::Release);
            }
        });
        let reader = scope.spawn(|| {
            let mut rounds = Vec::new();
            for round in 0..ROUNDS {
                wait(2 * round + 1);
                let mut chain = chain.lock().expect("no holder panics");
                let lines = chain.lines();
                rounds.push(chain.cycle_nanoseconds::<1>(lines));
                drop(chain);
                turn.store(2 * round + 2, Ordering::Release);
            }
            rounds
        });
        reader.join().expect("it does not panic")
    });
    rounds.sort_by(f64::total_cmp);
    Some(rounds[rounds.len() / 2])
}
