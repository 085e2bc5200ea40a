//! The library's tuple search: rules with several masks, looked up with a probe.

use std::rc::Rc;

use flowlane::classify::{RuleEngine, TupleSearch};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::key::FlowKey;
use flowlane::rule::{Rule, RuleId};

use crate::machine::op::{Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::machine::space::{Region, Space};
use crate::workload::{Recorder, TablePlace};

/// The size of each part of a subtable, more than rules that fit the simulated memory need.
const PART_BYTES: u64 = 8 << 20;

/// Searches the library's tuple tables, packet by packet.
pub struct TupleSearchProgram {
    search: Rc<TupleSearch>,
    rules: Rc<Vec<Rule>>,
    places: Vec<TablePlace>,
    key: Region,
    random: Random,
    left: u64,
    number: u64,
}

impl TupleSearchProgram {
    /// Generates `rules` rules of the profile `acl`, and `count` packets that match them, in `space`.
    ///
    /// # Panics
    /// Panics if the profile cannot generate that many rules.
    pub fn new(rules: usize, seed: u64, count: u64, space: &mut Space) -> Self {
        let config = RuleConfig { seed, ..RuleConfig::new(Profile::Acl, rules) };
        let rules = generate_rules(&config).expect("the profile has enough rules");
        let mut search = TupleSearch::new(rules.len(), seed as u32);
        for (n, rule) in rules.iter().enumerate() {
            let id = RuleId(n as u32);
            search.insert(id, rule.priority, &rule.matches).expect("its number is new, and there is room");
        }
        let places = (0..search.subtables()).map(|_| place(space)).collect();
        let key = space.region(size_of::<FlowKey>() as u64);
        let random = Random::for_purpose(seed, "tuple search");
        Self { search: Rc::new(search), rules: Rc::new(rules), places, key, random, left: count, number: 0 }
    }
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

impl Program for TupleSearchProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let rule = &self.rules[self.random.index(self.rules.len())];
        let key = draw_key(&rule.matches, &mut self.random);
        let mut recorder = Recorder::new(&self.places, self.key);
        let simulated = self.search.lookup_probed(&key, &mut recorder);
        // The definition: the best matching rule; among equals, the first.
        let matching = self.rules.iter().enumerate().filter(|(_, rule)| rule.matches.matches(&key));
        let best = matching.max_by_key(|(n, rule)| (rule.priority, std::cmp::Reverse(*n)));
        let library = best.map(|(n, _)| n as u32);
        let simulated = simulated.map(|hit| hit.rule.0);
        if simulated != library {
            let table = "tuple search".to_owned();
            return Err(Mismatch { lookup: self.number, table, simulated, library });
        }
        self.number += 1;
        let from = ops.len();
        ops.append(&mut recorder.lookup(0, 0, simulated, library).ops);
        super::unit(ops, from, 1);
        Ok(true)
    }
}
