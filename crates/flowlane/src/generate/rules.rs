//! Rule sets with the structure of real ones.
//!
//! # Profiles
//! The 5-tuple profiles are calibrated on the published ClassBench sets `acl1`, `fw1` and `ipc1` of ten
//! thousand filters each (Taylor and Turner 2007; grown there from access lists, firewalls and IP chains of
//! providers and vendors). Measurements on them:
//!
//! | | acl1 | fw1 | ipc1 |
//! |---|---|---|---|
//! | protocol: TCP, UDP, any, other (%) | 87, 1, 8, 3 | 57, 33, 1, 8 | 28, 38, 33, 2 |
//! | ports WC-EM, WC-WC, EM-WC, other (%) | 60, 28, 0, 12 (WC-AR) | 58, 18, 11, 13 (HI-HI, EM-EM, …) | 36, 37, 17, 11 (WC-HI, WC-AR, …) |
//! | both prefixes longer than /8 (%) | 97 | 11 | 78 |
//! | only the destination (%) | 0.2 | 61 | 13 |
//! | only the source (%) | 2 | 26 | 9 |
//! | prefix-length pairs | 147 | 130 | 299 |
//! | commonest pair, source/destination | /32 /32 (29 %) | /0 /31 (19 %) | /32 /32 (7 %) |
//! | distinct sources and destinations per rule | 0.41, 0.07 | 0.36, 0.71 | 0.16, 0.30 |
//! | longest chain of nested sources, destinations | 4, 6 | 4, 4 | 4, 7 |
//! | exact destination ports: distinct; share of the first | 73; 18 % | 40; 16 % | 45; 19 % |
//!
//! (WC: any, HI: 1024 to 65535, LO: 0 to 1023, AR: another range, EM: one port. Lengths like /1, /2 and
//! /31 come from the smoothing with which those sets were grown, and are kept.) In all of them filters that
//! match less stand first, and the last one matches everything; the profiles keep the order and leave the
//! catch-all out, so that traces can miss.
//!
//! What the profiles do not keep: prefixes nest deeper (chains of 9 to 16), since nothing limits them, and the
//! first octets are used less evenly. Where that matters, grow the set from a
//! [parameter file](super::seed_file), which has both.
//!
//! `openflow` has the twelve fields of OpenFlow 1.0: which of them a rule looks at is drawn per mask, with
//! what the field needs (`dl_type=0x0800` for `nw_*`, a `nw_proto` with ports for `tp_*`, a tag for
//! `dl_vlan_pcp`).
//!
//! # A proving ground
//! The other profiles are unlike ClassBench: rules of other networks, and rules that one kind of engine finds hard.
//!
//! | profile | rules | hard for |
//! |---|---|---|
//! | `ranges` | 1 to 64 pairs of prefixes, 500 rules each and more, any ranges of both ports | hash tables by mask, which split a range into up to 30 prefixes; trees, whose cuts of ports copy rules |
//! | `groups` | 24 source blocks from /0 to /32, 24 destination blocks, many ports | trees that cut addresses only; caches by address |
//! | `blocklist` | hosts (4 % are /24), nothing else asked | caches, since hosts are many; engines with much memory a rule |
//! | `acl6` | IPv6 in allocations /32, sites /48, subnets /64, hosts; ports of `acl` | engines whose keys are 104 bits wide; tries, which are deep |
//! | `mixed` | three of five rules IPv4, the others IPv6 | engines with one layout for all rules |
//! | `masks` | lengths 0 to 32 of both prefixes, equally often; each port exact or any | tuple search, which asks up to 1,089 pairs of lengths and more masks |
//! | `nested` | few hosts, prefixes of all their lengths around them | tries and tuple search: a packet is in tens of prefixes of each side |
//! | `disjoint` | boxes of which no two hold a common packet | no engine: the best case, where priorities decide nothing |
//! | `overlap` | prefixes /0 to /3, ranges of a quarter of the ports and more | hashes and cuts, which tell hardly any two apart; linear search is the rival |
//! | `cuts` | half source /24 and any destination, half the other way round; ranges around powers of two | cutting trees: every cut of one dimension copies all rules of the other |
//! | `chains` | one pair of addresses, one protocol, any ranges | hash tables by mask: one bucket holds all rules |
//!
//! But for `acl6` and `mixed` they ask for nothing but `eth_type=0x0800` and the 5-tuple, addresses as prefixes, so
//! that ClassBench filters and engines of 5-tuples hold them whole. Where the rules match all of IPv4, as those of
//! `masks` and many of `nested` do, headers that miss have another EtherType, which a header trace cannot hold.
//!
//! # Masks and overlap
//! `masks` sets the exact number of distinct masks ([`Match::mask`](crate::rule::Match::mask); a port range
//! counts in full, so engines that split ranges into prefixes see more). `overlap` is the probability with
//! which a rule is placed inside an earlier one that looks at fewer bits (or around one that looks at more);
//! the others are drawn on their own and may still overlap by chance, which wide prefixes do. Both are for
//! `acl`, `fw`, `ipc` and `openflow`; what the other profiles have of them is what they are made of.
//!
//! Rules that match less stand first. No two rules have the same match, but for the share `duplicates`: these
//! repeat the match of an earlier rule somewhere behind it, and so are hidden, as some rules of real sets are.

