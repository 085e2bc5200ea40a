//! The plan: which masks the hash tables have.
//!
//! A sample of the rules is looked up, with keys drawn from it, in tables that are not built: for every set of masks
//! that is tried this counts how many tables are probed, how often one has something, and how many rules are compared.
//! Beginning with one table for all, the mask that saves the most joins, as long as one saves anything; then masks are
//! made coarser where that is better, and those that no longer pay go.

use std::cell::Cell;

use super::table::finest_mask;
use super::{DynamicConfig, TABLES_MAX};
use crate::classify::acl::{Entry, WordKind, order};
use crate::hash::multilinear::Multilinear;

/// The costs of the steps of a lookup, in any unit; only their ratios count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// A table that is probed and has nothing.
    pub probe: f64,
    /// A table that has rules under the key's hash.
    pub found: f64,
    /// A rule that is compared.
    pub rule: f64,
}

impl Default for Costs {
    /// Those of six that gave the fastest plans on an EPYC (Zen 5), AVX-512, batches of 256, together over generated sets
    /// of all kinds of 1,000 and 100,000 rules; not the cycles of each step, which overlap.
    fn default() -> Self {
        Self { probe: 2.0, found: 5.0, rule: 8.0 }
    }
}

/// Rules that are looked at, at least.
const SAMPLE_MIN: usize = 64;

/// Rules that are looked at where nothing is said, of few and of many.
const SAMPLE_OF_FEW: usize = 1024;
const SAMPLE_OF_MANY: usize = 3072;
const SAMPLE_INVERSE: usize = 64;

/// One rule in this many counts as a rule with few bits.
const COARSE: usize = 16;

/// Masks that are tried at first.
const CANDIDATES: usize = 128;

/// Attempts to change a plan's masks, for each.
const REFINEMENTS: usize = 12;

/// Keys that are sought and rules that are gone through while a plan is made, for each pair of rules of the sample: sets
/// whose chains are long whatever the masks would take tens of seconds otherwise.
const EFFORT_MAX: u64 = 64;

/// Least rules that a plan is made for.
const EFFORT_MIN: usize = 1024;

/// One key in this many selects the masks that are worth a closer look: in one table for all, chains are so long that
/// looking for all keys would take most of the time.
const ROUGH: usize = 16;

/// Masks that are tried in earnest behind the best so far, before that joins.
const TRIED: usize = 10;

/// Plans that are made, from other masks each; the best is taken.
const PLANS: usize = 2;

/// A plan above this cost, in the unit of [`Costs`], is worth more attempts: this number of masks that save nothing may join.
const SLOW: f64 = 200.0;
const PATIENCE: usize = 6;

/// Rules of a chain that are compared in earnest.
const WALKED_MAX: usize = 32;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Draws(u64);

impl Draws {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

struct Sample<const W: usize> {
    kinds: [WordKind; W],
    /// By descending rank.
    entries: Vec<Entry<W>>,
    masks: Vec<[u32; W]>,
    keys: Vec<[u32; W]>,
    /// For each key the best of the sample that matches.
    winners: Vec<u32>,
    /// The weight of each rule of the sample: the number of rules that it represents.
    weights: Vec<f64>,
    /// The probability that the winning rule is in the tables, which hold all rules or an unknown part of them.
    share: f64,
    costs: Costs,
    hash: Multilinear,
    /// Steps of counting that are left.
    effort: Cell<u64>,
}

/// A table as it is to be built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned<const W: usize> {
    pub(super) mask: [u32; W],
    /// Keys of the sample whose winner is here.
    pub(super) wins: u32,
}

/// A table of a plan.
#[derive(Clone)]
struct Draft<const W: usize> {
    mask: [u32; W],
    /// Different keys of the sample under the mask: the finer, the more.
    distinct: usize,
    cost: f64,
    /// A fingerprint of the set of its rules: the cost holds as long as it is the same.
    members: u64,
    wins: u32,
}

impl<const W: usize> Draft<W> {
    fn new(mask: [u32; W], distinct: usize) -> Self {
        Self { mask, distinct, cost: 0.0, members: 0, wins: 0 }
    }
}

/// A plan, finest mask first; the last suits all.
#[derive(Clone)]
struct Plan<const W: usize> {
    tables: Vec<Draft<W>>,
    cost: f64,
}

