//! Statistics over time: counters of every component at the end of each interval.
//!
//! Sampling happens between events and changes none of them: results are the same with and without.

use serde::Serialize;

use super::Machine;
use crate::event::{Ps, UNKNOWN};

/// A quantity of a component over time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Quantity {
    /// The kind of the component.
    pub component: &'static str,
    /// The number of the component among its kind.
    pub number: usize,
    pub quantity: &'static str,
    pub unit: &'static str,
    /// The values, one for each interval.
    pub values: Vec<f64>,
}

/// All quantities over time, from the beginning, including the warm-up.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct TimeSeries {
    /// The ends of the intervals.
    pub at_ps: Vec<Ps>,
    pub quantities: Vec<Quantity>,
}

/// The relation of a value to a counter.
#[derive(Clone, Copy)]
enum Per {
    /// The increase in the interval.
    Interval,
    /// The increase over this much time, in picoseconds.
    Time(Ps),
    /// The increase over that of the next counter, which is the whole.
    Whole,
    /// The counter's value at the end.
    End,
}

/// A counter of a component.
struct Counter {
    of: (&'static str, usize),
    quantity: (&'static str, &'static str),
    per: Per,
    value: u64,
}

/// The state of sampling.
#[derive(Debug)]
pub(super) struct Sampler {
    interval_ps: Ps,
    pub(super) next: Ps,
    last: Ps,
    before: Vec<u64>,
    series: TimeSeries,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { interval_ps: 0, next: UNKNOWN, last: 0, before: Vec::new(), series: TimeSeries::default() }
    }
}

impl Machine {
    /// Samples all components at this interval; call before the run.
    pub fn sample_every(&mut self, interval_ps: Ps) {
        self.sampler = Sampler { interval_ps, next: interval_ps, ..Sampler::default() };
    }

    /// Returns the statistics over time, if they were sampled, with the last, shorter interval.
    pub fn series(&mut self) -> Option<TimeSeries> {
        let sampled = self.sampler.next != UNKNOWN;
        if sampled && self.events.now() > self.sampler.last {
            self.sample_at(self.events.now());
        }
        sampled.then(|| std::mem::take(&mut self.sampler).series)
    }

    /// Samples the ends of intervals up to now, before the event of now.
    pub(super) fn sample(&mut self) {
        while self.sampler.next <= self.events.now() {
            self.sample_at(self.sampler.next);
            self.sampler.next += self.sampler.interval_ps;
        }
    }

    fn sample_at(&mut self, at: Ps) {
        let counters = self.all_counters(at);
        let s = &mut self.sampler;
        if s.before.is_empty() {
            s.before = vec![0; counters.len()];
            let quantity = |c: &Counter| {
                let ((component, number), (quantity, unit)) = (c.of, c.quantity);
                Quantity { component, number, quantity, unit, values: Vec::new() }
            };
            s.series.quantities = counters.iter().map(quantity).collect();
        }
        let more: Vec<f64> = counters
            .iter()
            .zip(&s.before)
            .map(|(c, before)| c.value.saturating_sub(*before) as f64)
            .collect();
        for (n, counter) in counters.iter().enumerate() {
            s.series.quantities[n].values.push(match counter.per {
                Per::Interval => more[n],
                Per::Time(ps) => more[n] * ps as f64 / (at - s.last) as f64,
                Per::Whole => more[n] / more[n + 1].max(1.0),
                Per::End => counter.value as f64,
            });
            s.before[n] = counter.value;
        }
        s.series.at_ps.push(at);
        s.last = at;
    }

    /// Returns the counters of all components, always in the same order.
    fn all_counters(&self, at: Ps) -> Vec<Counter> {
        let mut out = Vec::new();
        let mut put = |of, quantity, per, value| out.push(Counter { of, quantity, per, value });
        let share = Per::Time(1);
        for (n, core) in self.cores.iter().enumerate().filter(|(_, core)| !core.threads.is_empty()) {
            let of = ("core", n);
            let sum = |f: fn(&super::thread::Thread) -> u64| core.threads.iter().map(f).sum();
            let ipc = Per::Time(self.cycle_ps);
            put(of, ("instructions", "a cycle"), ipc, sum(|t| t.instructions));
            put(of, ("lookups", "in the interval"), Per::Interval, sum(|t| t.lookups));
        }
        for (n, slice) in self.slices.iter().enumerate() {
            put(("slice", n), ("port busy", "of the time"), share, slice.busy_ps);
        }
        let (_, waited_ps) = self.mesh.load();
        put(("mesh", 0), ("waits for links", "ns in the interval"), Per::Interval, waited_ps / 1000);
        let [hits, opens, conflicts] = self.dram.outcomes();
        put(("memory", 0), ("row hits", "of all accesses"), Per::Whole, hits);
        put(("memory", 0), ("accesses", "in the interval"), Per::Interval, hits + opens + conflicts);
        for (n, busy_ps) in self.dram.buses_ps().enumerate() {
            put(("memory bus", n), ("busy", "of the time"), share, busy_ps);
        }
        for (n, unit) in self.units[..self.slices.len()].iter().enumerate() {
            put(("accelerator", n), ("busy", "of the time"), share, unit.busy_until(at));
            put(("accelerator", n), ("queue", "queries at the end"), Per::End, unit.queue());
        }
        out
    }
}
