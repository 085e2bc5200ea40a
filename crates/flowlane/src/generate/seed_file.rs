//! Rule sets from a ClassBench parameter file.
//!
//! ClassBench (Taylor and Turner, *ClassBench: A Packet Classification Benchmark*, IEEE/ACM ToN 15(3),
//! 2007) describes a filter set by its distributions in a text file, and grows sets of any size from it.
//! The files are the user's; none is part of this crate.
//!
//! # Format
//! A section begins with its name on a line and ends at a line `#` or the next section. Numbers are separated
//! by white space, or by commas and colons as shown.
//!
//! | section | its lines |
//! |---|---|
//! | `-scale` | number of filters of the set that was measured |
//! | `-prots` | protocol (0: any), its probability, 25 probabilities of port pair classes |
//! | `-flags` | protocol, then `0xVALUE/0xMASK,probability`…: checked, but not used |
//! | `-extra` | number of extra fields, then lines of these: not used |
//! | `-spar` `-spem` `-dpar` `-dpem` | probability, `low:high`: arbitrary ranges and exact ports, source and destination |
//! | `-wc_wc` … `-em_em` | total prefix length, probability, then source length, probability…, with commas within the pairs |
//! | `-snest` `-dnest` | the most prefixes that contain each other |
//! | `-sskew` `-dskew` | level of the address tree, probabilities of one child and of two, skew |
//! | `-pcorr` | level, probability that a destination goes on like its source |
//!
//! The classes, in the order of the 25 columns: wc_wc wc_hi hi_wc hi_hi wc_lo lo_wc hi_lo lo_hi lo_lo wc_ar
//! ar_wc hi_ar ar_hi wc_em em_wc hi_em em_hi lo_ar ar_lo lo_em em_lo ar_ar ar_em em_ar em_em; the first half
//! is the source's. Sections that are not named here (`-openflow` of ClassBench-ng) are passed over.
//!
//! # From parameters to rules
//! For each rule a protocol is drawn, then a port pair class, its ports, the sum of the prefix lengths, and
//! the length of the source prefix. Then all sources are given addresses by one walk down the binary tree: at
//! each node the rules whose prefix is longer go on to one child or, by the level's skew, to two; where the
//! nesting limit is reached, prefixes that end at the next level are kept apart from those that go on.
//! Destinations likewise, but each follows its own source's bits first, as long as `-pcorr` says.
//!
//! # Differences from `db_generator`
//! * Another generator of random numbers, so other sets; what agrees is their distributions.
//! * Smoothing spreads each (sum, source length) spike by the same binomials, but as one joint distribution,
//!   cut to possible lengths and scaled once; `db_generator` weights sums and source lengths separately.
//! * Probabilities need not add up to 1. A class that `-prots` uses without a distribution is an error.
//! * TCP flags and extra fields are not generated, nor is there scaling of the tree with the number of
//!   filters (`-b`).
//! * Rules that match less stand first; `db_generator` only moves nested ones.
//!
//! As there, duplicates are removed, so that fewer rules may come than were asked for. Some published files
//! give ports to protocols that have none; such rules are kept: they are for classifiers, and a switch that
//! checks prerequisites refuses them.

use super::random::Weighted;
use super::rules::RuleSetError;
use super::seed_rules;
use crate::rule::Rule;
use crate::rule::error::BYTE_ORDER_MARK;

/// The class of one port condition in a parameter file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortClass {
    Wc,
    Hi,
    Lo,
    Ar,
    Em,
}

/// Names of the port pair classes, in the order of the columns of `-prots`.
const PAIR_NAMES: [&str; 25] = [
    "wc_wc", "wc_hi", "hi_wc", "hi_hi", "wc_lo", "lo_wc", "hi_lo", "lo_hi", "lo_lo", "wc_ar", "ar_wc",
    "hi_ar", "ar_hi", "wc_em", "em_wc", "hi_em", "em_hi", "lo_ar", "ar_lo", "lo_em", "em_lo", "ar_ar",
    "ar_em", "em_ar", "em_em",
];

/// Source and destination class of pair class `pair`.
pub(super) fn pair_classes(pair: usize) -> (PortClass, PortClass) {
    let class = |name: &str| match name {
        "hi" => PortClass::Hi,
        "lo" => PortClass::Lo,
        "ar" => PortClass::Ar,
        "em" => PortClass::Em,
        _ => PortClass::Wc,
    };
    let name = PAIR_NAMES[pair];
    (class(&name[..2]), class(&name[3..]))
}

/// One side's address tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The most prefixes that contain each other.
    pub(super) nest_max: u32,
    /// Per level: the probability of one child, and the skew between two (0 balanced, 1 all on one side).
    pub(super) levels: [(f64, f64); 33],
}

impl Default for Tree {
    fn default() -> Self {
        Self { nest_max: 0, levels: [(0.0, 0.0); 33] }
    }
}

