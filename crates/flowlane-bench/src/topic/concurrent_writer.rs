//! Lookups while another thread changes the table.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::measure::{Contender, Measured, Meter};

const IDLE: u8 = 0;
const SPINNING: u8 = 1;
const CHANGING: u8 = 2;
const CHANGING_ANOTHER: u8 = 3;
const ENDED: u8 = 4;

/// Describes the four measurements.
pub(super) const ABOUT: &str = "Alone: the other thread sleeps. Beside a thread that spins: the cost of a busy neighbouring core \
     (clock rate, shared caches). Beside a writer of another table: in addition, changes of an equal table without \
     readers. Beside a writer: in addition, the changes to this table and their publication. Meaningless without two free cores.";

/// The changes of the other thread.
pub(super) struct Writer<C, A> {
    /// Makes `step` changes.
    pub(super) change: C,
    /// Makes `step` changes to an equal table that has no readers.
    pub(super) change_another: A,
    pub(super) step: usize,
    /// The target rate of changes.
    pub(super) per_second: u64,
}

/// Measures passes of `look_up`, of `operations` each: alone, next to a spinning thread, next to a writer of another
/// table, and next to a writer of the same table. Also returns the achieved rate of changes.
pub(super) fn compare(
    meter: &mut Meter<'_>,
    what: &str,
    operations: usize,
    look_up: impl FnMut(),
    writer: Writer<impl FnMut() + Send, impl FnMut() + Send>,
) -> (Vec<Measured>, f64) {
    let (state, [changes, nanoseconds]) = (AtomicU8::new(IDLE), [const { AtomicU64::new(0) }; 2]);
    let look_up = RefCell::new(look_up);
    let contender = |name: &str, next: u8| {
        let (state, look_up) = (&state, &look_up);
        Contender::new(name, || (look_up.borrow_mut())()).warm().after(move || {
            state.store(next, Ordering::Relaxed);
            // Waits until a sleeping thread has woken.
            thread::sleep(Duration::from_millis(1));
        })
    };
    let measured = thread::scope(|scope| {
        scope.spawn(|| write(&state, writer, [&changes, &nanoseconds]));
        let contenders = vec![
            contender("alone", IDLE),
            contender("beside a thread that spins", SPINNING),
            contender("beside a writer of another table", CHANGING_ANOTHER),
            contender("beside a writer", CHANGING),
        ];
        let measured = meter.compare(what, operations as u64, contenders);
        state.store(ENDED, Ordering::Relaxed);
        measured
    });
    let [changes, nanoseconds] = [changes, nanoseconds].map(|n| n.into_inner() as f64);
    (measured, changes * 1e9 / nanoseconds.max(1.0))
}

fn write(state: &AtomicU8, mut writer: Writer<impl FnMut(), impl FnMut()>, [changes, time]: [&AtomicU64; 2]) {
    let step = Duration::from_nanos(1_000_000_000 * writer.step as u64 / writer.per_second);
    loop {
        let begun = Instant::now();
        match state.load(Ordering::Relaxed) {
            IDLE => thread::sleep(Duration::from_micros(100)),
            SPINNING => wait(begun, step),
            CHANGING_ANOTHER => {
                (writer.change_another)();
                wait(begun, step);
            }
            CHANGING => {
                (writer.change)();
                wait(begun, step);
                changes.fetch_add(writer.step as u64, Ordering::Relaxed);
                time.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
            _ => break,
        }
    }
}

fn wait(begun: Instant, step: Duration) {
    while begun.elapsed() < step {
        std::hint::spin_loop();
    }
}