/// Plans the tables for these entries, or for a share of them, finest first; the mask of the last is 0.
pub(super) fn tables<const W: usize>(
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    config: &DynamicConfig,
    share: f64,
) -> Vec<Planned<W>> {
    let mut draws = Draws(config.seed);
    let sample = Sample::draw(kinds, entries, config, share, &mut draws);
    let one = sample.plan(vec![Draft::new([0; W], 1)], 1);
    let plans = if sample.entries.len() > 1 { PLANS } else { 0 };
    let mut made = |_| {
        let plan = sample.greedy(one.clone(), &mut draws);
        sample.refined(plan, &mut draws)
    };
    let best = (0..plans).map(&mut made).min_by(|a, b| a.cost.total_cmp(&b.cost));
    let plan = best.unwrap_or(one);
    plan.tables.into_iter().map(|t| Planned { mask: t.mask, wins: t.wins }).collect()
}

impl<const W: usize> Sample<W> {
    fn draw(
        kinds: &[WordKind; W],
        all: &[Entry<W>],
        config: &DynamicConfig,
        share: f64,
        draws: &mut Draws,
    ) -> Self {
        let by_default = (SAMPLE_OF_FEW + all.len() / SAMPLE_INVERSE).min(SAMPLE_OF_MANY);
        let drawn = drawn(kinds, all, config.sample.unwrap_or(by_default).max(SAMPLE_MIN), draws);
        let order = order::descending(drawn.iter().map(|(e, _)| e.rank.0));
        let (entries, weights): (Vec<Entry<W>>, Vec<f64>) =
            order.into_iter().map(|i| (drawn[i as usize].0, drawn[i as usize].1 * share)).unzip();
        let masks = entries.iter().map(|e| finest_mask(kinds, &e.condition.low, &e.condition.high)).collect();
        let keys: Vec<_> = entries.iter().map(|e| e.condition.drawn(kinds, &mut draws.0)).collect();
        // The rule that a key was drawn from matches; there may be better ones.
        let winner = |(i, key): (usize, &[u32; W])| {
            entries[..i].iter().position(|e| e.condition.matches(kinds, key)).unwrap_or(i) as u32
        };
        let winners = keys.iter().enumerate().map(winner).collect();
        let hash = Multilinear::new(config.seed);
        let effort = Cell::new(EFFORT_MAX * entries.len().max(EFFORT_MIN).pow(2) as u64);
        Self {
            kinds: *kinds,
            masks,
            keys,
            winners,
            weights,
            share,
            costs: config.costs,
            hash,
            effort,
            entries,
        }
    }

    /// Returns the fingerprint of a key under a mask.
    fn sum(&self, key: &[u32; W], mask: &[u32; W]) -> u64 {
        let mut sum = 0u64;
        for w in 0..W {
            sum = sum.wrapping_add(
                u64::from(key[w] & mask[w]).wrapping_mul(u64::from(self.hash.multiplier(w)) << 1 | 1),
            );
            sum ^= sum >> 29;
        }
        sum
    }

    fn distinct(&self, mask: &[u32; W]) -> usize {
        let mut cells = Cells::new(self.keys.len());
        self.keys.iter().map(|key| cells.number(self.sum(key, mask))).filter(|(_, is_new)| *is_new).count()
    }

