//! Latency under load: a ring of packets, polled by a core.
//!
//! Packets arrive at random (exponential gaps). The core takes all that are in the ring, up to a burst, and looks them up
//! in one call. A packet's latency lasts from its arrival to the end of its call. Packets that find the ring full are lost.
//! The calls take as long as measured, or as simulated, by the number of packets.

use std::collections::VecDeque;

use flowlane::deterministic_math::ln;
use flowlane::generate::Random;
use serde::Serialize;

use super::measured::Call;
use super::run::Outcome;

/// Packets of a call, at the most, and places of the ring: DPDK's usual numbers.
const BURST: usize = 32;
const RING: usize = 1024;

/// Packets of a simulation, and those of them that are not counted.
const PACKETS: usize = 60_000;
const WARM: usize = 5000;

/// The shares of a method's own rate at which it is looked at.
pub(super) const SHARES: [f64; 2] = [0.5, 0.9];

/// The time of calls by number of packets.
#[derive(Clone, Debug)]
pub(super) struct Service(Vec<Call>);

/// Latencies at an offered rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// The way to look up.
    pub name: String,
    /// The offered rate, in millions of packets a second.
    pub offered: f64,
    /// The median, the 99th and the 99.9th percentile, in nanoseconds.
    pub ns: [f64; 3],
    /// The share of lost packets.
    pub lost: f64,
}

impl Service {
    /// Returns the time of measured calls, some times as long; `None` if there are none.
    pub(super) fn measured(calls: &[Call], times: f64) -> Option<Self> {
        let longer = |call: &Call| Call { ns: call.ns.iter().map(|ns| ns * times).collect(), ..call.clone() };
        (!calls.is_empty()).then(|| Self(calls.iter().map(longer).collect()))
    }

    /// Returns the time of simulated calls: the latency of the first packets, and for each further one the time between
    /// two packets.
    pub(super) fn simulated(outcome: &Outcome) -> Self {
        let cycle_ns = outcome.cycle_ps as f64 / 1000.0;
        let call = |packets: u32| {
            let further = f64::from(packets.saturating_sub(outcome.unit)) * outcome.ns();
            let ns = outcome.latency_quantiles.iter().map(|cycles| cycles * cycle_ns + further).collect();
            Call { packets, ns }
        };
        Self(vec![call(1), call(outcome.unit.max(2)), call(outcome.unit.max(2) + BURST as u32)])
    }

    /// Returns the time of a call: linear between the known numbers of packets, at one random quantile of both, and beyond the
    /// largest in proportion.
    fn ns(&self, packets: usize, random: &mut Random) -> f64 {
        let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
        let at = |call: &Call| call.ns[(share * call.ns.len() as f64) as usize];
        let known = |call: &Call| f64::from(call.packets);
        let Some(after) = self.0.iter().position(|call| call.packets as usize >= packets) else {
            let last = self.0.last().expect("there is a call");
            return at(last) * packets as f64 / known(last);
        };
        let high = &self.0[after];
        let Some(low) = after.checked_sub(1).map(|n| &self.0[n]) else { return at(high) };
        let part = (packets as f64 - known(low)) / (known(high) - known(low));
        at(low) + (at(high) - at(low)) * part
    }

    /// Returns the millions of packets a second that full calls reach.
    pub(super) fn most(&self) -> f64 {
        let mut random = Random::new(1);
        let all: f64 = (0..2000).map(|_| self.ns(BURST, &mut random)).sum();
        2000.0 * BURST as f64 * 1000.0 / all
    }

    /// Returns the latencies at a rate, in millions of packets a second.
    pub(super) fn under(&self, name: &str, offered: f64, seed: u64) -> Latency {
        let mut random = Random::for_purpose(seed, "arrivals");
        let gap = 1000.0 / offered;
        let (mut ring, mut latencies, mut lost) = (VecDeque::new(), Vec::with_capacity(PACKETS), 0);
        let (mut arrived, mut arrival, mut now) = (0, 0.0, 0.0f64);
        loop {
            if ring.is_empty() {
                if arrived == PACKETS {
                    break;
                }
                now = now.max(arrival);
            }
            while arrived < PACKETS && arrival <= now {
                match ring.len() < RING {
                    true => ring.push_back(arrival),
                    false => lost += 1,
                }
                arrived += 1;
                arrival -= gap * ln((random.below(1 << 30) + 1) as f64 / f64::from(1 << 30));
            }
            let count = ring.len().min(BURST);
            now += self.ns(count, &mut random);
            latencies.extend(ring.drain(..count).map(|at| now - at));
        }
        let warm = WARM.min(latencies.len() / 2);
        let counted = &mut latencies[warm..];
        counted.sort_by(f64::total_cmp);
        let of = |share: f64| counted[((counted.len() - 1) as f64 * share) as usize];
        let ns = [0.5, 0.99, 0.999].map(of);
        Latency { name: name.to_owned(), offered, ns, lost: f64::from(lost) / PACKETS as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(calls: &[(u32, f64)]) -> Service {
        Service(calls.iter().map(|(packets, ns)| Call { packets: *packets, ns: vec![*ns] }).collect())
    }

    #[test]
    fn one_packet_at_a_time_waits_as_queueing_theory_says() {
        // A call takes 100 ns for each packet. Lookups that are spread evenly would be M/D/1, which waits for
        // load / (2 (1 - load)) services in the mean; whole calls wait for the other packets of their call, too.
        let each = service(&[(1, 100.0), (32, 3200.0)]);
        assert!((each.most() - 10.0).abs() < 1e-9);
        let idle = each.under("a", 0.01, 1);
        assert!(idle.ns[0] == 100.0 && idle.ns[1] < 200.0 && idle.lost == 0.0, "{idle:?}");
        let half = each.under("a", 5.0, 1);
        assert!((100.0..320.0).contains(&half.ns[0]) && half.ns[1] < 1500.0, "{half:?}");
        let [.., high] = [5.0, 9.0, 9.5].map(|rate| each.under("a", rate, 1));
        assert!(high.ns[0] > 2.0 * half.ns[0] && high.ns[2] > high.ns[1], "{high:?}");
    }

    #[test]
    fn more_than_the_most_fills_the_ring_and_loses_the_rest() {
        let each = service(&[(1, 100.0), (32, 3200.0)]);
        let over = each.under("a", 20.0, 1);
        assert!((over.lost - 0.5).abs() < 0.03, "{over:?}");
        // A full ring of 1024 packets, at 100 ns each.
        assert!((over.ns[0] / 102_400.0 - 1.0).abs() < 0.05, "{over:?}");
    }

    #[test]
    fn calls_with_few_packets_take_what_was_measured() {
        let mut random = Random::new(1);
        let batches = service(&[(1, 50.0), (4, 110.0), (32, 320.0)]);
        let times = [1, 2, 4, 18, 32].map(|n| batches.ns(n, &mut random));
        assert_eq!(times, [50.0, 70.0, 110.0, 215.0, 320.0]);
        // A trace of ten packets has no larger calls.
        let few = service(&[(1, 50.0), (10, 200.0)]);
        assert_eq!(few.ns(32, &mut random), 640.0);
        assert!((few.most() - 50.0).abs() < 1e-9);
    }
}
