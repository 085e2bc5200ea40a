//! Header traces: flow keys that hit a given rule set.
//!
//! A header is drawn in two steps: a rule, then a random key within its match ([`draw_key`]). The rule is the
//! one that the key was *drawn from*; where rules overlap, another of higher priority may win.
//!
//! * Without [`TraceConfig::flows`] every packet is a header of its own, and the locality is that of the
//!   *rules* (Zipf: some rules are hit more often; which ones is drawn) or of the bursts (Pareto: each header
//!   comes several times in a row, as in ClassBench's trace generator).
//! * With it, that number of distinct headers is drawn from rules picked uniformly, and the packets pick among
//!   these *flows* by the locality.
//!
//! The share [`TraceConfig::miss`] of the headers matches no rule, which is checked: half of them resemble
//! packets that hit, the others are any IP packet; where the rules leave nothing of IP open, they have the
//! EtherType for local experiments (0x88b5).
//!
//! Memory: 328 bytes a header and 4 a packet.

use super::header::{draw_key, ipv4_address};
use super::locality::{Locality, Sampler, burst_length};
use super::random::Random;
use crate::packet::Field;
use crate::packet::fields::word;
use crate::packet::key::FlowKey;
use crate::packet::parse::ether_type;
use crate::rule::{Match, Rule, RuleId};
use std::collections::{HashMap, HashSet};

/// The description of a trace to generate.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceConfig {
    /// Number of packets.
    pub packets: usize,
    /// Number of distinct headers; `None`: a new one for every packet or burst.
    pub flows: Option<usize>,
    /// The share of headers (0 to 1) that match no rule.
    pub miss: f64,
    /// Whether headers that match no rule are for IPv4 all of them, as a ClassBench trace needs; else they may
    /// be anything.
    pub miss_ipv4: bool,
    /// How often the same comes again.
    pub locality: Locality,
    /// Another seed, another trace.
    pub seed: u64,
}

impl TraceConfig {
    /// A uniform trace without misses, a new header for every packet, seed 1.
    pub fn new(packets: usize) -> Self {
        Self { packets, flows: None, miss: 0.0, miss_ipv4: false, locality: Locality::Uniform, seed: 1 }
    }
}

/// Why there is no such trace.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The share of misses is out of range.
    #[error("the share of misses is {0}; it must lie between 0 and 1")]
    Miss(f64),
    /// More than the index of a header can say.
    #[error("{0} headers and packets were asked for; at most {max} are possible", max = u32::MAX)]
    Size(usize),
    /// Headers are to hit rules, but there are none.
    #[error("there are no rules to hit; give some, or let every header miss (a share of 1)")]
    NoRules,
    /// Headers are to miss, but the rules match everything.
    #[error(
        "no header misses all of the {rules} rules; take out those that match everything, or let no header miss"
    )]
    NoMiss {
        /// Number of rules.
        rules: usize,
    },
    /// The rules do not match enough different headers.
    #[error("{wanted} distinct headers were asked for, but only {made} were found; ask for fewer flows")]
    Flows {
        /// Asked for.
        wanted: usize,
        /// Found.
        made: usize,
    },
}

/// A header of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceFlow {
    /// The packet's fields.
    pub key: FlowKey,
    /// The rule that it was drawn from, by its position; none where it matches no rule on purpose.
    pub rule: Option<RuleId>,
}

/// A sequence of packets, each one of the trace's headers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    flows: Vec<TraceFlow>,
    order: Vec<u32>,
}

impl Trace {
    /// Generates a trace for `rules`.
    ///
    /// # Errors
    /// If the rules cannot yield such a trace.
    pub fn generate(rules: &[Rule], config: &TraceConfig) -> Result<Trace, TraceError> {
        if !(0.0..=1.0).contains(&config.miss) {
            return Err(TraceError::Miss(config.miss));
        }
        let largest = config.packets.max(config.flows.unwrap_or(0));
        if largest >= u32::MAX as usize {
            return Err(TraceError::Size(largest));
        }
        if rules.is_empty() && config.miss < 1.0 && largest > 0 {
            return Err(TraceError::NoRules);
        }
        let mut headers = Headers::new(rules, config);
        match config.flows {
            Some(flows) => headers.shared(flows, config),
            None => headers.fresh(config),
        }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The headers.
    pub fn flows(&self) -> &[TraceFlow] {
        &self.flows
    }

    /// For each packet, the index of its header.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// For each packet, its header.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = &TraceFlow> {
        self.order.iter().map(|&i| &self.flows[i as usize])
    }

    /// For each packet, its key.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &FlowKey> {
        self.packets().map(|f| &f.key)
    }
}

/// Draws headers.
struct Headers<'a> {
    rules: &'a [Rule],
    miss: f64,
    filter: Option<MissFilter>,
    /// Which rule has which rank of popularity.
    ranks: Vec<u32>,
    choice: Sampler,
    random: Random,
}

impl<'a> Headers<'a> {
    fn new(rules: &'a [Rule], config: &TraceConfig) -> Self {
        let mut random = Random::for_purpose(config.seed, "trace");
        let mut ranks: Vec<u32> = (0..rules.len() as u32).collect();
        random.shuffle(&mut ranks);
        // Bursts and flows have their locality elsewhere: then rules are picked uniformly.
        let of_rules = match (config.locality, config.flows) {
            (Locality::Zipf(s), None) => Locality::Zipf(s),
            _ => Locality::Uniform,
        };
        Self {
            rules,
            miss: config.miss,
            filter: (config.miss > 0.0).then(|| MissFilter::new(rules, config.miss_ipv4)),
            choice: Sampler::new(of_rules, ranks.len() as u32),
            ranks,
            random,
        }
    }