    /// The plan of these tables, which are in order; those whose rules have changed are counted again, with one key of
    /// `step`.
    fn plan(&self, mut tables: Vec<Draft<W>>, step: usize) -> Plan<W> {
        let homes = self.homes(&tables);
        let mut members = [0u64; TABLES_MAX];
        for (i, home) in homes.iter().enumerate() {
            members[usize::from(*home)] += (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        }
        tables.iter_mut().for_each(|t| t.wins = 0);
        for (winner, weight) in self.winners.iter().zip(&self.weights) {
            // Those of a small set stand for one rule each: nothing is lost.
            tables[usize::from(homes[*winner as usize])].wins += *weight as u32;
        }
        let wins: Vec<u32> = tables.iter().map(|t| t.wins).collect();
        for (t, table) in tables.iter_mut().enumerate() {
            if table.members != members[t] {
                table.members = members[t];
                table.cost = self.table_cost(&table.mask, &homes, t, &wins, step);
            }
        }
        let cost = tables.iter().map(|t| t.cost).sum();
        Plan { tables, cost }
    }

    /// The table of each rule.
    fn homes(&self, tables: &[Draft<W>]) -> Vec<u8> {
        let takes =
            |t: &Draft<W>, mask: &[u32; W]| (0..W).fold(0, |more, w| more | t.mask[w] & !mask[w]) == 0;
        let home = |mask: &[u32; W]| tables.iter().position(|t| takes(t, mask)).unwrap_or(tables.len() - 1);
        self.masks.iter().map(|mask| home(mask) as u8).collect()
    }

    /// Returns the cost of a table for a key of the sample, on average over one key in `step`.
    fn table_cost(&self, mask: &[u32; W], homes: &[u8], t: usize, wins: &[u32], step: usize) -> f64 {
        let own =
            homes.iter().enumerate().filter(|(_, home)| usize::from(**home) == t).map(|(i, _)| i as u32);
        let own: Vec<u32> = own.collect();
        if own.is_empty() {
            return 0.0;
        }
        let sum_of = |i: &u32| (*i, self.sum(&self.entries[*i as usize].condition.low, mask));
        let groups = Groups::new(own.iter().map(sum_of), &self.weights);
        self.effort.set(self.effort.get().saturating_sub((self.keys.len() / step) as u64));
        let (mut found, mut compared, mut keys) = (0.0, 0.0, 0.0);
        for (i, key) in self.keys.iter().enumerate().step_by(step) {
            let home = usize::from(homes[self.winners[i] as usize]);
            // Where the winner's table comes before this one, nothing below its rank is looked at any more.
            let before = t != home && (wins[t], home) > (wins[home], t);
            let (chance, rules) = self.walk(&groups, i, before, self.sum(key, mask));
            found += chance * self.weights[i];
            compared += rules * self.weights[i];
            keys += self.weights[i];
        }
        self.costs.probe + self.costs.found * found / keys + self.costs.rule * compared / keys
    }

    /// How likely it is that a key's chain is looked at, and how many of its rules are compared. Each rule of the
    /// sample represents many, except for the winner.
    fn walk(&self, groups: &Groups, key: usize, before: bool, sum: u64) -> (f64, f64) {
        let chain = groups.of(sum);
        let winner = self.winners[key];
        let place = chain.rules.partition_point(|i| *i < winner);
        if chain.rules.get(place) == Some(&winner) {
            let others = chain.weight(place);
            return (self.share.max(others.min(1.0)), others + self.share);
        }
        if !before {
            let others = chain.weight(place);
            return (others.min(1.0), others);
        }
        for (i, rule) in chain.rules.iter().enumerate().take(WALKED_MAX).skip(place) {
            self.effort.set(self.effort.get().saturating_sub(1));
            if self.matches(*rule, key) {
                // If one in this many of the sample matches, so does one of all rules.
                return (1.0, chain.weight(i + 1) / self.weights[*rule as usize]);
            }
        }
        let others = chain.weight(chain.rules.len());
        (others.min(1.0), others)
    }

    fn matches(&self, i: u32, key: usize) -> bool {
        self.entries[i as usize].condition.matches(&self.kinds, &self.keys[key])
    }

    /// A plan with one mask more.
    fn with(&self, plan: &Plan<W>, mask: [u32; W], step: usize) -> Plan<W> {
        let distinct = self.distinct(&mask);
        let at = plan.tables[..plan.tables.len() - 1].partition_point(|t| t.distinct >= distinct);
        let mut tables = plan.tables.clone();
        tables.insert(at, Draft::new(mask, distinct));
        self.plan(tables, step)
    }

    /// Returns the plan with all tables counted again: the cost of one depends a little on those before it.
    fn settled(&self, mut plan: Plan<W>) -> Plan<W> {
        plan.tables.iter_mut().for_each(|t| t.members = 0);
        self.plan(plan.tables, 1)
    }

    fn without(&self, plan: &Plan<W>, at: usize) -> Plan<W> {
        let mut tables = plan.tables.clone();
        tables.remove(at);
        self.plan(tables, 1)
    }

    /// Adds the mask that saves the most, again and again. Where chains are long, also some that do not: rules of many
    /// kinds get shorter ones only when several have left.
    fn greedy(&self, mut plan: Plan<W>, draws: &mut Draws) -> Plan<W> {
        let (mut cheapest, mut patience) = (plan.clone(), PATIENCE);
        let masks = self.candidates(draws);
        let costs = |mask: &[u32; W]| self.with(&plan, *mask, ROUGH).cost - plan.cost;
        let mut candidates: Vec<(f64, u32)> = masks.iter().map(costs).zip(0..).collect();
        while plan.tables.len() < TABLES_MAX && self.effort.get() > 0 {
            // What a mask saves rarely grows when others have joined: those that saved little need not be tried again
            // before those that saved more.
            order::cheapest_first(&mut candidates);
            let mut best: Option<Plan<W>> = None;
            let mut tried = 0;
            for (costs, mask) in &mut candidates {
                let new = self.with(&plan, masks[*mask as usize], 1);
                *costs = new.cost - plan.cost;
                if best.as_ref().is_none_or(|b| new.cost < b.cost) {
                    best = Some(new);
                    tried = 0;
                }
                tried += 1;
                if tried > TRIED {
                    break;
                }
            }
            let Some(best) = best else { break };
            let saves = best.cost < plan.cost;
            if !saves && (patience == 0 || cheapest.cost <= SLOW) {
                break;
            }
            plan = self.settled(best);
            if plan.cost < cheapest.cost {
                (cheapest, patience) = (plan.clone(), PATIENCE);
            } else {
                patience = patience.saturating_sub(1);
            }
        }
        cheapest
    }

    /// Changes masks a little and drops tables, where it costs less.
    fn refined(&self, mut plan: Plan<W>, draws: &mut Draws) -> Plan<W> {
        for _ in 0..REFINEMENTS * (plan.tables.len() - 1) {
            if plan.tables.len() < 2 || self.effort.get() == 0 {
                break;
            }
            let at = draws.below(plan.tables.len() - 1);
            let without = self.without(&plan, at);
            let [one, other] = [(); 2].map(|()| self.masks[draws.below(self.masks.len())]);
            let own = plan.tables[at].mask;
            // Coarser, so that it takes one more; and finer where two rules that it takes allow that.
            let coarser = std::array::from_fn(|w| own[w] & other[w]);
            let finer = std::array::from_fn(|w| own[w] | one[w] & other[w]);
            let tried = [without.clone(), self.with(&without, coarser, 1), self.with(&without, finer, 1)];
            if let Some(best) = tried.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost))
                && best.cost < plan.cost
            {
                let best = self.settled(best);
                if best.cost < plan.cost {
                    plan = best;
                }
            }
        }
        plan
    }

    /// Masks worth a try: what one or a few rules have in common, with or without some of its parts.
    fn candidates(&self, draws: &mut Draws) -> Vec<[u32; W]> {
        let mut out = Vec::new();
        for i in 0..CANDIDATES {
            let together = [1, 2, 1, 3, 2, 5, 3, 9][i % 8];
            let mut mask = [u32::MAX; W];
            for _ in 0..together {
                let other = self.masks[draws.below(self.masks.len())];
                mask = std::array::from_fn(|w| mask[w] & other[w]);
            }
            out.push(mask);
            // Few of the parts are kept, or most.
            let kept = [1, 2, 3][i % 3];
            for (kind, mask) in self.kinds.iter().zip(&mut mask) {
                let parts: &[u32] = match kind {
                    WordKind::Range16 => &[0xffff_0000, 0xffff],
                    _ => &[u32::MAX],
                };
                for part in parts.iter().filter(|_| draws.below(4) >= kept) {
                    *mask &= !part;
                }
            }
            out.push(mask);
        }
        out.sort_unstable();
        out.dedup();
        out.retain(|mask| mask.iter().any(|m| *m != 0));
        out
    }
}

