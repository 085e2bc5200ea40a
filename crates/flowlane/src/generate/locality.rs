//! How often the same flow comes again.
//!
//! * `uniform`: every packet picks any flow, each equally likely: no locality.
//! * `zipf:S`: the flow of rank *r* is picked with probability proportional to *r*⁻ˢ, packet by packet;
//!   S = 0 is uniform, traffic of real links lies around 1.
//! * `pareto:A,B`: ClassBench's bursts. A flow is picked uniformly and comes *n* times in a row, *n*
//!   distributed by D(x) = 1 − (B/x)ᴬ, rounded up. B = 0: no locality; A = 1 with B = 0.0001 is called low,
//!   B = 0.1 high there. With A ≤ 1 the mean is infinite, so one burst is cut at [`BURST_MAX`].

use super::random::Random;
use crate::deterministic_math::pow;
use std::fmt;
use std::str::FromStr;

/// The most packets in one Pareto burst.
pub const BURST_MAX: u32 = 65_536;

/// How often the same flow comes again.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Locality {
    /// Every packet picks any flow.
    #[default]
    Uniform,
    /// Popularity falls with the rank to this power, 0 or more.
    Zipf(f64),
    /// Bursts of Pareto-distributed length.
    Pareto {
        /// Shape, more than 0: smaller, longer.
        a: f64,
        /// Scale, 0 or more: larger, longer.
        b: f64,
    },
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locality::Uniform => f.write_str("uniform"),
            Locality::Zipf(s) => write!(f, "zipf:{s}"),
            Locality::Pareto { a, b } => write!(f, "pareto:{a},{b}"),
        }
    }
}

/// Why a text is no locality.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no locality; write uniform, zipf:S with S from 0 to 20 (zipf:1.1), or pareto:A,B with A from \
     0.05 to 1000 and B from 0 to 1000000 (pareto:1,0.1; where commas separate options, pareto:1:0.1)"
)]
pub struct LocalityError(pub String);

impl FromStr for Locality {
    type Err = LocalityError;

    fn from_str(text: &str) -> Result<Self, LocalityError> {
        let wrong = || LocalityError(text.to_owned());
        let number = |text: &str, low: f64, high: f64| {
            text.trim().parse::<f64>().ok().filter(|n| (low..=high).contains(n)).ok_or_else(wrong)
        };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind.trim() {
            "uniform" if rest.is_empty() => Ok(Locality::Uniform),
            "zipf" => Ok(Locality::Zipf(number(rest, 0.0, 20.0)?)),
            "pareto" => {
                let (a, b) = rest.split_once([',', ':']).ok_or_else(wrong)?;
                Ok(Locality::Pareto { a: number(a, 0.05, 1000.0)?, b: number(b, 0.0, 1e6)? })
            }
            _ => Err(wrong()),
        }
    }
}

/// Draws flow numbers by a [`Locality`], each in constant time.
///
/// For Zipf an alias table (Walker 1974, Vose 1991) of 8 bytes a flow is built.
#[derive(Clone, Debug)]
pub struct Sampler {
    flows: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Alias(Vec<(u32, u32)>),
    Burst { a: f64, b: f64, flow: u32, left: u32 },
}

impl Sampler {
    /// Over the flows 0 to `flows` − 1; flow 0 is the most popular under Zipf.
    pub fn new(locality: Locality, flows: u32) -> Self {
        let kind = match locality {
            Locality::Uniform => Kind::Uniform,
            Locality::Zipf(s) => Kind::Alias(alias_table(flows, s)),
            Locality::Pareto { a, b } => Kind::Burst { a, b, flow: 0, left: 0 },
        };
        Self { flows, kind }
    }

    /// The flow of the next packet; 0 where there are no flows.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> u32 {
        match &mut self.kind {
            Kind::Uniform => random.below(self.flows.into()) as u32,
            Kind::Alias(table) => {
                // One draw gives both: the high half picks the column, the low half the side of it.
                let bits = random.bits();
                let column = ((bits >> 32) * u64::from(self.flows)) >> 32;
                match table.get(column as usize) {
                    Some(&(threshold, other)) if bits as u32 >= threshold => other,
                    _ => column as u32,
                }
            }
            Kind::Burst { a, b, flow, left } => {
                if *left == 0 {
                    *flow = random.below(self.flows.into()) as u32;
                    *left = burst_length(random, *a, *b);
                }
                *left -= 1;
                *flow
            }
        }
    }
}