    fn draw(&mut self) -> Result<TraceFlow, TraceError> {
        let misses = self.random.chance(self.miss);
        if let Some(filter) = self.filter.as_ref().filter(|_| misses) {
            let key = filter.draw(self.rules, &mut self.random);
            let key = key.ok_or(TraceError::NoMiss { rules: self.rules.len() })?;
            return Ok(TraceFlow { key, rule: None });
        }
        let rule = self.ranks[self.choice.draw(&mut self.random) as usize];
        let key = draw_key(&self.rules[rule as usize].matches, &mut self.random);
        Ok(TraceFlow { key, rule: Some(RuleId(rule)) })
    }

    /// A new header for every packet or burst.
    fn fresh(&mut self, config: &TraceConfig) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        while trace.len() < config.packets {
            let copies = match config.locality {
                Locality::Pareto { a, b } => burst_length(&mut self.random, a, b) as usize,
                _ => 1,
            };
            let header = trace.flows.len() as u32;
            trace.flows.push(self.draw()?);
            let len = config.packets.min(trace.len() + copies);
            trace.order.resize(len, header);
        }
        Ok(trace)
    }

    /// `flows` distinct headers, and packets that pick among them.
    fn shared(&mut self, flows: usize, config: &TraceConfig) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        let mut seen = HashSet::new();
        let mut failures = 0;
        while trace.flows.len() < flows {
            let flow = self.draw()?;
            // Two keys of one fingerprint count as the same, which costs a draw and nothing else.
            if seen.insert(fingerprint(*flow.key.words())) {
                trace.flows.push(flow);
                failures = 0;
            } else {
                failures += 1;
                if failures > 10_000 {
                    return Err(TraceError::Flows { wanted: flows, made: trace.flows.len() });
                }
            }
        }
        if flows > 0 {
            let mut sampler = Sampler::new(config.locality, flows as u32);
            trace.order = (0..config.packets).map(|_| sampler.draw(&mut self.random)).collect();
        }
        Ok(trace)
    }
}

fn fingerprint(words: impl IntoIterator<Item = u32>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, w| {
        (hash ^ u64::from(w)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// Says of a key that certainly no rule matches it: port ranges are taken for any port, and two values of
/// one fingerprint for the same.
struct MissFilter {
    /// The words that rules of one mask look at, and fingerprints of what they want there.
    tables: Vec<(Mask, HashSet<u64>)>,
    /// The source of headers that do not resemble a rule's: any, or IPv4.
    base: Match,
    ipv4_only: bool,
}

type Mask = Vec<(u8, u32)>;

/// Attempts at an IP packet, and then at one of another EtherType. Where IP packets hit, they mostly do.
const IP_ATTEMPTS: u32 = 12;
const OTHER_ATTEMPTS: u32 = 12;

impl MissFilter {
    fn new(rules: &[Rule], ipv4_only: bool) -> Self {
        let mut base = Match::any();
        if ipv4_only {
            base.set(Field::EthType, ether_type::IPV4.into());
        }
        let mut by_mask: HashMap<Mask, usize> = HashMap::new();
        let mut tables: Vec<(Mask, HashSet<u64>)> = Vec::new();
        for rule in rules {
            let words = rule.matches.words();
            let mask: Mask = words.iter().map(|w| (w.word, w.mask)).collect();
            let table = *by_mask.entry(mask.clone()).or_insert(tables.len());
            if table == tables.len() {
                tables.push((mask, HashSet::new()));
            }
            tables[table].1.insert(fingerprint(words.iter().map(|w| w.value)));
        }
        Self { tables, base, ipv4_only }
    }

    fn misses(&self, key: &FlowKey) -> bool {
        self.tables.iter().all(|(mask, wanted)| {
            !wanted.contains(&fingerprint(mask.iter().map(|&(w, m)| key.word(w.into()) & m)))
        })
    }

    fn draw(&self, rules: &[Rule], random: &mut Random) -> Option<FlowKey> {
        let attempt = |i: u32| {
            let near = rules.get(random.index(rules.len())).filter(|_| i < IP_ATTEMPTS && random.chance(0.5));
            let mut key = draw_key(near.map_or(&self.base, |r| &r.matches), random);
            if near.is_some() && key.word(word::IPV4_DST) != 0 {
                key.set_word(word::IPV4_SRC, ipv4_address(random));
                key.set_word(word::IPV4_DST, ipv4_address(random));
            }
            if i >= IP_ATTEMPTS && !self.ipv4_only {
                let mut bare = FlowKey::zero();
                for field in [Field::EthDst, Field::EthSrc] {
                    bare.set(field, key.get(field));
                }
                bare.set(Field::EthType, 0x88b5);
                key = bare;
            }
            key
        };
        (0..IP_ATTEMPTS + OTHER_ATTEMPTS).map(attempt).find(|key| {
            let ipv4 = key.get(Field::EthType) == u128::from(ether_type::IPV4);
            (ipv4 || !self.ipv4_only) && self.misses(key)
        })
    }
}
