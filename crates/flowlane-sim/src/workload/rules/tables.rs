//! The tables: one for each mask, with chains of rules that share a masked key.

use std::collections::HashMap;

use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::rule::{Match, PortRange};

use super::exact::{Exact, MaskWord, WORDS_MAX, exact};
use super::{MASKS_MAX, WorkloadError};
use crate::machine::Machine;
use crate::machine::op::{Class, Kind, Mismatch, Op};
use crate::machine::space::{Region, Space};
use crate::workload::{BATCH, Lookup, Recorder, TablePlace};

/// The end of a chain; no rule.
const END: u32 = u32::MAX;
/// The flag of a value that is a chain's first link instead of a rule.
const CHAIN: u32 = 1 << 31;
/// Bytes of a link: rule, next, two ranges.
const LINK_BYTES: u64 = 16;
/// Instructions that compare a link's ranges and keep the better of two rules.
const COMPARE: u32 = 8;
const BETTER: u32 = 2;
/// The address of the branch on the comparison of ranges.
const RANGES: u32 = 102;

/// A rule that shares its masked key with others, or has ranges.
#[derive(Clone, Copy, Debug)]
struct Link {
    rule: u32,
    next: u32,
    ranges: [Option<PortRange>; 2],
}

impl Link {
    fn matches(&self, key: &FlowKey) -> bool {
        let ports = key.word(word::PORTS);
        let [src, dst] = self.ranges;
        src.is_none_or(|r| r.contains((ports >> 16) as u16)) && dst.is_none_or(|r| r.contains(ports as u16))
    }
}

/// The rules of one mask.
struct MaskTable {
    mask: Vec<MaskWord>,
    exact: Box<dyn Exact>,
    links: Vec<Link>,
    /// The best rule.
    bound: u32,
    rules: usize,
}

impl MaskTable {
    /// Returns the rule that a value leads to, and reports the links on the way.
    fn resolve(&self, value: u32, key: &FlowKey, mut seen: impl FnMut(u32, bool)) -> Option<u32> {
        if value & CHAIN == 0 {
            return Some(value);
        }
        let mut at = value & !CHAIN;
        loop {
            let link = self.links[at as usize];
            let found = link.matches(key);
            seen(at, found);
            match (found, link.next) {
                (true, _) => return Some(link.rule),
                (false, END) => return None,
                (false, next) => at = next,
            }
        }
    }
}

/// The lookup of one table, and the operations of the core that follow.
#[derive(Clone, Debug)]
pub struct Found {
    pub lookup: Lookup,
    /// The walk along the chain, and the comparison with the best rule so far.
    pub after: Vec<Op>,
    pub rule: Option<u32>,
}

/// The lookups of a packet.
#[derive(Clone, Debug)]
pub struct Search {
    /// The lookups in the order of the search; at least those that decide.
    pub tables: Vec<Found>,
    /// The number of tables that an ordered search visits until no better rule can follow.
    pub asked: usize,
    /// The best rule.
    pub rule: Option<u32>,
}

/// Tables by mask, those with better rules first.
pub struct RuleTables {
    tables: Vec<MaskTable>,
    words: Vec<u8>,
    /// The regions of each table.
    pub places: Vec<TablePlace>,
    /// Address space for other data of a program.
    pub space: Space,
}

impl RuleTables {
    /// Builds tables of rules, best first, in an address space of their own.
    ///
    /// # Errors
    /// Returns an error if a mask has too many words, or if there are too many masks.
    pub fn new(rules: &[Match], seed: u64) -> Result<Self, WorkloadError> {
        Self::in_space(rules, seed, &mut Space::default())
    }

