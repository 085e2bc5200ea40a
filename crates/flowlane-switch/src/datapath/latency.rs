//! How long packets take from being received to being handed to the system: of one round in eight that has any.
//!
//! From when the worker took them from their port, in whatever worker that was, until the frames of that round had been
//! given to the system, if with a table that answers later or another worker in between. What they waited in the system before is not in it.

use hdrhistogram::Histogram;

/// One round in so many is measured.
const ONE_IN: u32 = 8;

/// The longest time told apart; what takes longer counts as this.
const MAX_NS: u64 = 10_000_000_000;

/// Times of packets, in nanoseconds, with two digits.
#[derive(Clone, Debug)]
pub struct Latency {
    times: Histogram<u64>,
    rounds: u32,
    /// The packets of this round: when they came, and how many.
    round: Vec<(u64, u64)>,
}

/// No times yet, in nanoseconds.
fn no_times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_NS, 2).expect("the bounds are in order")
}

/// Returns these times in nanoseconds, each with its number of packets, as one distribution.
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

    /// Packets that came at this time have been taken to their end in this round.
    #[inline]
    pub(super) fn note(&mut self, came_ns: u64, packets: usize) {
        if self.rounds.is_multiple_of(ONE_IN) {
            self.round.push((came_ns, packets as u64));
        }
    }

    /// What was to be sent in this round has been. `now_ns` is asked for where the round is measured.
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
