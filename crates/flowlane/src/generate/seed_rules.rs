//! Grows a rule set from a ClassBench parameter file: the method is described in [`super::seed_file`].

use super::assemble::{Assembly, prioritised};
use super::five_tuple::prefix_mask;
use super::random::{Random, Weighted};
use super::rules::RuleSetError;
use super::seed_file::{PortClass, SeedConfig, SeedFile, TotalLength, pair_classes};
use super::seed_tree;
use crate::packet::Field;
use crate::rule::action::PortNo;
use crate::rule::{Action, Match, Rule};

/// A rule in the making.
pub(super) struct Filter {
    protocol: u8,
    src_ports: (u16, u16),
    dst_ports: (u16, u16),
    pub(super) src_len: u8,
    pub(super) dst_len: u8,
    pub(super) src: u32,
    pub(super) dst: u32,
}

pub(super) fn generate(file: &SeedFile, config: &SeedConfig) -> Result<Vec<Rule>, RuleSetError> {
    RuleSetError::check("smoothness", config.smoothness.into(), 0.0, 64.0)?;
    RuleSetError::check("address scope", config.address_scope, -1.0, 1.0)?;
    RuleSetError::check("port scope", config.port_scope, -1.0, 1.0)?;
    RuleSetError::check("rules", config.rules as f64, 0.0, f64::from(1 << 26))?;
    let mut random = Random::for_purpose(config.seed, "seed file");
    let mut filters = draw_filters(file, config, &mut random);
    seed_tree::give_sources(&file.source, &mut filters, &mut random);
    seed_tree::give_destinations(&file.destination, &file.correlation, &mut filters, &mut random);
    let mut assembly = Assembly::default();
    for filter in &filters {
        assembly.add(filter.matches(), 0.0, &mut random);
    }
    Ok(prioritised(assembly.in_order(), || vec![Action::Output(PortNo(1 + random.below(2) as u32))]))
}

impl Filter {
    fn matches(&self) -> Match {
        let mut out = Match::any();
        out.set(Field::EthType, 0x0800);
        if self.protocol != 0 {
            out.set(Field::NwProto, self.protocol.into());
        }
        for (field, address, len) in
            [(Field::Ipv4Src, self.src, self.src_len), (Field::Ipv4Dst, self.dst, self.dst_len)]
        {
            let mask = prefix_mask(len);
            out.set_masked(field, (address & mask).into(), mask.into());
        }
        out.set_range(Field::TpSrc, self.src_ports.0, self.src_ports.1);
        out.set_range(Field::TpDst, self.dst_ports.0, self.dst_ports.1);
        out
    }
}

/// The place in a distribution that the scope parameter shifts: towards 0, the wider end, where positive.
fn scoped(scope: f64, random: &mut Random) -> f64 {
    let p = random.unit();
    p * (scope * p - scope + 1.0)
}

/// Protocol, ports and prefix lengths of every filter.
fn draw_filters(file: &SeedFile, config: &SeedConfig, random: &mut Random) -> Vec<Filter> {
    let protocols = Weighted::new(
        file.protocols.iter().enumerate().map(|(i, p)| (i, p.probability.max(f64::MIN_POSITIVE))),
    );
    let lists: Vec<Weighted<(u16, u16)>> =
        file.ports.iter().map(|list| Weighted::new(list.iter().map(|&(r, p)| (r, p.max(1e-12))))).collect();
    let lengths: Vec<Lengths> = file.prefixes.iter().map(|t| Lengths::new(t, config.smoothness)).collect();
    let draw = |_| {
        let protocol = &file.protocols[protocols.draw(random).unwrap_or(0)];
        let pair = protocol.pairs.at(scoped(config.port_scope, random)).unwrap_or(0);
        let mut ports = |class: PortClass, list: usize| match class {
            PortClass::Wc => (0, 65535),
            PortClass::Hi => (1024, 65535),
            PortClass::Lo => (0, 1023),
            PortClass::Ar => lists[list].draw(random).unwrap_or((0, 65535)),
            PortClass::Em => lists[list + 1].draw(random).unwrap_or((0, 65535)),
        };
        let (src_class, dst_class) = pair_classes(pair);
        let (src_ports, dst_ports) = (ports(src_class, 0), ports(dst_class, 2));
        let (src_len, dst_len) = lengths[pair].draw(config.address_scope, random);
        Filter { protocol: protocol.number, src_ports, dst_ports, src_len, dst_len, src: 0, dst: 0 }
    };
    (0..config.rules).map(draw).collect()
}

/// Prefix length pairs of one port pair class.
struct Lengths {
    totals: Weighted<u8>,
    sources: Vec<Weighted<u8>>,
}

impl Lengths {
    fn new(totals: &[TotalLength], smoothness: u32) -> Self {
        // The joint distribution of (sum, source length).
        let mut joint = vec![[0.0f64; 33]; 65];
        for spike in totals {
            let norm: f64 = spike.sources.iter().map(|s| s.1).sum();
            for &(source, p) in &spike.sources {
                let weight = spike.probability * p / norm.max(f64::MIN_POSITIVE);
                spread(&mut joint, i64::from(spike.total), i64::from(source), weight, i64::from(smoothness));
            }
        }
        Self {
            totals: Weighted::new((0..=64u8).map(|t| (t, joint[usize::from(t)].iter().sum()))),
            sources: joint.iter().map(|row| Weighted::new((0..=32u8).zip(row.iter().copied()))).collect(),
        }
    }

    fn draw(&self, scope: f64, random: &mut Random) -> (u8, u8) {
        let total = self.totals.at(scoped(scope, random)).unwrap_or(0);
        let source = self.sources[usize::from(total)].draw(random).unwrap_or(0);
        (source, total - source)
    }
}

/// Spreads a spike over the pairs at most `s` steps away: the sum by a binomial over −s to s, the source
/// length by a binomial over the lengths that the steps which are left can reach.
fn spread(joint: &mut [[f64; 33]], total: i64, source: i64, weight: f64, s: i64) {
    let by_sum = binomial(2 * s);
    for (step, p_sum) in (-s..=s).zip(&by_sum) {
        let spare = (s - step.abs()) / 2;
        let (low, high) = (source + step.min(0) - spare, source + step.max(0) + spare);
        let t = total + step;
        for (src, p_src) in (low..=high).zip(binomial(high - low)) {
            if (0..=64).contains(&t) && (0..=32).contains(&src) && (0..=32).contains(&(t - src)) {
                joint[t as usize][src as usize] += weight * p_sum * p_src;
            }
        }
    }
}

/// The binomial distribution of `k` fair coins.
fn binomial(k: i64) -> Vec<f64> {
    let mut p = (0..k).fold(1.0, |p, _| p / 2.0);
    let mut out = vec![p];
    for i in 0..k {
        p = p * (k - i) as f64 / (i + 1) as f64;
        out.push(p);
    }
    out
}