/// A protocol's share and its port pair classes.
#[derive(Clone, Debug)]
pub(super) struct Protocol {
    pub(super) number: u8,
    pub(super) probability: f64,
    pub(super) pairs: Weighted<usize>,
    line: usize,
}

/// One line of a prefix length distribution.
#[derive(Clone, Debug)]
pub(super) struct TotalLength {
    pub(super) total: u8,
    pub(super) probability: f64,
    pub(super) sources: Vec<(u8, f64)>,
}

/// The four lists of ports, in the order of their sections.
const PORT_LISTS: [&str; 4] = ["spar", "spem", "dpar", "dpem"];

/// A ClassBench parameter file.
#[derive(Clone, Debug)]
pub struct SeedFile {
    scale: u32,
    pub(super) protocols: Vec<Protocol>,
    pub(super) ports: [Vec<((u16, u16), f64)>; 4],
    pub(super) prefixes: [Vec<TotalLength>; 25],
    pub(super) source: Tree,
    pub(super) destination: Tree,
    pub(super) correlation: [f64; 33],
}

/// How to grow a rule set from a parameter file.
#[derive(Clone, PartialEq, Debug)]
pub struct SeedConfig {
    /// Number of rules to draw; duplicates are removed.
    pub rules: usize,
    /// 0 to 64: how far prefix lengths may stray from the file's.
    pub smoothness: u32,
    /// −1 to 1: larger favours shorter prefixes.
    pub address_scope: f64,
    /// −1 to 1: larger favours the classes of ports that come first in `-prots`, the wider ones.
    pub port_scope: f64,
    /// Another seed, another rule set.
    pub seed: u64,
}

impl SeedConfig {
    /// The file's own distributions, and seed 1.
    pub fn new(rules: usize) -> Self {
        Self { rules, smoothness: 0, address_scope: 0.0, port_scope: 0.0, seed: 1 }
    }
}

/// A mistake in a parameter file, and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: expected {expected}, found `{found}`")]
pub struct SeedFileError {
    /// The file, as named by the caller.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The expected text.
    pub expected: String,
    /// The text that was found, or the missing part.
    pub found: String,
}

impl SeedFile {
    /// Reads the text of a parameter file; `file` is its name in errors.
    ///
    /// # Errors
    /// At the first line that is not understood, or where distributions are missing that others refer to.
    pub fn parse(file: &str, text: &str) -> Result<Self, SeedFileError> {
        let mut out = SeedFile {
            scale: 0,
            protocols: Vec::new(),
            ports: Default::default(),
            prefixes: Default::default(),
            source: Tree::default(),
            destination: Tree::default(),
            correlation: [0.0; 33],
        };
        let mut section = None;
        let fail = |line: usize, (expected, found): (String, String)| SeedFileError {
            file: file.to_owned(),
            line,
            expected,
            found,
        };
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim();
            if let Some(name) = trimmed.strip_prefix('-').filter(|n| n.starts_with(char::is_alphabetic)) {
                section = Some(name.to_owned());
            } else if trimmed.starts_with('#') {
                section = None;
            } else if !trimmed.is_empty() {
                let place = section.as_deref().ok_or_else(|| {
                    fail(number, ("the name of a section (-scale, -prots, …) or #".into(), found(trimmed)))
                })?;
                out.line(place, trimmed, number)
                    .map_err(|expected| fail(number, (expected, found(trimmed))))?;
            }
        }
        out.check().map_err(|(line, expected, missing)| fail(line, (expected, missing)))?;
        Ok(out)
    }

    /// The number of filters in the set that the file was measured on; 0 where it does not say.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Grows a rule set: the most important first, its priority the number of rules, the last one's 1.
    /// Actions are `output:1` and `output:2` in turn by chance.
    ///
    /// # Errors
    /// Where a parameter is out of range.
    pub fn generate(&self, config: &SeedConfig) -> Result<Vec<Rule>, RuleSetError> {
        seed_rules::generate(self, config)
    }

    fn line(&mut self, section: &str, text: &str, number: usize) -> Result<(), String> {
        let fields: Vec<&str> = text.split([' ', '\t', ',', ':']).filter(|f| !f.is_empty()).collect();
        match section {
            "scale" => self.scale = whole(&fields, 0, u32::MAX.into(), "the number of filters")? as u32,
            "prots" => {
                let expected = "a protocol number, its probability, and 25 probabilities of port classes";
                if fields.len() != 27 {
                    return Err(expected.into());
                }
                let pairs: Vec<f64> =
                    (2..27).map(|i| share(&fields, i, expected)).collect::<Result<_, _>>()?;
                self.protocols.push(Protocol {
                    number: whole(&fields, 0, 255, expected)? as u8,
                    probability: share(&fields, 1, expected)?,
                    pairs: Weighted::new(pairs.into_iter().enumerate()),
                    line: number,
                });
            }
            "flags" => drop(whole(&fields, 0, 255, "a protocol number and its flags")?),
            "snest" => self.source.nest_max = whole(&fields, 0, 33, "the nesting limit, 0 to 33")? as u32,
            "dnest" => {
                self.destination.nest_max = whole(&fields, 0, 33, "the nesting limit, 0 to 33")? as u32
            }
            "sskew" => skew_line(&mut self.source, &fields)?,
            "dskew" => skew_line(&mut self.destination, &fields)?,
            "pcorr" => {
                let expected = "a level from 0 to 32 and a probability";
                self.correlation[whole(&fields, 0, 32, expected)? as usize] = share(&fields, 1, expected)?;
            }
            name => {
                if let Some(list) = PORT_LISTS.iter().position(|&l| l == name) {
                    self.ports[list].push(port_line(&fields)?);
                } else if let Some(pair) = PAIR_NAMES.iter().position(|&p| p == name) {
                    self.prefixes[pair].push(prefix_line(&fields)?);
                }
            }
        }
        Ok(())
    }

    /// Checks that all references of the parts exist; otherwise returns the line, the expected and the found text.
    fn check(&mut self) -> Result<(), (usize, String, String)> {
        if self.protocols.is_empty() {
            return Err((1, "a section -prots with at least one protocol".into(), "none in the file".into()));
        }
        for protocol in &self.protocols {
            if protocol.pairs.is_empty() {
                let expected = "a port pair class with a probability above 0".into();
                return Err((protocol.line, expected, "25 times 0".into()));
            }
            for &pair in protocol.pairs.items() {
                let name = PAIR_NAMES[pair];
                let missing = |section: &str| {
                    let expected =
                        format!("a section -{section}, since protocol {} has {name}", protocol.number);
                    Err((protocol.line, expected, "no such section, or an empty one".into()))
                };
                if self.prefixes[pair].is_empty() {
                    return missing(name);
                }
                let (src, dst) = pair_classes(pair);
                for (i, class) in [(0, src), (2, dst)] {
                    let list = match class {
                        PortClass::Ar => i,
                        PortClass::Em => i + 1,
                        _ => continue,
                    };
                    if self.ports[list].is_empty() {
                        return missing(PORT_LISTS[list]);
                    }
                }
            }
        }
        // The bias towards short prefixes works on sums in ascending order.
        self.prefixes.iter_mut().for_each(|totals| totals.sort_by_key(|t| t.total));
        Ok(())
    }
}