use super::assemble::{Assembly, ShapeKey, prioritised, shape_key};
use super::families;
use super::five_tuple::FiveTuple;
use super::openflow::OpenFlow;
use super::random::Random;
use crate::rule::action::PortNo;
use crate::rule::{Action, Match, Rule};
use std::collections::HashSet;

pub use super::profile::Profile;

/// The description of a rule set to generate.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleConfig {
    /// Its kind.
    pub profile: Profile,
    /// Number of rules.
    pub rules: usize,
    /// Number of distinct masks; `None`: as many as come of the profile (for `openflow` 24, or one per
    /// rule where there are fewer rules). Only `acl`, `fw`, `ipc` and `openflow` have a choice.
    pub masks: Option<usize>,
    /// The share of rules (0 to 1) placed inside or around others; `None`: the profile's (acl 0.2, fw 0.3,
    /// ipc 0.25, openflow 0.1). Other profiles have no choice.
    pub overlap: Option<f64>,
    /// The share of rules (0 to 1) that repeat the match of an earlier, more important one, and so never win;
    /// at least one rule repeats nothing.
    pub duplicates: f64,
    /// Another seed, another rule set.
    pub seed: u64,
}

impl RuleConfig {
    /// The profile's own masks and overlap, no duplicates, and seed 1.
    pub fn new(profile: Profile, rules: usize) -> Self {
        Self { profile, rules, masks: None, overlap: None, duplicates: 0.0, seed: 1 }
    }
}

/// Why there is no such rule set.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleSetError {
    /// The parameter is out of range.
    #[error("{parameter} is {value}; it must lie between {low} and {high}")]
    Range {
        /// Which.
        parameter: &'static str,
        /// As given.
        value: f64,
        /// The smallest that is possible.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// The structure of the profile fixes the parameter.
    #[error("profile {profile} has no choice of {parameter}; leave it out, or take acl, fw, ipc or openflow")]
    NoChoice {
        /// Which.
        parameter: &'static str,
        /// Whose rules are what they are.
        profile: Profile,
    },
    /// More masks than are possible for this number of rules, or at all.
    #[error(
        "{wanted} distinct masks were asked for, but only {possible} are possible; ask for fewer masks, or for more rules"
    )]
    Masks {
        /// Asked for.
        wanted: usize,
        /// Possible.
        possible: usize,
    },
    /// The distributions do not yield enough distinct rules.
    #[error(
        "{wanted} rules were asked for, but only {made} that differ could be drawn; ask for fewer rules or more masks, or smooth the distributions"
    )]
    Rules {
        /// Asked for.
        wanted: usize,
        /// Drawn.
        made: usize,
    },
}

impl RuleSetError {
    pub(super) fn check(
        parameter: &'static str,
        value: f64,
        low: f64,
        high: f64,
    ) -> Result<(), RuleSetError> {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        Err(RuleSetError::Range { parameter, value, low, high })
    }
}

/// Draws matches: first the shape (which bits are looked at), then the values.
pub(super) trait Draw {
    /// The parts that determine a match's mask.
    type Shape: Clone;

    /// A random shape. The larger `strain`, the further it may stray from the profile: asked for where the
    /// profile's own shapes are exhausted.
    fn shape(&mut self, strain: u32) -> Self::Shape;

    /// A random match of that shape: always of the same mask.
    fn fill(&mut self, shape: &Self::Shape) -> Match;
}

/// The largest rule set: RuleId and Priority are 32 bits wide, and it must fit memory.
const RULES_MAX: usize = 1 << 26;

/// Generates a rule set, the most important rule first: its priority is the number of rules, the last
/// one's is 1. Time and space linear in the rules, with 100 to 400 bytes each.
///
/// # Errors
/// If a parameter is out of range, or not enough different masks or rules can be drawn.
pub fn generate_rules(config: &RuleConfig) -> Result<Vec<Rule>, RuleSetError> {
    RuleSetError::check("overlap", config.overlap.unwrap_or(0.0), 0.0, 1.0)?;
    RuleSetError::check("duplicates", config.duplicates, 0.0, 1.0)?;
    RuleSetError::check("rules", config.rules as f64, 0.0, RULES_MAX as f64)?;
    let repeated = (config.rules as f64 * config.duplicates).round() as usize;
    let distinct = (config.rules - repeated).max(config.rules.min(1));
    let mut matches = draw_matches(config, distinct)?;
    if distinct < config.rules {
        matches = repeat_some(matches, config);
    }
    let mut random = Random::for_purpose(config.seed, "actions");
    Ok(prioritised(matches, || actions(config.profile, &mut random)))
}

