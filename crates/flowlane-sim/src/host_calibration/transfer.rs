//! From core to core: reading lines that another core has written and still has.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::chase::Chain;

/// Lines: what fits every core's own cache.
const BYTES: usize = 128 << 10;

const ROUNDS: u32 = 15;

/// Nanoseconds of a load of a line that another core has written; none where there is only one core.
///
/// One thread writes all lines of a chain, the other one follows it; both spin meanwhile, so that the system has
/// them on cores of their own.
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
                chain.lock().expect("nobody panics").write();
                turn.store(2 * round + 1, Ordering::Release);
            }
        });
        let reader = scope.spawn(|| {
            let mut rounds = Vec::new();
            for round in 0..ROUNDS {
                wait(2 * round + 1);
                let mut chain = chain.lock().expect("nobody panics");
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