/// A Pareto-distributed number of packets, 1 to [`BURST_MAX`].
pub(crate) fn burst_length(random: &mut Random, a: f64, b: f64) -> u32 {
    if b <= 0.0 {
        return 1;
    }
    let length = b * pow(1.0 - random.unit(), -1.0 / a);
    length.clamp(1.0, f64::from(BURST_MAX)).ceil() as u32
}

/// For each column the threshold, in 2⁻³², below which it selects itself, and the flow that it selects otherwise.
fn alias_table(flows: u32, s: f64) -> Vec<(u32, u32)> {
    let weights: Vec<f64> = (1..=flows).map(|rank| pow(rank.into(), -s)).collect();
    let mean = weights.iter().rev().sum::<f64>() / f64::from(flows.max(1));
    let mut scaled: Vec<f64> = weights.iter().map(|w| w / mean).collect();
    let mut table: Vec<(u32, u32)> = (0..flows).map(|i| (u32::MAX, i)).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..flows).partition(|&i| scaled[i as usize] < 1.0);
    while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
        small.pop();
        table[poor as usize] = ((scaled[poor as usize] * 4_294_967_296.0) as u32, rich);
        scaled[rich as usize] -= 1.0 - scaled[poor as usize];
        if scaled[rich as usize] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(locality: Locality, flows: u32, draws: u32) -> Vec<u32> {
        let mut random = Random::new(7);
        let mut sampler = Sampler::new(locality, flows);
        let mut counts = vec![0; flows as usize];
        (0..draws).for_each(|_| counts[sampler.draw(&mut random) as usize] += 1);
        counts
    }

    #[test]
    fn localities_are_read_as_they_are_printed() {
        for text in ["uniform", "zipf:1.1", "pareto:1,0.1", "zipf:0"] {
            assert_eq!(text.parse::<Locality>().expect(text).to_string(), text);
        }
        assert_eq!("pareto:1:0.1".parse(), Ok(Locality::Pareto { a: 1.0, b: 0.1 }));
        for text in ["", "zipf", "zipf:x", "zipf:-1", "pareto:1", "pareto:0,1", "uniform:1", "zipf:nan"] {
            assert!(text.parse::<Locality>().is_err(), "{text}");
        }
    }

    #[test]
    fn zipf_gives_each_rank_its_share() {
        let (flows, draws) = (1000u32, 400_000u32);
        let counts = counts(Locality::Zipf(1.0), flows, draws);
        let harmonic: f64 = (1..=flows).map(|r| 1.0 / f64::from(r)).sum();
        for rank in [1usize, 2, 3, 10, 100] {
            let want = f64::from(draws) / harmonic / rank as f64;
            let got = f64::from(counts[rank - 1]);
            assert!((got - want).abs() < 6.0 * want.sqrt() + 1.0, "rank {rank}: {got} of {want}");
        }
        let zero = self::counts(Locality::Zipf(0.0), 10, 100_000);
        assert!(zero.iter().all(|&c| (9_500..10_500).contains(&c)), "{zero:?}");
    }

    #[test]
    fn pareto_bursts_follow_the_distribution() {
        let mut random = Random::new(3);
        let (a, b, draws) = (1.5, 2.0, 100_000);
        let lengths: Vec<u32> = (0..draws).map(|_| burst_length(&mut random, a, b)).collect();
        for x in [2.0f64, 4.0, 8.0, 32.0] {
            let want = 1.0 - (b / x).powf(a);
            let got = lengths.iter().filter(|&&l| f64::from(l) <= x).count() as f64 / f64::from(draws);
            assert!((got - want).abs() < 0.01, "D({x}): {got} of {want}");
        }
        assert!((0..100).all(|_| burst_length(&mut random, 1.0, 0.0) == 1));
    }

    #[test]
    fn a_sampler_without_flows_draws_zero() {
        let mut random = Random::new(1);
        for locality in [Locality::Uniform, Locality::Zipf(1.0), Locality::Pareto { a: 1.0, b: 1.0 }] {
            assert_eq!(Sampler::new(locality, 0).draw(&mut random), 0);
        }
    }
}