/// Draws different matches, in the order of the rules.
fn draw_matches(config: &RuleConfig, rules: usize) -> Result<Vec<Match>, RuleSetError> {
    let profile = config.profile;
    if let Some(mut family) = families::family(profile, rules, config.seed) {
        for (parameter, given) in [("masks", config.masks.is_some()), ("overlap", config.overlap.is_some())] {
            if given {
                return Err(RuleSetError::NoChoice { parameter, profile });
            }
        }
        return families::draw_set(family.as_mut(), rules, config.seed);
    }
    let config = &RuleConfig { rules, ..config.clone() };
    let assembly = if profile == Profile::OpenFlow {
        let masks = config.masks.unwrap_or(rules.min(24));
        draw_set(config, Some(masks), &mut OpenFlow::new(config.seed))?
    } else {
        draw_set(config, config.masks, &mut FiveTuple::new(profile, config.seed))?
    };
    Ok(assembly.in_order())
}

/// `matches`, and repetitions of some of them, each anywhere behind what it repeats.
fn repeat_some(matches: Vec<Match>, config: &RuleConfig) -> Vec<Match> {
    let mut random = Random::for_purpose(config.seed, "duplicates");
    let count = matches.len();
    let mut repeated: Vec<(usize, usize)> = (count..config.rules)
        .map(|_| {
            let original = random.index(count);
            (original + random.index(count - original), original)
        })
        .collect();
    repeated.sort_unstable();
    let mut out = Vec::with_capacity(config.rules);
    let mut repeated = repeated.into_iter().peekable();
    for at in 0..count {
        out.push(matches[at].clone());
        while let Some((_, original)) = repeated.next_if(|&(behind, _)| behind == at) {
            out.push(matches[original].clone());
        }
    }
    out
}

fn actions(profile: Profile, random: &mut Random) -> Vec<Action> {
    let ports = if profile == Profile::OpenFlow { 4 } else { 2 };
    let port = PortNo(1 + random.below(ports) as u32);
    if random.chance(profile.drops()) { Vec::new() } else { vec![Action::Output(port)] }
}

fn draw_set<D: Draw>(
    config: &RuleConfig,
    masks: Option<usize>,
    draw: &mut D,
) -> Result<Assembly, RuleSetError> {
    let mut random = Random::for_purpose(config.seed, "overlap");
    let overlap = config.overlap.unwrap_or_else(|| config.profile.overlap());
    let mut assembly = Assembly::default();
    let pool = match masks {
        Some(masks) => mask_pool(config.rules, masks, draw)?,
        None => MaskPool { shapes: Vec::new(), keys: HashSet::new() },
    };
    for shape in &pool.shapes {
        // The first of its mask, so it is new, nested or not.
        assembly.add(draw.fill(shape), overlap, &mut random);
    }
    let mut failures = 0;
    while assembly.len() < config.rules {
        let mut shape = draw.shape(failures / 64);
        let mut drawn = draw.fill(&shape);
        if masks.is_some() && !pool.keys.contains(&shape_key(&drawn)) {
            shape = pool.shapes[random.index(pool.shapes.len())].clone();
            drawn = draw.fill(&shape);
        }
        if assembly.add(drawn, overlap, &mut random) {
            failures = 0;
        } else {
            failures += 1;
            if failures > 20_000 {
                return Err(RuleSetError::Rules { wanted: config.rules, made: assembly.len() });
            }
        }
    }
    Ok(assembly)
}

/// The shapes that a rule set with a given number of masks uses.
struct MaskPool<S> {
    shapes: Vec<S>,
    keys: HashSet<ShapeKey>,
}

fn mask_pool<D: Draw>(rules: usize, masks: usize, draw: &mut D) -> Result<MaskPool<D::Shape>, RuleSetError> {
    if masks > rules || (masks == 0 && rules > 0) {
        return Err(RuleSetError::Masks { wanted: masks, possible: rules });
    }
    let mut pool = MaskPool { shapes: Vec::new(), keys: HashSet::new() };
    let mut failures = 0;
    while pool.shapes.len() < masks {
        let shape = draw.shape(failures / 64);
        let key = shape_key(&draw.fill(&shape));
        // The first shape must have room for many rules, since the others may have room for one only.
        let bits: u32 = key.iter().map(|&(_, mask)| mask.count_ones()).sum();
        if (pool.shapes.is_empty() && bits < 64 && failures < 1000) || !pool.keys.insert(key) {
            failures += 1;
            if failures > 20_000 {
                return Err(RuleSetError::Masks { wanted: masks, possible: pool.shapes.len() });
            }
            continue;
        }
        failures = 0;
        pool.shapes.push(shape);
    }
    Ok(pool)
}
