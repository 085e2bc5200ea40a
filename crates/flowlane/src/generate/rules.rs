//! Rule sets with the structure of real ones.
//!
//! # Profiles
//! The 5-tuple profiles are calibrated on the published ClassBench sets `acl1`, `fw1` and `ipc1` of ten
//! thousand filters each (Taylor and Turner 2007; grown there from access lists, firewalls and IP chains of
//! providers and vendors). What was measured on them:
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
//! # Masks and overlap
//! `masks` asks for exactly so many distinct masks ([`Match::mask`](crate::rule::Match::mask); a port range
//! counts in full, so engines that split ranges into prefixes see more). `overlap` is the probability with
//! which a rule is placed inside an earlier one that looks at fewer bits (or around one that looks at more);
//! the others are drawn on their own and may still overlap by chance, which wide prefixes do. Rules that
//! match less stand first. No two rules have the same match.

use super::assemble::{Assembly, ShapeKey, shape_key};
use super::five_tuple::FiveTuple;
use super::openflow::OpenFlow;
use super::random::Random;
use crate::names::{self, Named, UnknownName};
use crate::rule::action::PortNo;
use crate::rule::{Action, Match, Rule};
use std::collections::HashSet;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// What kind of rule set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Profile>)]
#[non_exhaustive]
pub enum Profile {
    /// An access list: long prefixes on both sides, exact destination ports, TCP mostly.
    Acl,
    /// A firewall: one side wild in most rules, source ports and ranges too.
    Fw,
    /// IP chains: a mixture.
    Ipc,
    /// The twelve fields of OpenFlow 1.0.
    OpenFlow,
}

impl Named for Profile {
    const KIND: &'static str = "profile";
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 4] = names::all();

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The share of rules that is nested on purpose where the caller does not say.
    fn overlap(self) -> f64 {
        match self {
            Profile::Acl => 0.2,
            Profile::Fw => 0.3,
            Profile::Ipc => 0.25,
            Profile::OpenFlow => 0.1,
        }
    }

    /// The share of rules that drop.
    fn drops(self) -> f64 {
        match self {
            Profile::Acl | Profile::Ipc => 0.0,
            Profile::Fw => 0.5,
            Profile::OpenFlow => 0.2,
        }
    }
}

/// What rule set to generate.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleConfig {
    /// Its kind.
    pub profile: Profile,
    /// Number of rules.
    pub rules: usize,
    /// Number of distinct masks; `None`: as many as come of the profile (for `openflow` 24, or one per
    /// rule where there are fewer rules).
    pub masks: Option<usize>,
    /// The share of rules (0 to 1) placed inside or around others; `None`: the profile's (acl 0.2, fw 0.3,
    /// ipc 0.25, openflow 0.1).
    pub overlap: Option<f64>,
    /// Another seed, another rule set.
    pub seed: u64,
}

impl RuleConfig {
    /// The profile's own masks and overlap, and seed 1.
    pub fn new(profile: Profile, rules: usize) -> Self {
        Self { profile, rules, masks: None, overlap: None, seed: 1 }
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
    /// So many masks do not exist for so few rules, or at all.
    #[error(
        "{wanted} distinct masks were asked for, but only {possible} are possible; ask for fewer masks, or for more rules"
    )]
    Masks {
        /// Asked for.
        wanted: usize,
        /// Possible.
        possible: usize,
    },
    /// The distributions do not give so many distinct rules.
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
    /// What determines a match's mask.
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
/// one's is 1. Time and space linear in the rules, with 100 to 300 bytes each.
///
/// # Errors
/// Where a parameter is out of range, or so many different masks or rules cannot be drawn.
pub fn generate_rules(config: &RuleConfig) -> Result<Vec<Rule>, RuleSetError> {
    RuleSetError::check("overlap", config.overlap.unwrap_or(0.0), 0.0, 1.0)?;
    RuleSetError::check("rules", config.rules as f64, 0.0, RULES_MAX as f64)?;
    let matches = match config.profile {
        Profile::Acl | Profile::Fw | Profile::Ipc => {
            draw_set(config, config.masks, &mut FiveTuple::new(config.profile, config.seed))?
        }
        Profile::OpenFlow => {
            let masks = config.masks.unwrap_or(config.rules.min(24));
            draw_set(config, Some(masks), &mut OpenFlow::new(config.seed))?
        }
    };
    let mut random = Random::for_purpose(config.seed, "actions");
    Ok(matches.finish(|| actions(config.profile, &mut random)))
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