/// Draws a sample of the entries, and their weights. Of those that ask for few bits there are few, but they meet
/// many keys: they are drawn more often.
fn drawn<const W: usize>(
    kinds: &[WordKind; W],
    all: &[Entry<W>],
    sample: usize,
    draws: &mut Draws,
) -> Vec<(Entry<W>, f64)> {
    if all.len() <= sample {
        return all.iter().map(|e| (*e, 1.0)).collect();
    }
    let bits = |entry: &Entry<W>| -> u32 {
        let condition = &entry.condition;
        finest_mask(kinds, &condition.low, &condition.high).iter().map(|m| m.count_ones()).sum()
    };
    let by_bits = order::ascending(all.iter().map(|entry| bits(entry).into()));
    let (coarse, fine) = by_bits.split_at((all.len() / COARSE).max(sample / 4));
    let mut out = Vec::with_capacity(sample);
    for (stratum, draws_of) in [(coarse, sample / 4), (fine, sample - sample / 4)] {
        let len = draws_of.min(stratum.len());
        for i in 0..len {
            // One of every stretch.
            let (from, to) = (i * stratum.len() / len, (i + 1) * stratum.len() / len);
            let entry = all[stratum[from + draws.below(to - from)] as usize];
            out.push((entry, stratum.len() as f64 / len as f64));
        }
    }
    out
}

