//! Latency of packets from reception to transmission, sampled in one of eight rounds with packets.
//!
//! Measured from when a worker took a packet from its port until the round that sends it has passed its frames to the system,
//! including waits for an offloaded table or a handoff. Time in the system's queues before is not included.

use hdrhistogram::Histogram;

/// One round in `ONE_IN` is measured.
const ONE_IN: u32 = 8;

/// The longest time recorded; longer ones count as this.
const MAX_NS: u64 = 10_000_000_000;

/// A histogram of packets' times in nanoseconds, with two significant digits.
#[derive(Clone, Debug)]
pub struct Latency {
    times: Histogram<u64>,
    rounds: u32,
    /// The packets of this round: arrival time and number.
    round: Vec<(u64, u64)>,
}

/// Returns an empty histogram, in nanoseconds.
fn no_times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_NS, 2).expect("the bounds are in order")
}

/// Returns the histogram of `times`: nanoseconds, each with its number of packets.
pub fn distribution(times: impl IntoIterator<Item = (u64, u64)>) -> Histogram<u64> {
    let mut all = no_times();
    times.into_iter().for_each(|(ns, packets)| all.saturating_record_n(ns, packets));
    all
}

impl Default for Latency {
    fn default() -> Self {
        Self { times: no_times(), rounds: 0, round: Vec::new() }
    }
}

impl Latency {
    /// Returns the measured times.
    pub fn times(&self) -> &Histogram<u64> {
        &self.times
    }

    /// Notes packets that arrived at `came_ns` and are completed in this round.
    #[inline]
    pub(super) fn note(&mut self, came_ns: u64, packets: usize) {
        if self.rounds.is_multiple_of(ONE_IN) {
            self.round.push((came_ns, packets as u64));
        }
    }

    /// Ends a round, whose frames have been sent. Calls `now_ns` if the round is measured.
    #[inline]
    pub(super) fn end_round(&mut self, packets: u64, now_ns: impl FnOnce() -> u64) {
        if !self.round.is_empty() {
            let now_ns = now_ns();
            for (came_ns, packets) in self.round.drain(..) {
                self.times.saturating_record_n(now_ns.saturating_sub(came_ns).max(1), packets);
            }
        }
        self.rounds = self.rounds.wrapping_add(u32::from(packets > 0));
    }
}
