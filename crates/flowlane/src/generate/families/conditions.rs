//! What families build matches of: prefixes, protocols, ports.

use crate::generate::five_tuple::prefix_mask;
use crate::generate::random::Random;
use crate::packet::Field;
use crate::packet::parse::ether_type;
use crate::rule::Match;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// An IPv4 prefix: an address and how many of its bits count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Prefix {
    pub(super) address: u32,
    pub(super) len: u8,
}

impl Prefix {
    /// Every address.
    pub(super) const ANY: Prefix = Prefix { address: 0, len: 0 };

    /// The prefix of this length that `address` lies in.
    pub(super) fn around(address: u32, len: u8) -> Self {
        Self { address: address & prefix_mask(len), len }
    }
}

/// A match of IPv4 packets between two prefixes.
pub(super) fn between(src: Prefix, dst: Prefix) -> Match {
    let mut out = Match::any();
    out.set(Field::EthType, ether_type::IPV4.into());
    for (field, prefix) in [(Field::Ipv4Src, src), (Field::Ipv4Dst, dst)] {
        out.set_masked(field, prefix.address.into(), prefix_mask(prefix.len).into());
    }
    out
}

/// Ports from `low` to `high` whose number is spread over the powers of two: a range of 2 to 3 is as likely
/// as one of 16,384 to 32,767. It may lie anywhere.
pub(super) fn any_range(random: &mut Random) -> (u16, u16) {
    let power = 1 + random.below(15);
    let size = (1 << power) + random.below(1 << power);
    let low = random.below(65_537 - size);
    (low as u16, (low + size - 1) as u16)
}

/// Ports between any two: a third of them all on average, so that two such ranges mostly overlap.
pub(super) fn wide_range(random: &mut Random) -> (u16, u16) {
    let (one, other) = (random.bits() as u16, random.bits() as u16);
    (one.min(other), one.max(other))
}

/// Returns whether the ports from `low` to `high` are those of a prefix, for which a mask is enough.
pub(super) fn is_prefix((low, high): (u16, u16)) -> bool {
    let size = u32::from(high - low) + 1;
    size.is_power_of_two() && u32::from(low) % size == 0
}
