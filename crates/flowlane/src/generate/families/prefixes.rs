//! Rule sets whose prefixes are the point: of all lengths, nested, or apart.

use super::Family;
use super::conditions::{Prefix, TCP, UDP, between};
use crate::generate::header::ipv4_address;
use crate::generate::random::Random;
use crate::packet::Field;
use crate::rule::Match;

fn any_len(random: &mut Random) -> u8 {
    random.below(33) as u8
}

/// `masks`: what a controller writes that composes policies, each with lengths of its own.
pub(super) struct Masks;

impl Family for Masks {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let [src, dst] =
            [any_len(random), any_len(random)].map(|len| Prefix::around(ipv4_address(random), len));
        let mut out = between(src, dst);
        let protocol = [0, TCP, UDP][random.index(3)];
        if protocol == 0 {
            return Some(out);
        }
        out.set(Field::NwProto, protocol.into());
        for field in [Field::TpSrc, Field::TpDst] {
            if random.chance(0.5) {
                out.set(field, random.port(1, 65535).into());
            }
        }
        Some(out)
    }
}

/// `nested`: a packet to and from the hosts in the middle lies in every rule without ports around them.
pub(super) struct Nested {
    /// The hosts in the middle of the nests, on either side.
    hosts: [Vec<u32>; 2],
    /// The next rule of the chain of each pair of hosts that has both prefixes of one length: the pair, the length.
    chain: (usize, u8),
}

impl Nested {
    /// The number of hosts for which the 1,056 pairs of lengths around each pair are enough: nearly twice the rules.
    pub(super) fn new(rules: usize, random: &mut Random) -> Self {
        let hosts = (rules / 500).isqrt() + 1;
        let mut side = || (0..hosts).map(|_| ipv4_address(random)).collect();
        Self { hosts: [side(), side()], chain: (0, 32) }
    }

    fn pair(&self, pair: usize, src_len: u8, dst_len: u8) -> Match {
        let [src, dst] = &self.hosts;
        let (src, dst) = (src[pair / dst.len()], dst[pair % dst.len()]);
        between(Prefix::around(src, src_len), Prefix::around(dst, dst_len))
    }
}

impl Family for Nested {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let pairs = self.hosts[0].len() * self.hosts[1].len();
        // Every second rule continues a chain, as long as there are any.
        if self.chain.0 < pairs && random.chance(0.5) {
            let (pair, len) = self.chain;
            self.chain = if len > 1 { (pair, len - 1) } else { (pair + 1, 32) };
            return Some(self.pair(pair, len, len));
        }
        // A rule that matches everything is no news.
        let (src_len, dst_len) = (any_len(random), any_len(random).max(1));
        let mut out = self.pair(random.index(pairs), src_len, dst_len);
        if random.chance(0.2) {
            out.set(Field::NwProto, TCP.into()).set(Field::TpDst, random.port(1, 65535).into());
        }
        Some(out)
    }
}

/// A box of packets: prefixes, one protocol, ranges of ports.
#[derive(Clone)]
struct Cell {
    prefixes: [Prefix; 2],
    protocol: u8,
    ports: [(u16, u16); 2],
}

impl Cell {
    fn all(protocol: u8) -> Self {
        Self { prefixes: [Prefix::ANY; 2], protocol, ports: [(0, u16::MAX); 2] }
    }

    /// Leaves one half of its packets here and gives the other. Which dimension it cuts is random: mostly an
    /// address, since ports are soon cut to pieces that no administrator would write. None where it has one packet in
    /// that dimension.
    fn split(&mut self, random: &mut Random) -> Option<Cell> {
        let side = random.index(2);
        let mut other = self.clone();
        if random.chance(0.2) {
            let (low, high) = self.ports[side];
            let cut = (low < high).then(|| random.port(low, high - 1))?;
            self.ports[side].1 = cut;
            other.ports[side].0 = cut + 1;
        } else {
            let bit = 1u32 << 31u32.checked_sub(self.prefixes[side].len.into())?;
            self.prefixes[side].len += 1;
            other.prefixes[side].len += 1;
            other.prefixes[side].address |= bit;
        }
        Some(other)
    }

    /// Only a part of it, so that some packets are in no cell.
    fn shrink(&mut self, random: &mut Random) {
        for prefix in &mut self.prefixes {
            let len = (prefix.len + random.below(9) as u8).min(32);
            let inside = prefix.address | (random.bits() as u32).checked_shr(prefix.len.into()).unwrap_or(0);
            *prefix = Prefix::around(inside, len);
        }
    }

    fn matches(&self) -> Match {
        let mut out = between(self.prefixes[0], self.prefixes[1]);
        out.set(Field::NwProto, self.protocol.into());
        for (field, (low, high)) in [Field::TpSrc, Field::TpDst].into_iter().zip(self.ports) {
            out.set_range(field, low, high);
        }
        out
    }
}

/// `disjoint`: TCP and UDP, halved again and again, and of each piece a part. Halves have no packet in common,
/// nor have their parts.
pub(super) struct Disjoint {
    cells: Vec<Cell>,
}

impl Disjoint {
    pub(super) fn new(rules: usize, random: &mut Random) -> Self {
        let mut cells: Vec<Cell> = [UDP, TCP].map(Cell::all).into();
        while cells.len() < rules {
            let at = random.index(cells.len());
            let other = cells[at].split(random);
            cells.extend(other);
        }
        cells.iter_mut().for_each(|cell| cell.shrink(random));
        Self { cells }
    }
}

impl Family for Disjoint {
    fn draw(&mut self, _: u32, _: &mut Random) -> Option<Match> {
        self.cells.pop().map(|cell| cell.matches())
    }
}