    /// Builds tables of rules, best first, in an address space that others use, too.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn in_space(rules: &[Match], seed: u64, space: &mut Space) -> Result<Self, WorkloadError> {
        let by_mask = by_mask(rules)?;
        let mut tables: Vec<MaskTable> = by_mask
            .into_iter()
            .enumerate()
            .map(|(n, (mask, members))| table(rules, mask, &members, (seed as u32).wrapping_add(n as u32)))
            .collect();
        tables.sort_by_key(|table| table.bound);
        let places = tables
            .iter()
            .map(|table| {
                let place = table.exact.place(space);
                let links = space.region((table.links.len() as u64 * LINK_BYTES).max(64));
                TablePlace { links, ..place }
            })
            .collect();
        Ok(Self { words: words_of(rules), tables, places, space: space.clone() })
    }

    /// Returns the number of tables.
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Returns whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the number of rules of each table.
    pub fn sizes(&self) -> Vec<usize> {
        self.tables.iter().map(|table| table.rules).collect()
    }

    /// Returns the words on which rules match.
    pub fn words(&self) -> &[u8] {
        &self.words
    }

    /// Returns the size of the tables and chains.
    pub fn bytes(&self) -> usize {
        let of = |table: &MaskTable| table.exact.bytes() + table.links.len() * LINK_BYTES as usize;
        self.tables.iter().map(of).sum()
    }

    /// Looks up the best rule of a packet, table by table.
    pub fn lookup(&self, key: &FlowKey) -> Option<u32> {
        let mut best = END;
        for table in self.tables.iter() {
            if best < table.bound {
                break;
            }
            if let Some(value) = table.exact.find(&table.mask, key) {
                best = best.min(table.resolve(value, key, |_, _| {}).unwrap_or(END));
            }
        }
        (best != END).then_some(best)
    }

    /// Looks up the best rules of packets in batches of the simulated size, each table for the whole batch.
    ///
    /// # Panics
    /// Panics if the slices differ in length.
    pub fn lookup_batch(&self, keys: &[FlowKey], rules: &mut [Option<u32>]) {
        assert_eq!(keys.len(), rules.len());
        for (keys, rules) in keys.chunks(BATCH).zip(rules.chunks_mut(BATCH)) {
            let mut best = [END; BATCH];
            let mut lanes = [0u8; BATCH];
            let mut asked = [&keys[0]; BATCH];
            for table in &self.tables {
                let mut count = 0;
                for (lane, key) in keys.iter().enumerate().filter(|(lane, _)| best[*lane] > table.bound) {
                    (lanes[count], asked[count]) = (lane as u8, key);
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                let mut values = [0; BATCH];
                let mut hits = table.exact.find_batch(&table.mask, &asked[..count], &mut values);
                while hits != 0 {
                    let at = hits.trailing_zeros() as usize;
                    hits &= hits - 1;
                    let best = &mut best[usize::from(lanes[at])];
                    *best = (*best).min(table.resolve(values[at], asked[at], |_, _| {}).unwrap_or(END));
                }
            }
            for (rule, best) in rules.iter_mut().zip(best) {
                *rule = (best != END).then_some(best);
            }
        }
    }

    /// Records the lookups of a packet in all tables, or in those that an ordered search visits. The packet's number
    /// selects the region of its header.
    ///
    /// # Errors
    /// Returns an error if the recorded walk and the library's batch lookup differ, or if the rule differs from
    /// `expected`.
    pub fn search(
        &self,
        key: &FlowKey,
        (number, at): (u64, Region),
        expected: Option<u32>,
        all: bool,
    ) -> Result<Search, Mismatch> {
        let (mut tables, mut asked, mut best) = (Vec::new(), 0, END);
        for (n, table) in self.tables.iter().enumerate() {
            let decided = best < table.bound;
            if decided && !all {
                break;
            }
            asked += usize::from(!decided);
            let found = self.record(n, key, number, at)?;
            best = best.min(found.rule.unwrap_or(END));
            tables.push(found);
        }
        let rule = (best != END).then_some(best);
        if rule != expected {
            let table = "the rules' tables".to_owned();
            return Err(Mismatch { lookup: number, table, simulated: rule, library: expected });
        }
        Ok(Search { tables, asked, rule })
    }

    fn record(&self, n: usize, key: &FlowKey, number: u64, at: Region) -> Result<Found, Mismatch> {
        let table = &self.tables[n];
        let words: Vec<u32> = table.mask.iter().map(|(w, bits)| key.word(usize::from(*w)) & bits).collect();
        let mut recorder = Recorder::new(&self.places[n], at);
        let (hash, simulated, library) = table.exact.recorded(&words, &mut recorder);
        if simulated != library {
            let table = format!("the table of mask {n}");
            return Err(Mismatch { lookup: number, table, simulated, library });
        }
        let mut lookup = recorder.lookup(hash, simulated, library);
        // A core masks the key's words before it hashes them; accelerators have mask units.
        let masking = Op::work(2 * words.len() as u32, Class::Compute);
        lookup.ops.insert(0, masking);
        let mut after = Vec::new();
        let links = self.places[n].links;
        let rule = simulated.and_then(|value| {
            table.resolve(value, key, |link, matches| {
                let line = links.line(u64::from(link) * LINK_BYTES);
                after.push(Op { waits: true, gives: true, ..Op::new(Kind::Load(line), Class::Data) });
                after.push(Op::work(COMPARE, Class::Compute).chained(0));
                let branch = Kind::Branch { id: RANGES, taken: matches };
                after.push(Op { waits: true, ..Op::new(branch, Class::Compute) });
            })
        });
        if simulated.is_some() {
            after.push(Op { waits: true, ..Op::work(BETTER, Class::Compute) });
        }
        Ok(Found { lookup, after, rule })
    }

    /// Inserts the tables into the shared cache, as after they were filled.
    pub fn warm(&self, machine: &mut Machine) {
        let lines = |place: &TablePlace| {
            let parts = [place.buckets, place.entries, place.links, place.header];
            parts.into_iter().flat_map(|part| part.lines())
        };
        let all: u64 = self.places.iter().map(|place| lines(place).count() as u64).sum();
        let gone = all.saturating_sub(4 * machine.llc_lines());
        machine.fill_llc(self.places.iter().flat_map(lines).skip(gone as usize));
    }
}

