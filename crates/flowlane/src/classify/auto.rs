//! Engine selection by measurement: a contest of several tables of the same rules on a sample of packets.
//!
//! The caller supplies the tables, since the candidates depend on their use: classifying a trace once may use a device, a
//! switch needs engines that take changes. The first table is the default; another replaces it only where it is faster by
//! more than noise. The library has no clock, so the caller supplies one, which may count anything. A contest costs six
//! times the lookups of the sample in all tables; a single table is not measured.

use super::RuleEngine;
use crate::dispatch::WIN_BELOW;
use crate::packet::key::FlowKey;

/// Rules up to which linear search may be faster than the engines that use masks.
pub const LINEAR_RULES_MAX: usize = 64;

/// Rules up to which tuple search takes part: it is slow with many masks, and with few not much faster than an access list.
pub const TUPLE_RULES_MAX: usize = 1000;

/// Rounds that count, after one to warm up.
const ROUNDS: usize = 5;

/// Returns the index of the table that is fastest in batches of `batch` packets. `clock` may count anything.
///
/// # Panics
/// Where there is no table, or a batch of no packets.
pub fn fastest(
    tables: &[&dyn RuleEngine],
    batch: usize,
    sample: &[FlowKey],
    clock: &mut dyn FnMut() -> u64,
) -> usize {
    assert!(!tables.is_empty(), "there is no table to choose");
    if tables.len() == 1 || sample.is_empty() {
        return 0;
    }
    let mut hits = vec![None; sample.len()];
    let medians = medians(tables.len(), ROUNDS, clock, |place| {
        for (keys, hits) in sample.chunks(batch).zip(hits.chunks_mut(batch)) {
            tables[place].lookup_batch(keys, hits);
        }
    });
    let ticks: Vec<_> = medians.into_iter().map(|ticks| Some(ticks as f64)).collect();
    winner(&ticks, 0)
}

/// Returns the median ticks of `run` for each of `count` candidates, which take turns.
pub(in crate::classify) fn medians(
    count: usize,
    rounds: usize,
    clock: &mut dyn FnMut() -> u64,
    mut run: impl FnMut(usize),
) -> Vec<u64> {
    let mut samples = vec![Vec::new(); count];
    for round in 0..=rounds {
        // Rotate the first candidate, so that no candidate always runs after the same one.
        for place in (0..count).map(|i| (i + round) % count) {
            let before = clock();
            run(place);
            let taken = clock().wrapping_sub(before);
            if round > 0 {
                samples[place].push(taken);
            }
        }
    }
    let median = |mut ticks: Vec<u64>| {
        ticks.sort_unstable();
        ticks[ticks.len() / 2]
    };
    samples.into_iter().map(median).collect()
}

