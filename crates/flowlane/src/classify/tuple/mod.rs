//! Tuple search: one hash table for each distinct mask (Srinivasan, Suri, Varghese, SIGCOMM 1999), the
//! tables in order of their best rule, so that the search ends as soon as nothing better can follow.
//!
//! Ranges stay ranges: a rule is in the subtable of its mask without them, and the rules that share a
//! masked key form a chain, best first, along which ranges are compared. (Expanded to prefixes, the 9,379
//! rules of a published firewall set would be 31,654 entries under many more masks, and a lookup took
//! 5 to 9 times as long.)
//!
//! **Wildcards** ([`RuleEngine::lookup_wildcards`]): naively the answer depends on every bit of every mask that
//! was tried. Two ideas of *The Design and Implementation of Open vSwitch* (NSDI 2015) reduce them:
//!
//! - *Staged lookup* (§5.3): a subtable is looked up with its metadata bits first, then with L2 too, then
//!   L3, then L4. It ends with the first stage at which no key of the subtable agrees, and only the bits
//!   up to that stage count. So ports stay unlooked-at for packets whose addresses match nothing.
//! - *Prefix tracking* (§5.4): for each address and port field and each prefix length in use, the sorted
//!   prefixes. A subtable of prefix length L whose field agrees with none of them is skipped at the cost
//!   of one bit more than the longest agreement (which the neighbours in sorted order show). Open vSwitch
//!   searches one trie a field, whose answer is the same for all lengths; a search per length looks at fewer bits.
//!
//! Of the two, the one that adds fewer bits counts, except that metadata decides first.
//!
//! Cost: a lookup hashes and probes once per subtable tried; insert and remove are O(1) plus O(log n) for
//! each tracked prefix.

mod masked;
mod prefixes;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::rank::{Rank, Ranked};
use super::{Hit, InsertError, ReplicatedEngine, RuleEngine};
use crate::packet::fields::word;
use crate::packet::key::{FlowKey, FlowMask};
use crate::rule::matching::add_range_bits;
use crate::rule::{Match, PortRange, Priority, RuleId};
use masked::{MaskedTable, STAGES};
use prefixes::{PrefixTracker, TRACKED};

/// No further entry in a chain.
const END: u32 = u32::MAX;

/// Rules grouped by mask.
#[derive(Clone, Debug)]
pub struct TupleSearch {
    /// Subtables by their best rule, best first.
    subtables: Vec<Subtable>,
    /// The digests of their masks, in the same order: thousands are searched for one mask with each change.
    digests: Vec<u64>,
    rules: HashMap<RuleId, (Rank, Match)>,
    prefixes: PrefixTracker,
    sequence: u64,
    rules_max: usize,
    seed: u32,
}

/// Hashes a number that is a hash with a secret seed already: spreads it over the bits that a map uses.
#[derive(Default)]
struct OfHash(u64);

