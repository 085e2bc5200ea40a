//! Rule sets and traffic for them.

use flowlane::classify::acl::{
    Acl, AclConfig, Dynamic, DynamicConfig, Entry, Layout, RankKey, Tree, TreeConfig,
};
use flowlane::generate::{Locality, Profile, Random, RuleConfig, Trace, TraceConfig, generate_rules};
use flowlane::isa::Variant;
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Match, Priority, Rule, RuleId};

use crate::options::{BenchError, RuleSet};
use crate::topic::Context;

pub(super) const PROFILES: [(Profile, &str); 3] =
    [(Profile::Acl, "acl"), (Profile::Fw, "fw"), (Profile::Ipc, "ipc")];
/// Rules of the generated sets; sets of a million take minutes and need a long duration.
const COUNTS: [usize; 4] = [1000, 10_000, 100_000, 1_000_000];
const QUICK_COUNTS: [usize; 1] = [200];
const LONG_SECONDS: f64 = 120.0;

/// A rule set.
pub(super) struct Set {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    pub(super) entries: Vec<Entry<4>>,
}

impl Set {
    fn new(name: String, rules: Vec<Rule>) -> Self {
        let entry = |(i, rule): (usize, &Rule)| Entry {
            condition: Layout::ipv4_five_tuple()
                .flow_condition(&rule.matches.ipv4_five_tuple())
                .expect("a 5-tuple"),
            rank: RankKey::new(Priority::DEFAULT, i as u32),
            rule: RuleId(i as u32),
            categories: 1,
        };
        let entries = rules.iter().enumerate().map(entry).collect();
        Self { name, rules, entries }
    }

    pub(super) fn generated(profile: Profile, name: &str, count: usize) -> Self {
        let rules = generate_rules(&RuleConfig::new(profile, count)).expect("a profile of 5-tuples");
        Self::new(format!("{name} {}", size(count)), rules)
    }

    /// Takes the rules of a file in their order, whatever their priorities.
    pub(super) fn given(set: &RuleSet) -> Self {
        let mut rules = set.rules.clone();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        Self::new(set.name.clone(), rules)
    }

    pub(super) fn packets(&self, count: usize, locality: Locality, miss: f64) -> Vec<FlowKey> {
        let config = TraceConfig { locality, miss, miss_ipv4: true, ..TraceConfig::new(count) };
        // As many recurring flows as rules; uniform traffic does not recur.
        let flows = (locality != Locality::Uniform).then_some(self.rules.len().max(1000));
        let config = TraceConfig { flows, ..config };
        if let Ok(trace) = Trace::generate(&self.rules, &config) {
            return trace.keys().cloned().collect();
        }
        // A rule matches everything, so no packet can miss.
        let trace = Trace::generate(&self.rules, &TraceConfig { miss: 0.0, ..config });
        let mut packets: Vec<FlowKey> = trace.expect("there are rules").keys().cloned().collect();
        let mut random = Random::for_purpose(1, "misses");
        for packet in &mut packets {
            if random.chance(miss) {
                for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::TpSrc, Field::TpDst] {
                    packet.set(field, u128::from(random.bits()) & field.info().ones());
                }
            }
        }
        packets
    }

    pub(super) fn tree(&self, variant: Option<Variant>) -> Tree<4> {
        self.tree_by(TreeConfig { variant, ..TreeConfig::default() })
    }

    pub(super) fn tree_by(&self, config: TreeConfig) -> Tree<4> {
        Tree::build(Layout::ipv4_five_tuple().kinds(), &self.entries, &config)
            .expect("1 GiB is enough for a million rules")
    }

    /// Returns the engine that a table of these rules selects.
    pub(super) fn automatic(&self) -> &'static str {
        let rules = self.entries.iter().map(|e| (e.rule, e.rank.priority(), e.condition, e.categories));
        let acl = Acl::build(Layout::ipv4_five_tuple(), AclConfig::default(), rules);
        acl.expect("1 GiB is enough").engine_name()
    }

    pub(super) fn dynamic(&self, config: DynamicConfig) -> Dynamic<4> {
        Dynamic::build(Layout::ipv4_five_tuple().kinds(), &self.entries, config).expect("there is no limit")
    }
}

/// Formats a number of rules briefly.
pub(super) fn size(count: usize) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}K", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Checks that rules can be measured next to `rte_acl`: IPv4 5-tuples of prefixes and ranges.
///
/// # Errors
/// Returns an error for the first other rule.
pub(in crate::topic) fn check(set: &RuleSet) -> Result<(), BenchError> {
    if set.rules.is_empty() {
        return Err(BenchError::NoRules(set.name.clone()));
    }
    let prefix = |mask: u32| mask.leading_ones() + mask.trailing_zeros() >= u32::BITS;
    let port = |mask: u128| prefix((mask as u32) << 16);
    let fits = |matches: &Match| {
        let mut ipv4 = matches.ipv4_five_tuple();
        let (kind, mask) = matches.get(Field::EthType);
        ipv4.set_masked(Field::EthType, kind, mask);
        let mask = |field| matches.get(field).1;
        let prefixes = [Field::Ipv4Src, Field::Ipv4Dst].map(|field| prefix(mask(field) as u32));
        let ports = [Field::TpSrc, Field::TpDst].map(|field| port(mask(field)));
        ipv4 == *matches && prefixes == [true; 2] && ports == [true; 2]
    };
    match set.rules.iter().position(|rule| !fits(&rule.matches)) {
        Some(i) => Err(BenchError::NotFiveTuple { name: set.name.clone(), number: i + 1 }),
        None => Ok(()),
    }
}

fn counts(context: &Context<'_>) -> &'static [usize] {
    match context.options.effort.seconds {
        _ if context.quick() => &QUICK_COUNTS,
        Some(seconds) if seconds >= LONG_SECONDS => &COUNTS,
        _ => &COUNTS[..3],
    }
}

/// Returns the number of rules of each of [`sets`].
pub(super) fn sizes(context: &Context<'_>) -> Vec<usize> {
    match &context.options.rules[..] {
        [] => counts(context).repeat(PROFILES.len()),
        given => given.iter().map(|set| set.rules.len()).collect(),
    }
}

/// Returns the given rule sets, or generated ones.
pub(super) fn sets<'a>(context: &'a Context<'_>) -> Box<dyn Iterator<Item = Set> + 'a> {
    match &context.options.rules[..] {
        [] => Box::new(PROFILES.into_iter().flat_map(|(profile, name)| {
            counts(context).iter().map(move |count| Set::generated(profile, name, *count))
        })),
        given => Box::new(given.iter().map(|set| Set::given(set))),
    }
}

/// Returns sets of about `count` rules for comparisons of variants, and of readers next to a writer.
pub(super) fn some_sets<'a>(context: &'a Context<'_>, count: usize) -> Box<dyn Iterator<Item = Set> + 'a> {
    let count = if context.quick() { QUICK_COUNTS[0] } else { count };
    match &context.options.rules[..] {
        [] => Box::new(PROFILES.into_iter().map(move |(profile, name)| Set::generated(profile, name, count))),
        _ => sets(context),
    }
}

pub(super) fn some_sets_count(context: &Context<'_>) -> usize {
    match context.options.rules.len() {
        0 => PROFILES.len(),
        given => given,
    }
}