/// Returns the index of the least ticks, if they are below the default's by more than noise, and the default otherwise.
/// Candidates without ticks do not take part; where the default has none, any other is better.
pub(in crate::classify) fn winner(ticks: &[Option<f64>], default: usize) -> usize {
    let limit = ticks[default].map_or(f64::INFINITY, |ticks| ticks * WIN_BELOW);
    let known = ticks.iter().enumerate().filter_map(|(place, ticks)| Some((place, (*ticks)?)));
    let faster = known.filter(|(_, ticks)| *ticks < limit);
    faster.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(default, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::classify::{AclSearch, Hit, InsertError, LinearSearch, TupleSearch, acl::AclConfig};
    use crate::packet::{Field, FlowMask};
    use crate::rule::{Match, Priority, RuleId};

    /// The test's clock.
    type Time = Arc<AtomicU64>;

    /// A table whose lookups advance the test's clock by `ticks` a key.
    struct Slow {
        time: Time,
        ticks: u64,
        batch: usize,
    }

    impl RuleEngine for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn insert(&mut self, _: RuleId, _: Priority, _: &Match) -> Result<(), InsertError> {
            Ok(())
        }

        fn remove(&mut self, _: RuleId) -> bool {
            false
        }

        fn replace(&mut self, _: RuleId, _: Priority, _: &Match) -> bool {
            false
        }

        fn lookup(&self, _: &FlowKey) -> Option<Hit> {
            None
        }

        fn lookup_wildcards(&self, _: &FlowKey, _: &mut FlowMask) -> Option<Hit> {
            unreachable!("the contest needs no wildcards")
        }

        fn lookup_batch(&self, keys: &[FlowKey], _: &mut [Option<Hit>]) {
            assert!(keys.len() <= self.batch);
            self.time.fetch_add(self.ticks * keys.len() as u64, Ordering::Relaxed);
        }

        fn len(&self) -> usize {
            0
        }

        fn table_bytes(&self) -> usize {
            0
        }
    }

    fn contest(batch: usize, ticks: &[u64]) -> usize {
        let time = Time::default();
        let slow = |ticks: &u64| Slow { time: time.clone(), ticks: *ticks, batch };
        let tables: Vec<Slow> = ticks.iter().map(slow).collect();
        let tables: Vec<&dyn RuleEngine> = tables.iter().map(|table| table as &dyn RuleEngine).collect();
        let sample = vec![FlowKey::zero(); 10];
        fastest(&tables, batch, &sample, &mut || time.load(Ordering::Relaxed))
    }

    #[test]
    fn the_fastest_table_by_the_clock_wins() {
        assert_eq!(contest(3, &[300, 200, 100, 250]), 2);
        assert_eq!(contest(3, &[100, 200]), 0);
    }

    #[test]
    fn the_default_wins_within_noise() {
        assert_eq!(contest(10, &[100, 98, 99]), 0);
        assert_eq!(contest(10, &[100, 98, 96]), 2);
        assert_eq!(winner(&[None, Some(9.0), Some(8.0)], 0), 2);
        assert_eq!(winner(&[None, None], 1), 1);
    }

    #[test]
    fn a_single_table_or_an_empty_sample_is_not_measured() {
        let table = LinearSearch::new(1);
        let mut never = || -> u64 { panic!("the clock was read") };
        assert_eq!(fastest(&[&table], 1, &[FlowKey::zero()], &mut never), 0);
        assert_eq!(fastest(&[&table, &table], 1, &[], &mut never), 0);
    }

    /// By a clock without meaning, so that any table may win.
    #[test]
    fn the_selected_table_agrees_with_linear_search() {
        let matches: Vec<Match> = (0..40u32)
            .map(|n| {
                let mut rule = Match::any();
                rule.set_masked(Field::Ipv4Dst, u128::from(n << 24), u128::from(u32::MAX << (24 - n % 5)));
                rule.set_range(Field::TpDst, n as u16, 100 + n as u16);
                rule
            })
            .collect();
        let keys: Vec<FlowKey> = (0..200u32)
            .map(|n| {
                let mut key = FlowKey::zero();
                key.set(Field::Ipv4Dst, u128::from((n % 40) << 24 | n));
                key.set(Field::TpDst, n.into());
                key
            })
            .collect();
        let filled = |mut table: Box<dyn RuleEngine>| {
            for (n, rule) in matches.iter().enumerate() {
                table.insert(RuleId(n as u32), Priority(n as u32 % 7), rule).unwrap();
            }
            table
        };
        let linear = filled(Box::new(LinearSearch::new(100)));
        let others: [Box<dyn RuleEngine>; 3] = [
            Box::new(AclSearch::new(AclConfig { rules_max: 100, ..AclConfig::default() })),
            Box::new(TupleSearch::new(100, 1)),
            Box::new(LinearSearch::new(100)),
        ];
        let others = others.map(filled);
        let tables: Vec<&dyn RuleEngine> = others.iter().map(|table| &**table).collect();
        let mut taken = [false; 3];
        for seed in 1..20u64 {
            let mut now = seed;
            let mut clock = || {
                now = now.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                now >> 40
            };
            let chosen = fastest(&tables, 32, &keys, &mut clock);
            taken[chosen] = true;
            for key in &keys {
                assert_eq!(tables[chosen].lookup(key), linear.lookup(key));
            }
        }
        assert!(taken.iter().filter(|taken| **taken).count() > 1, "{taken:?}: the clock decides nothing");
    }
}