/// A mask, and the positions of its rules.
type Group = (Vec<MaskWord>, Vec<u32>);

/// Groups positions of rules by mask, in the order of first occurrence.
fn by_mask(rules: &[Match]) -> Result<Vec<Group>, WorkloadError> {
    let mut out: Vec<Group> = Vec::new();
    let mut known: HashMap<Vec<MaskWord>, usize> = HashMap::new();
    for (n, rule) in rules.iter().enumerate() {
        let mask: Vec<MaskWord> = rule.words().iter().map(|w| (w.word, w.mask)).collect();
        if mask.len() > WORDS_MAX {
            return Err(WorkloadError::Wide { rule: n, words: mask.len() });
        }
        let at = *known.entry(mask).or_insert_with_key(|mask| {
            out.push((mask.clone(), Vec::new()));
            out.len() - 1
        });
        out[at].1.push(n as u32);
    }
    if out.len() > MASKS_MAX {
        return Err(WorkloadError::Masks { masks: out.len() });
    }
    Ok(out)
}

/// Returns the words on which rules match.
fn words_of(rules: &[Match]) -> Vec<u8> {
    let mut words: Vec<u8> = rules.iter().flat_map(|rule| rule.words().iter().map(|w| w.word)).collect();
    let ranges = rules.iter().any(|rule| rule.tp_src_range().is_some() || rule.tp_dst_range().is_some());
    words.extend(ranges.then_some(word::PORTS as u8));
    words.sort_unstable();
    words.dedup();
    words
}

fn table(rules: &[Match], mask: Vec<MaskWord>, members: &[u32], seed: u32) -> MaskTable {
    let mut chains: HashMap<Vec<u32>, Vec<u32>> = HashMap::new();
    let mut order = Vec::new();
    for n in members {
        let words: Vec<u32> = rules[*n as usize].words().iter().map(|w| w.value).collect();
        let chain = chains.entry(words).or_insert_with_key(|words| {
            order.push(words.clone());
            Vec::new()
        });
        chain.push(*n);
    }
    let mut exact = exact(mask.len(), order.len(), seed);
    let mut links: Vec<Link> = Vec::new();
    let ranges = |n: u32| [rules[n as usize].tp_src_range(), rules[n as usize].tp_dst_range()];
    for words in &order {
        let mut chain = chains[words].clone();
        // Rules after one without ranges never win.
        if let Some(last) = chain.iter().position(|n| ranges(*n) == [None; 2]) {
            chain.truncate(last + 1);
        }
        let value = match chain[..] {
            [only] if ranges(only) == [None; 2] => only,
            _ => {
                let first = links.len() as u32;
                let count = chain.len() as u32;
                links.extend(chain.iter().zip(1..).map(|(n, next)| Link {
                    rule: *n,
                    next: if next == count { END } else { first + next },
                    ranges: ranges(*n),
                }));
                first | CHAIN
            }
        };
        exact.insert(words, value);
    }
    MaskTable { mask, exact, links, bound: members[0], rules: members.len() }
}
