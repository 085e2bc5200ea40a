//! Access lists.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest};
use crate::classify::acl::{Dynamic, DynamicConfig, Engine, Entry, Layout, RankKey};
use crate::classify::acl::{MatchId, Tree, TreeConfig};
use crate::dispatch::KernelSlot;
use crate::generate::{Locality, Profile, RuleConfig, Trace, TraceConfig, generate_rules};
use crate::isa::Variant;
use crate::rule::{Priority, Rule, RuleId};

const RULES: usize = 1000;
const KEYS: usize = 1 << 12;
const BATCH: usize = 64;
/// The most bytes that a table of these rules may take: far more than any does.
const MEMORY_MAX: usize = 64 << 20;

/// A table for each candidate.
struct Looking<E> {
    tables: Vec<(Variant, E)>,
    keys: Vec<[u32; 4]>,
}

impl<E: Engine<4>> Workload for Looking<E> {
    type Entrant = Variant;

    fn prepare(&mut self, _: &Variant) {
        // Other keys first than the time before, so that branches are not learnt by heart.
        self.keys.rotate_left(KEYS / 3);
    }

    fn run(&mut self, candidate: &Variant) {
        let (_, table) = self.tables.iter().find(|(of, _)| of == candidate).expect("each has a table");
        let mut verdicts = [MatchId::NONE; BATCH];
        for keys in self.keys.chunks(BATCH) {
            table.lookup_batch(black_box(keys), &mut verdicts);
            black_box(&verdicts);
        }
    }
}

fn entry((i, rule): (usize, &Rule)) -> Entry<4> {
    let matches = rule.matches.ipv4_five_tuple();
    Entry {
        condition: Layout::ipv4_five_tuple().flow_condition(&matches).expect("a 5-tuple"),
        rank: RankKey::new(Priority::DEFAULT, i as u32),
        rule: RuleId(i as u32),
        categories: 1,
    }
}

/// Returns a contest between tables of the same rules that `build` makes.
fn contest<E: Engine<4>>(
    measuring: &mut Measuring<'_>,
    slot: KernelSlot,
    build: impl Fn(Variant, &[Entry<4>]) -> E,
) -> Outcome {
    let rules = generate_rules(&RuleConfig::new(Profile::Acl, RULES)).expect("a profile of 5-tuples");
    let entries: Vec<Entry<4>> = rules.iter().enumerate().map(entry).collect();
    let config = TraceConfig { locality: Locality::Uniform, ..TraceConfig::new(KEYS) };
    let trace = Trace::generate(&rules, &config).expect("there are rules");
    let layout = Layout::ipv4_five_tuple();
    let keys = trace.keys().map(|key| layout.flow_key(key)).collect();
    let candidates: Vec<Variant> = Variant::ALL.into_iter().filter(|v| v.available()).collect();
    let tables: Vec<(Variant, E)> = candidates.iter().map(|of| (*of, build(*of, &entries))).collect();
    let bytes = tables.first().map(|(_, table)| table.table_bytes() as u64);
    let mut work = Looking { tables, keys };
    one_contest(measuring, slot, bytes, KEYS as u64, &candidates, &mut work)
}

pub(super) fn tree(measuring: &mut Measuring<'_>) -> Outcome {
    contest(measuring, KernelSlot::AclTree, |variant, entries| {
        let config = TreeConfig { variant: Some(variant), memory_max: MEMORY_MAX, ..TreeConfig::default() };
        Tree::build(Layout::ipv4_five_tuple().kinds(), entries, &config).expect("there is memory enough")
    })
}

pub(super) fn dynamic(measuring: &mut Measuring<'_>) -> Outcome {
    contest(measuring, KernelSlot::AclDynamic, |variant, entries| {
        let config = DynamicConfig { variant: Some(variant), ..DynamicConfig::new(0x5eed) };
        Dynamic::build(Layout::ipv4_five_tuple().kinds(), entries, config).expect("there is memory enough")
    })
}