/// Numbers for sums, in the order in which they come.
struct Cells {
    /// By the hash: a sum, and its number plus one.
    cells: Vec<(u64, u32)>,
    len: u32,
}

impl Cells {
    fn new(sums_max: usize) -> Self {
        Self { cells: vec![(0, 0); (2 * sums_max).next_power_of_two()], len: 0 }
    }

    /// The place of a sum, or the free one where it would be.
    fn place(&self, sum: u64) -> usize {
        let wrap = self.cells.len() - 1;
        let mut at = (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & wrap;
        while self.cells[at].1 != 0 && self.cells[at].0 != sum {
            at = (at + 1) & wrap;
        }
        at
    }

    fn get(&self, sum: u64) -> Option<usize> {
        self.cells[self.place(sum)].1.checked_sub(1).map(|number| number as usize)
    }

    /// The number of a sum, and whether it has got that now.
    fn number(&mut self, sum: u64) -> (usize, bool) {
        let at = self.place(sum);
        let is_new = self.cells[at].1 == 0;
        if is_new {
            self.len += 1;
            self.cells[at] = (sum, self.len);
        }
        (self.cells[at].1 as usize - 1, is_new)
    }
}

/// Rules of the sample by their sums.
struct Groups {
    groups: Cells,
    /// Where the rules of each group begin, and where the last ones end.
    starts: Vec<u32>,
    /// Group by group, in their order.
    rules: Vec<u32>,
    /// For how many rules those before each of them stand.
    weights: Vec<f64>,
}

/// The rules of a group, best first.
struct Group<'a> {
    rules: &'a [u32],
    weights: &'a [f64],
}

impl Group<'_> {
    /// For how many rules the first `count` stand.
    fn weight(&self, count: usize) -> f64 {
        self.weights.get(count).map_or(0.0, |until| until - self.weights[0])
    }
}

impl Groups {
    fn new(own: impl ExactSizeIterator<Item = (u32, u64)>, weights: &[f64]) -> Self {
        let mut groups = Cells::new(own.len());
        let mut starts = vec![0; own.len() + 2];
        let numbered: Vec<(u32, u32)> = own.map(|(i, sum)| (i, groups.number(sum).0 as u32)).collect();
        // Counted into the place behind the next, which is where the next begins once all are added up.
        numbered.iter().for_each(|(_, group)| starts[*group as usize + 2] += 1);
        (2..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut rules = vec![0; numbered.len()];
        for (i, group) in numbered {
            let start = &mut starts[group as usize + 1];
            rules[*start as usize] = i;
            *start += 1;
        }
        let mut sum = 0.0;
        let weight = |rule: &u32| {
            sum += weights[*rule as usize];
            sum
        };
        let weights = std::iter::once(0.0).chain(rules.iter().map(weight)).collect();
        Self { groups, starts, rules, weights }
    }

    fn of(&self, sum: u64) -> Group<'_> {
        let range = self
            .groups
            .get(sum)
            .map_or(0..0, |group| self.starts[group] as usize..self.starts[group + 1] as usize);
        Group { rules: &self.rules[range.clone()], weights: &self.weights[range.start..=range.end] }
    }
}