/// The beginning of a line, for an error.
fn found(text: &str) -> String {
    text.chars().take(40).collect()
}

fn whole(fields: &[&str], i: usize, max: u64, expected: &str) -> Result<u64, String> {
    let number = fields.get(i).and_then(|f| f.parse().ok()).filter(|&n: &u64| n <= max);
    number.ok_or_else(|| expected.to_owned())
}

fn share(fields: &[&str], i: usize, expected: &str) -> Result<f64, String> {
    let number = fields.get(i).and_then(|f| f.parse().ok()).filter(|n: &f64| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| expected.to_owned())
}

fn skew_line(tree: &mut Tree, fields: &[&str]) -> Result<(), String> {
    let expected = "a level from 0 to 32, probabilities of one and of two children, and a skew from 0 to 1";
    let level = whole(fields, 0, 32, expected)? as usize;
    share(fields, 2, expected)?;
    let skew = share(fields, 3, expected)?;
    if skew > 1.0 {
        return Err(expected.into());
    }
    tree.levels[level] = (share(fields, 1, expected)?, skew);
    Ok(())
}

fn port_line(fields: &[&str]) -> Result<((u16, u16), f64), String> {
    let expected = "a probability and low:high, with low not above high and both at most 65535";
    let (low, high) = (whole(fields, 1, 65535, expected)? as u16, whole(fields, 2, 65535, expected)? as u16);
    if low > high {
        return Err(expected.into());
    }
    Ok(((low, high), share(fields, 0, expected)?))
}

fn prefix_line(fields: &[&str]) -> Result<TotalLength, String> {
    let expected = "a sum of prefix lengths (0 to 64) and its probability, then source lengths (0 to 32, the rest \
                    for the destination at most 32) with theirs";
    let total = whole(fields, 0, 64, expected)? as u8;
    let probability = share(fields, 1, expected)?;
    if fields.len() < 4 || !fields.len().is_multiple_of(2) {
        return Err(expected.into());
    }
    let mut sources = Vec::new();
    for i in (2..fields.len()).step_by(2) {
        let source = whole(fields, i, 32, expected)? as u8;
        if source > total || total - source > 32 {
            return Err(expected.into());
        }
        sources.push((source, share(fields, i + 1, expected)?));
    }
    Ok(TotalLength { total, probability, sources })
}
