//! Rule sets that an opponent would write who knows the engine.

use super::Family;
use super::conditions::{Prefix, TCP, between, is_prefix, wide_range};
use crate::generate::header::ipv4_address;
use crate::generate::random::{Random, Weighted};
use crate::packet::Field;
use crate::rule::Match;

/// `overlap`: TCP of nearly everybody, and ports from somewhere in the lower three eighths to somewhere in the
/// upper: all ranges have the middle in common, so two rules are apart only where their prefixes are.
pub(super) struct Overlap {
    lengths: Weighted<u8>,
}

impl Default for Overlap {
    fn default() -> Self {
        Self { lengths: Weighted::new([(0, 70.0), (1, 15.0), (2, 10.0), (3, 5.0)]) }
    }
}

impl Family for Overlap {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let mut prefix = || {
            let len = self.lengths.draw(random).unwrap_or(0);
            Prefix::around(random.bits() as u32, len)
        };
        let mut out = between(prefix(), prefix());
        out.set(Field::NwProto, TCP.into());
        for field in [Field::TpSrc, Field::TpDst] {
            let (low, high) = (random.port(0, 24_575), random.port(40_960, u16::MAX));
            out.set_range(field, low, high);
        }
        Some(out)
    }
}

/// `cuts`: of four rules two cross two, and every second has a range around a power of two, so that a cut of
/// ports at any of them copies it.
#[derive(Default)]
pub(super) struct Cuts {
    drawn: usize,
}

impl Family for Cuts {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let kind = self.drawn % 4;
        self.drawn += 1;
        let long = Prefix::around(ipv4_address(random), 24);
        let mut out = match kind % 2 {
            0 => between(long, Prefix::ANY),
            _ => between(Prefix::ANY, long),
        };
        if kind >= 2 {
            let power = 1u32 << (1 + random.below(15));
            let below = random.below(power.into()) as u32;
            let above = random.below(power.into()) as u32;
            let field = [Field::TpSrc, Field::TpDst][random.index(2)];
            out.set(Field::NwProto, TCP.into());
            out.set_range(field, (power - 1 - below) as u16, (power + above) as u16);
        }
        Some(out)
    }
}

/// `chains`: TCP from one network to one host. Ranges that are prefixes would be masks, and hashes could tell them
/// apart: there are none.
pub(super) struct Chains {
    src: Prefix,
    dst: Prefix,
}

impl Chains {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut prefix = |len| Prefix::around(ipv4_address(random), len);
        Self { src: prefix(24), dst: prefix(32) }
    }
}

impl Family for Chains {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let mut out = between(self.src, self.dst);
        out.set(Field::NwProto, TCP.into());
        for field in [Field::TpSrc, Field::TpDst] {
            let mut range = wide_range(random);
            while is_prefix(range) {
                range = wide_range(random);
            }
            out.set_range(field, range.0, range.1);
        }
        Some(out)
    }
}