impl Hasher for OfHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((self.0 >> 32) as u32 ^ u32::from(*byte)));
    }

    fn write_u32(&mut self, hash: u32) {
        // The golden ratio (Knuth, volume 3, 6.4).
        self.0 = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The rules of one mask.
#[derive(Clone, Debug)]
struct Subtable {
    mask: FlowMask,
    /// Masked key → first link of its chain.
    table: MaskedTable,
    /// The rules that share a masked key, best first.
    links: Vec<Link>,
    free_links: Vec<u32>,
    /// An upper bound on the ranks in this subtable. After removals it may exceed the best one.
    bound: Rank,
    removed_since_bound: usize,
    /// For each stage but the last: the number of keys by their hash there.
    stages: [HashMap<u32, u32, BuildHasherDefault<OfHash>>; STAGES - 1],
    /// Prefix length of each tracked field, where the mask is a prefix there and not empty.
    lengths: [Option<u8>; TRACKED],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    rule: Ranked,
    next: u32,
    tp_src: Option<PortRange>,
    tp_dst: Option<PortRange>,
}

impl Link {
    #[inline]
    fn ranges_match(&self, key: &FlowKey) -> bool {
        let ports = key.word(word::PORTS);
        self.tp_src.is_none_or(|r| r.contains((ports >> 16) as u16))
            && self.tp_dst.is_none_or(|r| r.contains(ports as u16))
    }
}

impl TupleSearch {
    /// Creates an empty table for at most `rules_max` rules. `seed` keys the hashes: keep it secret where the
    /// traffic may be hostile.
    pub fn new(rules_max: usize, seed: u32) -> Self {
        Self {
            subtables: Vec::new(),
            digests: Vec::new(),
            rules: HashMap::new(),
            prefixes: PrefixTracker::default(),
            sequence: 0,
            rules_max,
            seed,
        }
    }

    /// Returns the number of distinct masks.
    pub fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// Finds all rules that match `key`, in no order; with `above`, those of a higher priority. With `looked_at`, the bits that the
    /// answer depends on are added to it.
    pub fn matching(
        &self,
        key: &FlowKey,
        above: Option<Priority>,
        mut looked_at: Option<&mut FlowMask>,
        found: &mut impl FnMut(Hit),
    ) {
        let is_above = |rank: Rank| above.is_none_or(|above| rank.priority > above);
        for subtable in self.subtables.iter().take_while(|subtable| is_above(subtable.bound)) {
            let entry = match looked_at.as_deref_mut() {
                Some(looked_at) => subtable.find_wildcards(key, &self.prefixes, looked_at),
                None => subtable.table.find(key, subtable.table.hash(key)),
            };
            let Some(entry) = entry else { continue };
            for link in subtable.chain(entry).take_while(|link| is_above(link.rule.rank)) {
                let matches = match looked_at.as_deref_mut() {
                    Some(looked_at) => add_range_bits(link.tp_src, link.tp_dst, key, looked_at),
                    None => link.ranges_match(key),
                };
                if matches {
                    found(link.rule.hit());
                }
            }
        }
    }

    /// The subtable of a mask, whose digest this is.
    fn position(&self, mask: &FlowMask, digest: u64) -> Option<usize> {
        let mut places = self.digests.iter().zip(&self.subtables);
        places.position(|(other, subtable)| *other == digest && subtable.mask == *mask)
    }

    fn place(&mut self, rule: Ranked, matches: &Match) {
        let (key, mask) = (matches.key(), matches.word_mask());
        let digest = digest(matches);
        let at = self.position(&mask, digest).unwrap_or_else(|| {
            self.subtables.push(Subtable::new(mask, self.seed, rule.rank));
            self.digests.push(digest);
            self.subtables.len() - 1
        });
        let subtable = &mut self.subtables[at];
        let link = Link { rule, next: END, tp_src: matches.tp_src_range(), tp_dst: matches.tp_dst_range() };
        if subtable.insert(&key, link) {
            self.prefixes.add(&key, &subtable.lengths);
        }
        self.settle(at);
        self.rules.insert(rule.rule, (rule.rank, matches.clone()));
    }

    fn displace(&mut self, id: RuleId) -> Option<Rank> {
        let (rank, matches) = self.rules.remove(&id)?;
        let key = matches.key();
        let at = self.position(&matches.word_mask(), digest(&matches)).expect("placed with this mask");
        let subtable = &mut self.subtables[at];
        if subtable.remove(&key, rank) {
            self.prefixes.remove(&key, &subtable.lengths);
        }
        if subtable.table.is_empty() {
            self.subtables.remove(at);
            self.digests.remove(at);
        } else {
            self.settle(at);
        }
        Some(rank)
    }

    /// Moves the subtable whose bound may have changed to its place; all others are in order.
    fn settle(&mut self, at: usize) {
        let bound = self.subtables[at].bound;
        let before = self.subtables[..at].partition_point(|other| other.bound >= bound);
        let behind = self.subtables[at + 1..].partition_point(|other| other.bound > bound);
        if before < at {
            self.subtables[before..=at].rotate_right(1);
            self.digests[before..=at].rotate_right(1);
        } else if behind > 0 {
            self.subtables[at..=at + behind].rotate_left(1);
            self.digests[at..=at + behind].rotate_left(1);
        }
    }
}

/// A number that is equal for equal masks; others are compared.
fn digest(matches: &Match) -> u64 {
    let step = |digest: u64, word: u8, mask: u32| {
        (digest ^ (u64::from(mask) << 8 | u64::from(word)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    };
    matches.words().iter().fold(0, |digest, masked| step(digest, masked.word, masked.mask))
}

impl Subtable {
    fn new(mask: FlowMask, seed: u32, bound: Rank) -> Self {
        let table = MaskedTable::new(&mask, seed);
        let lengths = prefixes::lengths(&mask);
        Self {
            mask,
            table,
            links: Vec::new(),
            free_links: Vec::new(),
            bound,
            removed_since_bound: 0,
            stages: Default::default(),
            lengths,
        }
    }

    /// Adds a rule. Returns whether its masked key is new.
    fn insert(&mut self, key: &FlowKey, new: Link) -> bool {
        self.bound = self.bound.max(new.rule.rank);
        let link = self.free_links.pop().unwrap_or(self.links.len() as u32);
        match self.links.get_mut(link as usize) {
            Some(place) => *place = new,
            None => self.links.push(new),
        }
        let Some(entry) = self.table.find(key, self.table.hash(key)) else {
            self.table.insert(key, link);
            for (stage, hash) in self.table.stage_hashes(key) {
                *self.stages[stage].entry(hash).or_default() += 1;
            }
            return true;
        };
        let (mut before, mut after) = (END, self.table.value(entry));
        while after != END && self.links[after as usize].rule.rank > new.rule.rank {
            (before, after) = (after, self.links[after as usize].next);
        }
        self.links[link as usize].next = after;
        if before == END {
            *self.table.value_mut(entry) = link;
        } else {
            self.links[before as usize].next = link;
        }
        false
    }

    /// Removes a rule. Returns whether it was the last of its masked key.
    fn remove(&mut self, key: &FlowKey, rank: Rank) -> bool {
        let entry = self.table.find(key, self.table.hash(key)).expect("inserted under this key");
        let (mut before, mut link) = (END, self.table.value(entry));
        while self.links[link as usize].rule.rank != rank {
            (before, link) = (link, self.links[link as usize].next);
        }
        let next = self.links[link as usize].next;
        self.free_links.push(link);
        let last = before == END && next == END;
        if last {
            for (stage, hash) in self.table.stage_hashes(key) {
                let count = self.stages[stage].get_mut(&hash).expect("counted on insert");
                *count -= 1;
                if *count == 0 {
                    self.stages[stage].remove(&hash);
                }
            }
            self.table.remove(entry);
        } else if before == END {
            *self.table.value_mut(entry) = next;
        } else {
            self.links[before as usize].next = next;
        }
        self.lower_bound(rank);
        last
    }

    /// Makes the bound exact after as many removals as there are keys left, so that the cost is constant per
    /// removal. Until then it may be too good, which costs only time.
    fn lower_bound(&mut self, removed: Rank) {
        self.removed_since_bound += 1;
        if removed == self.bound || self.removed_since_bound >= self.table.len() {
            if self.removed_since_bound < self.table.len() / 2 {
                return;
            }
            self.removed_since_bound = 0;
            let best = self.table.entries().map(|e| self.links[self.table.value(e) as usize].rule.rank).max();
            self.bound = best.unwrap_or(self.bound);
        }
    }

    /// The rules that share a masked key, best first.
    #[inline]
    fn chain(&self, entry: u32) -> impl Iterator<Item = &Link> {
        let mut at = self.table.value(entry);
        std::iter::from_fn(move || {
            let link = self.links.get(at as usize)?; // END is out of bounds.
            at = link.next;
            Some(link)
        })
    }

    /// Finds the best rule for `key`.
    #[inline]
    fn lookup(&self, key: &FlowKey) -> Option<Ranked> {
        let entry = self.table.find(key, self.table.hash(key))?;
        self.chain(entry).find(|link| link.ranges_match(key)).map(|link| link.rule)
    }

    /// Finds the rules with `key`'s masked key, and adds the bits that the answer depends on.
    fn find_wildcards(
        &self,
        key: &FlowKey,
        prefixes: &PrefixTracker,
        looked_at: &mut FlowMask,
    ) -> Option<u32> {
        let found = self.table.find(key, self.table.hash(key));
        match found {
            Some(_) => self.table.add_mask(looked_at),
            None => self.add_difference(key, prefixes, looked_at),
        }
        found
    }

    /// Adds the bits that show that no rule has `key`'s masked key: those of the first stage that rules it out, or of a
    /// prefix where these are fewer new ones. Addresses and ports count, of which packets have many values; metadata is
    /// taken as it is.
    fn add_difference(&self, key: &FlowKey, prefixes: &PrefixTracker, looked_at: &mut FlowMask) {
        let mut stages = self.table.stage_hashes(key);
        let stage = stages.find(|(stage, hash)| !self.stages[*stage].contains_key(hash));
        let stage = stage.map_or(STAGES - 1, |(stage, _)| stage);
        let new = if stage == 0 { 0 } else { self.table.new_bits_to_stage(stage, looked_at) };
        match prefixes.difference(key, &self.lengths, looked_at, new) {
            Some((field, bits)) => looked_at.set_masked(field, bits, bits),
            None => self.table.add_mask_to_stage(stage, looked_at),
        }
    }

    /// Finds the best rule for `key`, and adds the bits that the answer depends on.
    fn lookup_wildcards(
        &self,
        key: &FlowKey,
        prefixes: &PrefixTracker,
        looked_at: &mut FlowMask,
    ) -> Option<Ranked> {
        let entry = self.find_wildcards(key, prefixes, looked_at)?;
        self.chain(entry)
            .find(|link| add_range_bits(link.tp_src, link.tp_dst, key, looked_at))
            .map(|link| link.rule)
    }

    fn table_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.table_bytes()
            + self.links.capacity() * size_of::<Link>()
            + self.free_links.capacity() * 4
            + self.stages.iter().map(|s| s.capacity() * 9).sum::<usize>()
    }
}

impl ReplicatedEngine for TupleSearch {
    fn clone_box(&self) -> Box<dyn ReplicatedEngine> {
        Box::new(self.clone())
    }
}

impl RuleEngine for TupleSearch {
    fn name(&self) -> &'static str {
        "tuple"
    }

    fn insert(&mut self, id: RuleId, priority: Priority, matches: &Match) -> Result<(), InsertError> {
        if self.rules.contains_key(&id) {
            return Err(InsertError::Duplicate(id));
        }
        if self.rules.len() >= self.rules_max {
            return Err(InsertError::Full { rules_max: self.rules_max });
        }
        let rank = Rank { priority, sequence: Reverse(self.sequence) };
        self.sequence += 1;
        self.place(Ranked { rank, rule: id }, matches);
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> bool {
        self.displace(id).is_some()
    }

    fn replace(&mut self, id: RuleId, priority: Priority, matches: &Match) -> bool {
        let Some(rank) = self.displace(id) else { return false };
        self.place(Ranked { rank: Rank { priority, ..rank }, rule: id }, matches);
        true
    }

    fn lookup(&self, key: &FlowKey) -> Option<Hit> {
        let mut best: Option<Ranked> = None;
        for subtable in &self.subtables {
            if best.is_some_and(|b| b.rank > subtable.bound) {
                break;
            }
            // `max` of the two would copy through memory, by loads that wait for narrower stores; most tables have no rule.
            if let Some(found) = subtable.lookup(key)
                && best.is_none_or(|best| best < found)
            {
                best = Some(found);
            }
        }
        best.map(Ranked::hit)
    }

    fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        let mut best: Option<Ranked> = None;
        for subtable in &self.subtables {
            if best.is_some_and(|b| b.rank > subtable.bound) {
                break;
            }
            if let Some(found) = subtable.lookup_wildcards(key, &self.prefixes, looked_at)
                && best.is_none_or(|best| best < found)
            {
                best = Some(found);
            }
        }
        best.map(Ranked::hit)
    }

    fn rules_max(&self) -> Option<usize> {
        Some(self.rules_max)
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn table_bytes(&self) -> usize {
        self.subtables.iter().map(Subtable::table_bytes).sum::<usize>()
            + self.digests.capacity() * size_of::<u64>()
            + self.rules.capacity() * (size_of::<(RuleId, (Rank, Match))>() + 1)
            + self.rules.values().map(|(_, m)| size_of_val(m.words())).sum::<usize>()
            + self.prefixes.table_bytes()
    }
}
