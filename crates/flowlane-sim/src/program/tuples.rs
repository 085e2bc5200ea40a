//! The library's tuple search: rules with several masks, looked up with a probe.

use flowlane::classify::{RuleEngine, TupleSearch};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::key::FlowKey;
use flowlane::rule::RuleId;

use super::unit;
use crate::machine::op::{Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::machine::space::{Region, Space};
use crate::workload::{Recorder, TablePlace};

/// The size of each part of a subtable, more than rules that fit the simulated memory need.
const PART_BYTES: u64 = 8 << 20;

/// Searches the library's tuple tables for packets that come with the expected rule.
pub(crate) struct TupleSearchProgram<P> {
    pub(crate) search: TupleSearch,
    pub(crate) places: Vec<TablePlace>,
    /// The regions of packets' headers, used in turn.
    pub(crate) keys: Vec<Region>,
    pub(crate) packets: P,
    pub(crate) number: usize,
}

/// Generates `rules` rules of the profile `acl`, and `count` packets that match them, in `space`.
///
/// # Panics
/// Panics if the profile cannot generate that many rules.
pub(crate) fn generated_tuples(
    rules: usize,
    seed: u64,
    count: u64,
    space: &mut Space,
) -> TupleSearchProgram<impl Iterator<Item = (FlowKey, Option<u32>)> + use<>> {
    let config = RuleConfig { seed, ..RuleConfig::new(Profile::Acl, rules) };
    let rules = generate_rules(&config).expect("the profile has enough rules");
    let mut search = TupleSearch::new(rules.len(), seed as u32);
    for (n, rule) in rules.iter().enumerate() {
        let id = RuleId(n as u32);
        search.insert(id, rule.priority, &rule.matches).expect("its number is new, and there is room");
    }
    let places = (0..search.subtables()).map(|_| place(space)).collect();
    let keys = vec![space.region(size_of::<FlowKey>() as u64)];
    let mut random = Random::for_purpose(seed, "tuple search");
    let packets = (0..count).map(move |_| {
        let key = draw_key(&rules[random.index(rules.len())].matches, &mut random);
        // The definition: the best matching rule; among equals, the first.
        let matching = rules.iter().enumerate().filter(|(_, rule)| rule.matches.matches(&key));
        let best = matching.max_by_key(|(n, rule)| (rule.priority, std::cmp::Reverse(*n)));
        let best = best.map(|(n, _)| n as u32);
        (key, best)
    });
    TupleSearchProgram { search, places, keys, packets, number: 0 }
}

fn place(space: &mut Space) -> TablePlace {
    let mut part = |bytes| {
        // Keeps the parts from beginning in the same cache set.
        space.region(13 * 64);
        space.region(bytes)
    };
    TablePlace {
        header: part(4096),
        buckets: part(PART_BYTES),
        entries: part(PART_BYTES),
        values: part(PART_BYTES),
        links: part(PART_BYTES),
    }
}

impl<P: Iterator<Item = (FlowKey, Option<u32>)>> Program for TupleSearchProgram<P> {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        let Some((key, library)) = self.packets.next() else { return Ok(false) };
        let mut recorder = Recorder::new(&self.places, self.keys[self.number % self.keys.len()]);
        let hit = self.search.lookup_probed(&key, &mut recorder);
        let simulated = hit.map(|hit| hit.rule.0);
        if simulated != library {
            let (lookup, table) = (self.number as u64, "tuple search".to_owned());
            return Err(Mismatch { lookup, table, simulated, library });
        }
        self.number += 1;
        let from = ops.len();
        ops.append(&mut recorder.lookup(0, 0, simulated, library).ops);
        unit(ops, from, 1);
        Ok(true)
    }
}
